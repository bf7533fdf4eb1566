"""The set-up from end to end on a recorded ``.venv``: order, restart, keys, sizes, errors."""

import re
from pathlib import Path

import pytest

from granikv.install import cli
from granikv.install.errors import SetupError
from granikv.install.workspace import Workspace
from tests.project.fake_venv import PLAIN, FakeCheckout, install_fakes


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCheckout:
    fake = FakeCheckout(tmp_path / "checkout")
    install_fakes(fake, monkeypatch)
    return fake


def whats(calls: list[str]) -> list[str]:
    """Each command's subject: a lock's name, a pin, the project or the import check."""
    subjects = []
    for call in calls:
        if "index versions" in call or "compileall" in call:
            continue
        match = re.search(r"locks/(\S+)\.txt$|(torch==\S+)$|-e (/\S+)$", call)
        subjects.append(next(filter(None, match.groups())) if match else "import")
    return subjects


FULL = ["build", "base", "dev", "torch==2.13.0", "engine-cpu"]


def test_a_first_run_installs_torch_before_what_needs_it(checkout: FakeCheckout) -> None:
    line = cli.set_up(checkout.root, "auto", dev=True)
    assert whats(checkout.take_calls()) == [*FULL, str(checkout.root), "import"]
    assert "SGLang 0.5.17, torch 2.13.0+cpu, on the CPU" in line
    pth = Workspace(checkout.root).pth.read_text().strip()
    assert pth == str(checkout.root / "granikv" / "install" / "stand_ins")


def test_what_was_installed_is_compiled_before_the_import_check(checkout: FakeCheckout) -> None:
    cli.set_up(checkout.root, "cpu", dev=True)
    calls = checkout.take_calls()
    engine = next(i for i, call in enumerate(calls) if call.endswith("engine-cpu.txt"))
    assert "compileall" in calls[engine + 1]
    assert calls[engine + 1].endswith("site-packages")


def test_alternating_targets_repeat_nothing(checkout: FakeCheckout) -> None:
    cli.set_up(checkout.root, "cpu", dev=True)
    checkout.take_calls()
    cli.set_up(checkout.root, "none", dev=False)
    cli.set_up(checkout.root, "cpu", dev=True)
    assert checkout.take_calls() == []


def test_a_second_run_starts_no_command(checkout: FakeCheckout) -> None:
    cli.set_up(checkout.root, "auto", dev=True)
    checkout.take_calls()
    line = cli.set_up(checkout.root, "auto", dev=True)
    assert checkout.take_calls() == []
    assert "nothing to do (SGLang 0.5.17" in line


@pytest.mark.parametrize("word", ["locks/base", "torch==", "locks/engine-cpu", "-e /", "VERIFIED"])
def test_a_cut_short_run_goes_on_at_the_step_that_failed(checkout: FakeCheckout, word: str) -> None:
    checkout.fail_on(word)
    with pytest.raises(SetupError, match="No matching distribution"):
        cli.set_up(checkout.root, "cpu", dev=True)
    done = whats(checkout.take_calls())
    checkout.fail_on(None)
    cli.set_up(checkout.root, "cpu", dev=True)
    rest = whats(checkout.take_calls())
    whole = [*FULL, str(checkout.root), "import"]
    # The engine is one step of two commands, so a cut between them repeats the first.
    restart = whole.index("torch==2.13.0") if done[-1] == "engine-cpu" else len(done) - 1
    assert rest == whole[restart:]


def test_a_failing_pip_shows_its_last_lines_without_noise(checkout: FakeCheckout) -> None:
    checkout.fail_on("base")
    with pytest.raises(SetupError) as caught:
        cli.set_up(checkout.root, "cpu", dev=True)
    message = str(caught.value)
    assert "ERROR: No matching distribution found" in message
    assert "Location" not in message
    log = re.search(r"the whole log is (\S+)", message)
    assert log is not None
    assert "is ignored" in Path(log[1]).read_text()


def test_a_changed_lock_repeats_its_step_and_the_check(checkout: FakeCheckout) -> None:
    cli.set_up(checkout.root, "cpu", dev=True)
    checkout.take_calls()
    lock = checkout.root / "conf" / "locks" / "base.txt"
    lock.write_text(lock.read_text().replace("rich==", "rich==99.") + "# a comment\n")
    cli.set_up(checkout.root, "cpu", dev=True)
    assert whats(checkout.take_calls()) == ["base", "import"]


