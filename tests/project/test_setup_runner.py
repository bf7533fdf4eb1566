"""Long commands: the log, the progress lines, the failure message; and the step stamps."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from granikv.install import runner
from granikv.install.errors import SetupError
from granikv.install.runner import run_logged, telling_lines
from granikv.install.stamps import Stamps
from granikv.install.workspace import Workspace, pip_environment
from tests.project.paths import ROOT


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_output_is_returned_and_appended_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "deep" / "x.log"
    assert run_logged(python("print('one')"), log, "step") == "one\n"
    assert run_logged(python("print('two')"), log, "step") == "two\n"
    assert log.read_text().count("$ ") == 2


def test_a_slow_command_says_what_it_is_doing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "QUIET_S", 0.5)
    monkeypatch.setattr(runner, "EVERY_S", 60.0)
    code = (
        "import time; print('  Downloading torch-2.13.0-cp311.whl (191.8 MB)', flush=True);"
        "print('noise', flush=True); time.sleep(1)"
    )
    run_logged(python(code), tmp_path / "x.log", "torch")
    printed = capsys.readouterr().out
    assert re.fullmatch(r"  torch: \d s, downloading torch \(191\.8 MB\)\n", printed)


def test_a_quick_command_says_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_logged(python("print('hello')"), tmp_path / "x.log", "step")
    assert capsys.readouterr().out == ""


def test_a_failure_names_step_lines_and_log(tmp_path: Path) -> None:
    code = "print('early'); print('ERROR: no space left'); raise SystemExit(3)"
    with pytest.raises(SetupError, match=r"(?s)base failed:.*no space left.*whole log is .*x\.log"):
        run_logged(python(code), tmp_path / "x.log", "base")


def test_a_missing_program_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="cannot run /nowhere/python"):
        run_logged(["/nowhere/python"], tmp_path / "x.log", "venv")


def test_an_interrupt_ends_the_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen.wait

    def wait(self: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        if not children:
            children.append(self)
            raise KeyboardInterrupt
        return real(self, timeout=timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", wait)
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_logged(python("import time; time.sleep(60)"), tmp_path / "x.log", "step")
    assert time.monotonic() - begun < 30
    assert children[0].poll() is not None


def test_telling_lines_leave_out_noise_and_keep_the_end() -> None:
    output = "\n".join(["old"] * 20 + ["WARNING: Location 'x' is ignored: no", "", "the reason"])
    shown = telling_lines(output, count=2)
    assert shown == "  | old\n  | the reason"


def test_a_stamp_holds_for_its_key_only(tmp_path: Path) -> None:
    stamps = Stamps(tmp_path)
    assert not stamps.is_current("base", "k1")
    stamps.write("base", "k1", "a note")
    assert stamps.is_current("base", "k1")
    assert not stamps.is_current("base", "k2")
    assert stamps.note("base") == "a note"
    stamps.remove("base")
    assert not stamps.is_current("base", "k1")


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"note": "x"}'])
def test_a_broken_stamp_means_not_done(tmp_path: Path, text: str) -> None:
    (tmp_path / "base.json").write_text(text)
    assert not Stamps(tmp_path).is_current("base", "k")


def test_pip_is_kept_inside_the_venv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_USER", "1")
    monkeypatch.setenv("PIP_TARGET", "/elsewhere")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "file:///mine")
    environment = pip_environment()
    assert "PIP_USER" not in environment
    assert "PIP_TARGET" not in environment
    assert environment["PIP_EXTRA_INDEX_URL"] == "file:///mine"


def test_a_second_set_up_waits_for_the_first(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys, time; from granikv.install.workspace import Workspace\n"
        "work = Workspace(pathlib.Path(sys.argv[1]))\n"
        "with work.claimed():\n"
        "    print(f'in {time.monotonic()}', flush=True); time.sleep(1)\n"
        "    print(f'out {time.monotonic()}', flush=True)\n"
    )
    command = [*python(code), str(tmp_path)]
    Workspace(tmp_path).state.mkdir(parents=True)
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(2)
    ]
    spans = []
    for child in both:
        out = child.communicate(timeout=60)[0]
        times = [float(line.split()[1]) for line in out.splitlines() if line[:2] in ("in", "ou")]
        spans.append(times)
    (first_in, first_out), (second_in, _) = sorted(spans)
    assert first_in < first_out <= second_in
