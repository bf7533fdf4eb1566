"""Which backends and which rule a server gets, by device, model and hardware profile."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from granikv.config import ConfigError, GraniKVConfig
from granikv.cost import Geometry
from granikv.dispatch import CASCADE, DENSE, HYDRAGEN, Forced, SaturationRule
from granikv.engine import adapters
from granikv.engine.gpu import children
from granikv.hardware import ProfileError

LLAMA = Geometry(8, 4, 128, 128, 2)


@pytest.mark.parametrize(
    ("backend", "on_gpu"), [("hydragen", False), ("contiguous_unshared", True)]
)
def test_a_backend_of_the_other_device_is_refused(backend: str, on_gpu: bool) -> None:
    with pytest.raises(ConfigError, match=f"{backend} does not run on a [CG]PU; choose one of"):
        adapters.sharing_backends(GraniKVConfig(backend=backend), on_gpu)


@pytest.mark.parametrize("backend", ["dense", "cascade", "hydragen"])
def test_a_forced_backend_is_the_only_one_beside_paged(backend: str) -> None:
    config = GraniKVConfig(backend=backend)
    sharing = adapters.sharing_backends(config, on_gpu=True)
    rule = adapters.rule_for(config, "cuda", LLAMA, "fa3", sharing)
    assert isinstance(rule, Forced)
    assert rule.sharing() == (backend,)
    assert adapters.sharing_backends(GraniKVConfig(backend="paged"), on_gpu=True) == ()


def test_the_cpu_dispatches_by_the_paper(tmp_path: Path) -> None:
    config = GraniKVConfig()
    rule = adapters.rule_for(config, "cpu", LLAMA, "torch_native", (CASCADE, DENSE))
    assert isinstance(rule, SaturationRule)
    with pytest.raises(ProfileError, match="calibrate"):
        adapters.check_rule(GraniKVConfig(rule="cost", hardware="a100_40gb"), "cuda")
    with pytest.raises(ProfileError, match="nowhere"):
        adapters.check_rule(GraniKVConfig(hardware=str(tmp_path / "nowhere.yaml")), "cuda")


def test_a_profile_of_another_kind_of_device_is_refused() -> None:
    with pytest.raises(ProfileError, match="'cpu' is one of cpu, and this engine runs on cuda"):
        adapters.check_rule(GraniKVConfig(hardware="cpu"), "cuda")


@pytest.mark.parametrize(
    ("title", "profile"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-40GB", "a100_40gb"),
        ("NVIDIA GH200 480GB", "nvidia gh200 480gb"),
        ("NVIDIA H200 MIG 1g.18gb", "nvidia h200 mig 1g.18gb"),
    ],
)
def test_a_device_is_known_by_whole_words(
    title: str, profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: title)
    assert adapters._profile_name("cuda") == profile


def test_the_papers_rule_needs_both_of_its_backends() -> None:
    config = GraniKVConfig(hardware="a100_40gb", rule="saturation")
    with pytest.raises(ProfileError, match="cascade"):
        adapters.rule_for(config, "cuda", LLAMA, "fa3", (DENSE,))


def test_the_cascade_serves_two_byte_types_of_one_width() -> None:
    assert not children.lacks(CASCADE, LLAMA)
    assert "16-bit" in children.lacks(CASCADE, LLAMA._replace(element_bytes=4))
    assert "width 128 for K and 64" in children.lacks(CASCADE, LLAMA._replace(d_v=64))
    assert children.lacks(CASCADE, LLAMA._replace(d=96, d_v=96))


@pytest.mark.parametrize("name", [DENSE, HYDRAGEN])
def test_our_kernels_take_groups_of_16_and_widths_of_powers_of_two(name: str) -> None:
    assert not children.lacks(name, LLAMA._replace(element_bytes=4, group=16, d_v=64))
    assert "71 query heads share a KV head" in children.lacks(name, LLAMA._replace(group=71))
    assert "powers of two from 16, not 96" in children.lacks(name, LLAMA._replace(d=96, d_v=96))


def test_a_model_that_no_backend_serves_is_refused() -> None:
    assert adapters.serving({CASCADE: "", DENSE: "too wide"}) == (CASCADE,)
    assert adapters.serving({}) == (), "paged was asked for"
    with pytest.raises(ConfigError, match=r"no attention for this model \(dense: too wide\)"):
        adapters.serving({DENSE: "too wide"})
