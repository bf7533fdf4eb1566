# Every target sets up what it needs in .venv, says what it will download before it does, and
# goes on where an interrupted run stopped.
#   PYTHON=python3.12   interpreter that makes .venv (3.11 to 3.13)
#   ENGINE=cpu|gpu      engine to install; left out, a GPU decides
#   MODEL=DIR           model to serve; left out, a tiny one is made
#   PROFILE=NAME        what `make calibrate` calls its hardware profile
#   A=DIR B=DIR         results that `make compare` sets side by side
#   ARGS="..."          handed on to the program behind the target

PYTHON ?= python3
ENGINE ?= auto
MODEL ?=
PROFILE ?= local
ARGS ?=
WORKERS ?= 2
A ?= results.before
B ?= results

SETUP = $(PYTHON) -m granikv.install
BIN = .venv/bin
ON_CPU = grep -qs "on the CPU" .venv/.granikv-setup/verify.json
TINY_MODEL = results/models/tiny
# Every table's own experiment, in the tables' order; on the CPU those that are scaled down.
OF_TABLES = $(sort $(basename $(notdir $(wildcard conf/experiment/table[0-9][0-9]$(1).yaml))))

.DEFAULT_GOAL := help
.PHONY: setup test check smoke reproduce reproduce-full compare figures verify calibrate serve lint gpu-dry-run clean help

setup: ## install everything into .venv: harness, linters, tests and the engine for this machine
	@$(SETUP) --engine $(ENGINE)

test: setup lint ## linters, type checker and all tests, the real engine's included
	@mkdir -p results
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --junitxml results/tests.xml $(ARGS)

check: ## the fast tests, without torch and the engine
	@$(SETUP) --engine none
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --ignore tests/engine $(ARGS)

smoke: ## the headline points once, at most 15 minutes on one GPU, then every table and figure
	@$(SETUP) --engine $(ENGINE) --no-dev
	@if $(ON_CPU); then names=smoke_cpu; else names=smoke; fi; \
	$(BIN)/python -m harness.reproduce --experiments $$names $(ARGS)

reproduce: ## run the experiments on this machine, then every table and figure
	@$(SETUP) --engine $(ENGINE) --no-dev
	$(BIN)/python -m harness.reproduce $(ARGS)

reproduce-full: ## every experiment that this machine can run; says first how long it will take
	@$(SETUP) --engine $(ENGINE) --no-dev
	@if $(ON_CPU); then names="$(call OF_TABLES,_cpu)"; \
	else names="$(call OF_TABLES,) negative_control trace_replay"; fi; \
	$(BIN)/python -m harness.reproduce --experiments $$names $(ARGS)

compare: ## what changed from the results in A to those in B; fails when something got worse
	@$(SETUP) --engine none --no-dev
	$(BIN)/python -m harness compare $(A) $(B) $(ARGS)

figures: ## every table and figure from the cells at hand; needs neither torch nor the engine
	@$(SETUP) --engine none --no-dev
	$(BIN)/python -m harness.reproduce --figures-only $(ARGS)

verify: ## PASS, FAIL or INCONCLUSIVE for each claim
	@$(SETUP) --engine none --no-dev
	$(BIN)/python -m harness.verify $(if $(wildcard results/tests.xml),--tests results/tests.xml) $(ARGS)

calibrate: ## measure this machine's ceilings and crossover into conf/hardware/PROFILE.yaml
	@$(SETUP) --engine $(ENGINE) --no-dev
	@if $(ON_CPU); then device=cpu; else device=cuda; fi; \
	$(BIN)/granikv calibrate --device $$device --out conf/hardware/$(PROFILE).yaml $(ARGS)

serve: ## serve MODEL with GraniKV on 127.0.0.1
	@$(SETUP) --engine $(ENGINE) --no-dev
ifeq ($(MODEL),)
	$(BIN)/python -m harness.models.tiny_llama $(TINY_MODEL)
endif
	exec $(BIN)/granikv serve --model $(or $(MODEL),$(TINY_MODEL) --skip-tokenizer-init) $(ARGS)

lint: ## ruff and mypy
	@$(SETUP) --engine $(ENGINE)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

gpu-dry-run: ## resolve the gpu extra against the package index and compare it with its lock
	@$(SETUP) --engine none
	@$(BIN)/python -m granikv.install --dry-run gpu

clean: ## remove .venv, caches and build outputs; measured cells in results/ stay
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
