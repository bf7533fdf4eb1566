"""What a stored log may not hold: nasty lines in, nothing of them out."""

from __future__ import annotations

import getpass
import platform
from pathlib import Path

import pytest

from harness.servers import scrub as module
from harness.servers.scrub import arguments, environment, excerpt, scrub

NASTY: list[tuple[str, list[str]]] = [
    ("model_path='/home/alice/models/secret-llama', tp=1", ["alice", "secret-llama", "/home"]),
    ("loading /mnt/nfs/proj-x/run_7/weights-00001.safetensors", ["nfs", "proj-x", "weights"]),
    ('  File "/home/bob/.venv/lib/python3.11/site-packages/x/y.py", line 3', ["bob", ".venv"]),
    ("cwd is /root", ["/root"]),
    ("cache in ~carol/.cache/flashinfer and ~/.triton/cache", ["carol", ".triton"]),
    ("file:///scratch/dave/trace.json written", ["dave", "scratch"]),
    ("device GPU-8f6d3a1e-0c1b-4e7a-9a51-3f2e1d0c9b8a is busy", ["8f6d3a1e", "9b8a"]),
    ("MIG-GPU-8f6d3a1e-0c1b-4e7a-9a51-3f2e1d0c9b8a/1/0", ["8f6d3a1e"]),
    ("rid='5f0c7e2ab1d94c6f8e3a2b1c0d9e8f7a' finished", ["5f0c7e2a"]),
    ("peer 10.31.4.17:34567 and 192.168.0.9 joined", ["10.31", "192.168"]),
    ("listening on [fe80::1ff:fe23:4567:890a]:8000", ["fe80", "890a"]),
    ("addr 2001:0db8:0000:0000:0000:ff00:0042:8329.", ["2001", "8329"]),
    ("nic aa:bb:cc:dd:ee:01 up", ["aa:bb", "ee:01"]),
    ("dist_init_addr='gpu17.cluster.internal:5000'", ["gpu17", "cluster"]),
    ("host='node-42', port=1", ["node-42"]),
    ("USER=erin HOSTNAME=box9", ["erin", "box9"]),
    ("mail erin.smith+x@example.com about it", ["erin", "example.com"]),
    ("api_key='sk-proj-abcdefgh12345678', admin_api_key=hunter2hunter2", ["abcdefgh", "hunter2"]),
    ("--api-key S3cr3tValue --port 1", ["S3cr3tValue"]),
    ("Authorization: Bearer eyJhbGciOi.J9x.y-z", ["eyJhbGciOi"]),
    ("HF_TOKEN=hf_AbCdEfGhIjKlMnOp AWS_SECRET_ACCESS_KEY=wJalr/XUtn", ["hf_AbC", "wJalr"]),
    ("password: 'two words'", ["two words"]),
    (
        "Receive: obj=GenerateReqInput(rid='1', text='my diary, \\'private\\'', input_ids=[9, 8])",
        ["diary", "private", "9, 8"],
    ),
    ('{"prompt": "the \\"quoted\\" plan", "max_tokens": 4}', ["plan", "quoted"]),
    ('{"messages": [{"role": "user", "content": "who am I [really]"}]}', ["who am I", "really"]),
    ("input_ids=[101, 102, 103], sampling", ["101", "103"]),
    ("origin_input_ids: [[5, 6, 7], [8, 9]] end", ["5, 6", "8, 9"]),
    ("tokens [11, 12, 13, 14, 15, 16, 17, 18, 19", ["11", "19"]),
    ("output_text='it never en", ["never"]),
    ("text=\"an unfinished 'prompt'", ["unfinished", "prompt"]),
]


@pytest.mark.parametrize(("line", "secrets"), NASTY, ids=lambda v: str(v)[:30])
def test_a_nasty_line_loses_its_secrets(line: str, secrets: list[str]) -> None:
    before, after = "[2026-01-01 00:00:01] start", "Decode batch, #running-req: 4"
    text = scrub(f"{before}\n{line}\n{after}")
    assert text.startswith(f"{before}\n")
    assert text.endswith(f"\n{after}")
    for secret in secrets:
        assert secret not in text, text
    assert scrub(text) == text


def test_the_names_of_this_machine_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "node", lambda: "rack7.somewhere.org")
    monkeypatch.setattr(getpass, "getuser", lambda: "frank")
    module._own.cache_clear()
    text = scrub("rack7:123:456 [0] NCCL INFO by frank on rack7.somewhere.org, not by franklin")
    module._own.cache_clear()
    assert text == "<name>:123:456 [0] NCCL INFO by <name> on <name>, not by franklin"


KEPT = [
    "[2026-11-30 08:07:04] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 845616",
    "Capture target decode CUDA graph begin. bs=[8, 64, 128, 256, 1, 2, 3, 4, 5]",
    "Capture begin. num_tokens=[4, 8, 12, 16, 20, 24, 28, 32, 48, 64], avail mem=18.7 GB",
    "[2026-11-30 08:07:23] Decode batch, #running-req: 256, #token: 45056, token usage: 0.05, cuda "
    "graph: True, gen throughput (token/s): 1523.59, #queue-req: 0",
    'INFO:     127.0.0.1:51234 - "POST /generate HTTP/1.1" 200 OK',
    "ServerArgs(host='127.0.0.1', api_key=None, hf_chat_template_name=None, version='0.5.17')",
    "RuntimeError: CUDA error: at::native::add 12.8 driver 580.65.06, sm_90",
    "ValueError: expected 3/4 of 1/2",
]  # fmt: skip


@pytest.mark.parametrize("line", KEPT)
def test_what_explains_a_run_stays(line: str) -> None:
    assert scrub(line) == line


def test_a_line_of_code_can_still_be_found() -> None:
    line = 'File "/home/x/.venv/lib/python3.11/site-packages/sglang/srt/server.py", line 3, in run'
    assert scrub(line) == 'File "<path>/sglang/srt/server.py", line 3, in run'
    assert scrub('File "/home/x/project/cell.py", line 3') == 'File "<path>/cell.py", line 3'


def test_a_progress_bar_is_kept_as_its_last_state(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"begin\n 0%\r 50%\r100%\nend\r\n")
    assert excerpt(log) == "begin\n100%\nend\n"


def test_a_long_log_keeps_its_beginning_and_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEAD_BYTES", 100)
    monkeypatch.setattr(module, "TAIL_BYTES", 100)
    log = tmp_path / "server.log"
    log.write_text("first\n" + "input_ids=[1, 2]\n" * 100 + "last\n")
    kept = excerpt(log)
    assert kept.startswith("first\n")
    assert kept.endswith("last\n")
    assert "bytes left out" in kept
    assert "1, 2" not in kept


def test_a_command_line_keeps_names_and_loses_directories_and_keys() -> None:
    given = ["--model-path", "/home/x/llama", "--api-key", "S3cr3t", "--max-total-tokens", "148400"]
    kept = ["--model-path", "llama", "--api-key", "<key>", "--max-total-tokens", "148400"]
    assert arguments(given) == kept
    assert arguments(["--api-key=S3cr3t", "--x=/a/b"]) == ["--api-key=<key>", "--x=<path>"]


def test_variables_lose_their_keys() -> None:
    given = {"HF_TOKEN": "abc", "OPENAI_API_KEY": "d", "CACHE": "/a/b", "SGLANG_X": "1"}
    kept = {"HF_TOKEN": "<key>", "OPENAI_API_KEY": "<key>", "CACHE": "b", "SGLANG_X": "1"}
    assert environment(given) == kept
