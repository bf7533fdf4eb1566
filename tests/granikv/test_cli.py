"""The `granikv` command: what it says of a machine, hands to the engine, and refuses."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from granikv import cli, doctor, remote
from granikv.hardware import find_profile


def test_serve_becomes_the_engine_on_loopback_with_the_layer_on() -> None:
    command = cli.serve_command(["--model-path", "m"])
    assert command[:3] == [sys.executable, "-m", "sglang.launch_server"]
    assert command[3:] == ["--model-path", "m", "--host", "127.0.0.1", "--granikv"]


def test_serve_keeps_what_the_user_chose() -> None:
    command = cli.serve_command(["--host=0.0.0.0", "--sglang-cascade"])
    assert command[3:] == ["--host=0.0.0.0", "--sglang-cascade"]


def test_without_a_gpu_the_engine_gets_what_it_needs_on_a_cpu() -> None:
    added = cli.cpu_arguments(["--model-path", "m", "--dtype=bfloat16"], find_profile("cpu"))
    assert added[:4] == ["--attention-backend", "torch_native", "--device", "cpu"]
    assert "--dtype" not in added
    assert "--skip-tokenizer-init" not in added
    assert added[added.index("--grammar-backend") + 1] == "none"


def test_help_lists_our_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--granikv-hot-fraction" in shown
    assert "--granikv-admission" in shown


def test_an_unknown_command_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sevre"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_doctor_names_every_part_and_a_remedy_for_what_is_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = cli.main(["doctor"])
    shown = capsys.readouterr().out
    for finding in doctor.findings():
        assert finding.name in shown
        if finding.remedy:
            assert finding.remedy in shown
    assert "make figures" in shown
    assert status == (1 if doctor.missing_engine() else 0)


def test_the_doctor_finds_an_engine_of_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda package: "0.5.16")
    assert "0.5.17 only" in doctor.missing_engine()


def test_the_doctor_finds_no_engine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "_version", lambda package: None)
    assert cli.main(["serve", "--model-path", "m"]) == 1
    assert "make setup" in capsys.readouterr().err
    assert cli.main(["doctor"]) == 1


@pytest.mark.parametrize(
    ("gpu", "found", "calibrate"),
    [
        (None, "profile cpu: the paper's rule, M_sat 8", False),
        ("1 x NVIDIA A100-SXM4-40GB", "profile a100_40gb: the paper's rule, M_sat 1024", True),
        ("2 x NVIDIA Q900", "no profile of NVIDIA Q900", True),
    ],
)
def test_the_doctor_says_what_dispatch_goes_by(
    monkeypatch: pytest.MonkeyPatch, gpu: str | None, found: str, calibrate: bool
) -> None:
    seen = doctor.Finding("GPU", gpu or "none", "" if gpu else "one is needed")
    monkeypatch.setattr(doctor, "_gpu", lambda: seen)
    (finding,) = [f for f in doctor.findings() if f.name == "dispatch"]
    assert finding.found == found
    assert ("make calibrate" in finding.remedy) is calibrate


class _Pins(BaseHTTPRequestHandler):
    """A server that answers as `granikv.engine.pin_routes` does."""

    def _answer(self, status: int, body: Any) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length)) if length else None
        if self.headers["Authorization"] != "Bearer key":
            self._answer(401, {})
        elif self.command == "POST" and body == {"input_ids": [1, 2]}:
            self._answer(200, {"number": 1})
        elif self.command == "POST":
            self._answer(409, {"error": "over the pin budget"})
        elif self.command == "GET":
            self._answer(200, {"pins": []})
        else:
            self._answer(404, {"error": "no pin 7"})

    do_GET = do_POST = do_DELETE = _serve  # noqa: N815 (the base class's names)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@pytest.fixture
def url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Pins)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_pins_over_http(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["--url", url, "--admin-key", "key"]
    ids = tmp_path / "ids.json"
    ids.write_text("[1, 2]")
    assert cli.main(["pin", *at, "--ids-file", str(ids)]) == 0
    assert json.loads(capsys.readouterr().out) == {"number": 1}
    assert cli.main(["pins", *at]) == 0
    text = tmp_path / "prefix.txt"
    text.write_text("a prefix")
    assert cli.main(["pin", *at, "--text-file", str(text)]) == 1
    assert "over the pin budget" in capsys.readouterr().err
    assert cli.main(["unpin", *at, "7"]) == 1
    assert "no such pin" in capsys.readouterr().err
    assert cli.main(["pins", "--url", url, "--admin-key", "wrong"]) == 1
    assert "admin key" in capsys.readouterr().err


def test_no_server_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pins", "--url", "http://127.0.0.1:9"]) == 1
    assert "no server answers" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["{}", "[]", '["a"]', "not json"])
def test_a_file_without_token_ids_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "ids.json"
    path.write_text(content)
    with pytest.raises(remote.RemoteError, match=r"ids\.json"):
        remote.read_prefix(None, str(path))