def test_a_comment_in_a_lock_repeats_nothing(checkout: FakeCheckout) -> None:
    cli.set_up(checkout.root, "cpu", dev=True)
    checkout.take_calls()
    lock = checkout.root / "conf" / "locks" / "base.txt"
    lock.write_text("# another heading\n" + lock.read_text())
    cli.set_up(checkout.root, "cpu", dev=True)
    assert checkout.take_calls() == []


def test_a_moved_checkout_is_set_up_anew(checkout: FakeCheckout) -> None:
    cli.set_up(checkout.root, "none", dev=False)
    moved = checkout.root.with_name("moved")
    checkout.root.rename(moved)
    checkout.root = moved
    checkout.take_calls()
    cli.set_up(moved, "none", dev=False)
    assert whats(checkout.take_calls()) == ["build", "base", str(moved)]


def test_figures_need_neither_engine_nor_linters(checkout: FakeCheckout) -> None:
    line = cli.set_up(checkout.root, "none", dev=False)
    assert whats(checkout.take_calls()) == ["build", "base", str(checkout.root)]
    assert "without the engine" in line
    cli.set_up(checkout.root, "cpu", dev=True)
    assert whats(checkout.take_calls()) == [*FULL[2:], "import"]


def test_sizes_are_said_before_the_first_download(
    checkout: FakeCheckout, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout.fail_on("build")
    with pytest.raises(SetupError):
        cli.set_up(checkout.root, "cpu", dev=True)
    printed = capsys.readouterr().out
    assert re.search(r"SGLang and torch for the CPU: download 493 MB, 2\.0 GB on disk", printed)
    assert re.search(r"together: download about \d+ MB .* free: 100\.0 GB", printed)


def test_a_cuda_only_index_is_announced_with_its_size(
    checkout: FakeCheckout, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout.offer("2.13.0, 2.12.1")
    cli.set_up(checkout.root, "cpu", dev=True)
    printed = capsys.readouterr().out
    assert "SGLang and torch for the CPU: download 3.0 GB" in printed
    assert "PIP_EXTRA_INDEX_URL" in printed
    torch = next(call for call in checkout.take_calls() if call.endswith("torch==2.13.0"))
    assert "--no-deps" not in torch
    assert "torch-constraints.txt" in torch


def test_a_full_disk_stops_before_the_first_download(
    checkout: FakeCheckout, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = PLAIN.__class__(**{**vars(PLAIN), "free_mb": 900})
    monkeypatch.setattr("granikv.install.cli.detect", lambda _root: small)
    with pytest.raises(SetupError, match=r"not enough disk space: .* wanted .* 900 MB free"):
        cli.set_up(checkout.root, "cpu", dev=True)
    assert whats(checkout.take_calls()) == []


def test_somebody_elses_venv_is_left_alone(checkout: FakeCheckout) -> None:
    theirs = checkout.root / ".venv" / "bin"
    theirs.mkdir(parents=True)
    with pytest.raises(SetupError, match="was not made by this program"):
        cli.set_up(checkout.root, "cpu", dev=True)
    assert list(theirs.parent.iterdir()) == [theirs]


def test_a_lost_interpreter_is_replaced(checkout: FakeCheckout) -> None:
    cli.set_up(checkout.root, "none", dev=False)
    work = Workspace(checkout.root)
    work.python.unlink()
    checkout.take_calls()
    cli.set_up(checkout.root, "none", dev=False)
    assert whats(checkout.take_calls()) == ["build", "base", str(checkout.root)]


def test_switching_to_the_gpu_engine_takes_the_stand_ins_away(
    checkout: FakeCheckout, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.set_up(checkout.root, "cpu", dev=False)
    checkout.take_calls()
    monkeypatch.setattr("granikv.install.cli.choose_engine", lambda _asked, _machine: "gpu")
    with pytest.raises(SetupError, match="torch sees no GPU"):
        cli.set_up(checkout.root, "gpu", dev=False)
    assert whats(checkout.take_calls()) == ["engine-gpu", "import"]
    assert not Workspace(checkout.root).pth.exists()


def test_main_turns_an_error_into_one_line_and_a_status(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_kwargs: object) -> str:
        raise SetupError("no disk")

    monkeypatch.setattr(cli, "set_up", refuse)
    assert cli.main([]) == 1
    assert capsys.readouterr().err == "error: no disk\n"


def test_main_says_how_to_go_on_after_an_interrupt(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_args: object, **_kwargs: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "set_up", interrupt)
    assert cli.main([]) == 130
    assert "run the same command again" in capsys.readouterr().err
