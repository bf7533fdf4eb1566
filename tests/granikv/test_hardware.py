"""Hardware profiles: the shipped ones, round trips, and one clear line for what is wrong."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import yaml

from granikv.hardware import (
    HardwareProfile,
    ProfileError,
    find_profile,
    load_profile,
    shipped_profiles,
    write_profile,
)

VALID = """
name: test
device: cuda
title: a test
measured: {by: me, when: "2026-01-01", source: nowhere}
ceilings: {peak_tflops: 312, bandwidth_gbps: 1555.5}
dispatch: {m_sat: 1024}
server: {args: [--mem-fraction-static, 0.8], env: {THREADS: 1}}
"""


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "profile.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_load(tmp_path: Path) -> None:
    assert load_profile(_file(tmp_path, VALID)) == HardwareProfile(
        name="test",
        device="cuda",
        title="a test",
        measured={"by": "me", "when": "2026-01-01", "source": "nowhere"},
        peak_tflops=312.0,
        bandwidth_gbps=1555.5,
        m_sat=1024,
        server_args=("--mem-fraction-static", "0.8"),
        server_env={"THREADS": "1"},
    )


def test_the_shipped_profiles() -> None:
    assert {"cpu", "a100_40gb", "h200"} <= set(shipped_profiles())
    a100 = find_profile("a100_40gb")
    assert (a100.m_sat, a100.peak_tflops, a100.bandwidth_gbps) == (1024, 312.0, 1555.0)
    cpu = find_profile("cpu")
    assert cpu.m_sat == 8
    assert cpu.peak_tflops is cpu.bandwidth_gbps is None
    assert "by choice" in cpu.measured["source"]
    assert cpu.server_env["SGLANG_USE_CPU_ENGINE"] == "1"


@pytest.mark.parametrize("name", sorted(shipped_profiles()))
def test_a_shipped_profile_is_plain_data_under_its_own_name(name: str) -> None:
    path = shipped_profiles()[name]
    profile = load_profile(path)
    assert profile.name == name
    assert set(profile.measured) >= {"by", "when", "source"}
    json.dumps(yaml.safe_load(path.read_text(encoding="utf-8")))  # no dates: the harness needs JSON


def test_an_unfitted_threshold_says_what_to_run() -> None:
    unfitted = HardwareProfile("new", "cuda", "a new device")
    with pytest.raises(ProfileError, match=r"'new' has no M_sat.*granikv calibrate --device cuda"):
        unfitted.m_sat_or_raise()
    assert find_profile("cpu").m_sat_or_raise() == 8


def test_an_unknown_name_lists_the_known() -> None:
    for name in ("h900", "../hardware/cpu", ""):
        with pytest.raises(ProfileError, match=r"there are: .*cpu, .*h200"):
            find_profile(name)


def test_the_packaged_copy_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged, repository = tmp_path / "profiles", tmp_path / "conf"
    for directory, m_sat in ((packaged, 7), (repository, 9)):
        directory.mkdir()
        text = VALID.replace("m_sat: 1024", f"m_sat: {m_sat}")
        (directory / "one.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setattr("granikv.hardware._SHIPPED", (packaged, repository))
    assert find_profile("one").m_sat == 7
    (packaged / "one.yaml").unlink()
    assert find_profile("one").m_sat == 9


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("m_sat: 1024", "m_sat: 0", "m_sat must be a whole number from 1 or null, not 0"),
        ("m_sat: 1024", "m_sat: true", "not True"),
        ("m_sat: 1024", "m_sat: 10.5", "not 10.5"),
        ("m_sat: 1024", "m_set: 8", "the key 'm_sat' is missing"),
        ("device: cuda", "device: tpu", "device must be cpu or cuda, not 'tpu'"),
        ("device: cuda\n", "", "the key 'device' is missing"),
        ("name: test\n", "", "the key 'name' is missing"),
        ("name: test", "name: 7", "name must be text, not 7"),
        ("312", "-1", "peak_tflops must be a positive number or null, not -1"),
        ("1555.5", ".nan", "bandwidth_gbps must be a positive number or null, not nan"),
        ("1555.5", ".inf", "not inf"),
        ("1555.5", "fast", "not 'fast'"),
        ("{m_sat: 1024}", "1024", "dispatch must hold keys and values"),
        ("[--mem-fraction-static, 0.8]", "--device cpu", "server.args must be a list"),
        ("name: test", "name: [", "is not valid YAML at line"),
        ("name: test", "name: test\n\x00", "is not valid YAML"),
        (VALID, "", "the file must hold keys and values"),
        (VALID, "- 1", "the file must hold keys and values"),
    ],
)
def test_a_bad_profile_is_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = _file(tmp_path, VALID.replace(old, new))
    with pytest.raises(ProfileError) as caught:
        load_profile(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unreadable_files_are_one_line(tmp_path: Path) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, reason in (
        (tmp_path / "absent.yaml", "No such file"),
        (tmp_path, "Is a directory"),
        (binary, "not UTF-8"),
    ):
        with pytest.raises(ProfileError, match=rf"cannot read hardware profile .*{reason}"):
            load_profile(path)


def test_written_profiles_read_back(tmp_path: Path) -> None:
    profile = load_profile(_file(tmp_path, VALID))
    for changed in (profile, dataclasses.replace(profile, m_sat=None, peak_tflops=None)):
        write_profile(changed, tmp_path / "out.yaml")
        assert load_profile(tmp_path / "out.yaml") == changed
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.yaml", "profile.yaml"]


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    profile = load_profile(_file(tmp_path, VALID))
    with pytest.raises(ProfileError, match="cannot write hardware profile"):
        write_profile(profile, tmp_path / "absent" / "out.yaml")
    (tmp_path / "taken.yaml").mkdir()
    with pytest.raises(ProfileError, match="cannot write hardware profile"):
        write_profile(profile, tmp_path / "taken.yaml")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["profile.yaml", "taken.yaml"]
