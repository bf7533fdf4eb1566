"""The plugin that SGLang loads in each of its processes (entry point `sglang.srt.plugins`).

SGLang swallows what a plugin raises and goes on with the stock engine. A measurement of the wrong
system is worse than none, so every failure here ends the process: `SystemExit` passes through.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, NoReturn

from granikv.config import GRANIKV, GraniKVConfig, stored_config

_GRAPHS = "sglang.srt.model_executor.model_runner.ModelRunner._decode_cuda_graph_runner_cls"
_HTTP = "sglang.srt.entrypoints.http_server.launch_server"
_INIT_NEW = "sglang.srt.model_executor.forward_batch_info.ForwardBatch.init_new"
_PREPARE = "sglang.srt.server_args.prepare_server_args"
_SCHEDULER = "sglang.srt.managers.scheduler.Scheduler"


def activate() -> None:
    """Called by SGLang's plugin loader in the launcher, the engine and every rank's scheduler."""
    try:
        _activate()
    except Exception as error:
        end_process(f"the plugin could not be registered: {_one_line(error)}")


def end_process(message: str) -> NoReturn:
    """One line on standard error, and no server."""
    _say(message)
    raise SystemExit(1)


def end_engine(message: str) -> NoReturn:
    """The same from inside a scheduler: the launcher, which holds the other ranks, must go too.

    SIGQUIT is how the engine's own schedulers tell it; it may end this process at once.
    """
    _say(message)
    os.kill(os.getppid(), signal.SIGQUIT)
    raise SystemExit(1)


def _say(message: str) -> None:
    print(f"granikv: {message}", file=sys.stderr, flush=True)


@contextmanager
def ending_the_engine(what: str) -> Iterator[None]:
    """Whatever is raised inside ends the engine in one line, not in a stock server."""
    try:
        yield
    except Exception as error:
        end_engine(f"{what}: {_one_line(error)}")


def _activate() -> None:
    from granikv.engine import cpu

    cpu.install()
    config = stored_config()
    if config is not None:
        install(config)
    else:
        _hook({_PREPARE: ("AROUND", _prepare)})


def _prepare(original: Callable[[list[str]], Any], argv: list[str]) -> Any:
    """Read our flags out of the command line; the engine sees only its own."""
    from granikv import flags
    from granikv.config import ConfigError
    from granikv.engine import adapters, preflight, refusals
    from granikv.hardware import ProfileError

    try:
        config, rest = flags.split(argv)
        if config is None:
            return original(list(argv))
        preflight.check_model(rest)
    except ConfigError as error:
        end_process(str(error))
    config.store()
    try:
        install(config)
    except Exception as error:
        end_process(f"the plugin could not be registered: {_one_line(error)}")
    try:
        server_args = original(flags.engine_arguments(config, rest))
    except ConfigError as error:
        end_process(str(error))
    except Exception as error:
        end_process(f"the engine refused its arguments: {_one_line(error)}")
    for refusal in (
        refusals.refusal_of_engine(server_args),
        refusals.refusal_of_admission(config.admission, server_args),
    ):
        if refusal is not None:
            end_process(refusal)
    try:
        preflight.check_port(server_args.host, server_args.port)
        adapters.check_rule(config, str(server_args.device))
    except (ConfigError, ProfileError) as error:
        end_process(str(error))
    return server_args


def install(config: GraniKVConfig) -> None:
    """Register the tree, the decode backend and the hooks, and see that all of it took."""
    from sglang.srt.layers.attention.attention_registry import (
        ATTENTION_BACKENDS,
        register_attention_backend,
    )
    from sglang.srt.mem_cache.registry import (
        get_radix_cache_factory,
        register_radix_cache_backend,
    )
    from sglang.srt.server_args import ATTENTION_BACKEND_CHOICES, add_attention_backend_choices

    from granikv import flags
    from granikv.engine import adapters, refusals

    refusal = refusals.refusal_of_version(version("sglang"))
    if refusal is not None:
        end_process(refusal)
    parts = adapters.Adapters(config)
    add_attention_backend_choices([flags.DECODE_BACKEND])
    register_attention_backend(flags.DECODE_BACKEND)(parts.decode_backend)
    if config.system == GRANIKV:
        register_radix_cache_backend(flags.RADIX_BACKEND, parts.tree)
        if get_radix_cache_factory(flags.RADIX_BACKEND) is None:
            end_process("the engine did not take the radix tree")
    if flags.DECODE_BACKEND not in ATTENTION_BACKENDS:
        end_process("the engine did not take the decode backend")
    if flags.DECODE_BACKEND not in ATTENTION_BACKEND_CHOICES:
        end_process("the engine does not offer the decode backend")
    _hook(
        {
            _INIT_NEW: ("AFTER", parts.after_init_new),
            f"{_SCHEDULER}.__init__": ("AFTER", parts.after_scheduler_init),
            f"{_SCHEDULER}.get_internal_state": ("AFTER", parts.after_get_internal_state),
            f"{_SCHEDULER}.set_internal_state": ("AROUND", parts.around_set_internal_state),
            _HTTP: ("BEFORE", parts.before_http_server),
            _GRAPHS: ("AFTER", parts.graph_runner),
        }
    )


def _hook(hooks: dict[str, tuple[str, Callable[..., Any]]]) -> None:
    """Apply hooks now; the engine logs a failure and goes on, so look whether they are in place."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    for target, (kind, hook) in hooks.items():
        HookRegistry.register(target, hook, HookType[kind])
    HookRegistry.apply_hooks()
    missing = [target for target in hooks if target not in HookRegistry._patched]
    if missing:
        end_process(f"the engine has no {missing[0]} to extend")


def _one_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]
