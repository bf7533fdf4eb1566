"""Which backends and which rule a server gets, by device, model and hardware profile."""

from __future__ import annotations

from pathlib import Path

import pytest

from granikv.config import ConfigError, GraniKVConfig
from granikv.cost import Geometry
from granikv.dispatch import CASCADE, DENSE, Forced, SaturationRule
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


def test_the_papers_rule_needs_both_of_its_backends() -> None:
    config = GraniKVConfig(hardware="a100_40gb", rule="saturation")
    with pytest.raises(ProfileError, match="cascade"):
        adapters.rule_for(config, "cuda", LLAMA, "fa3", (DENSE,))


def test_the_cascade_serves_two_byte_types_of_one_width() -> None:
    assert children.serves(CASCADE, LLAMA)
    assert not children.serves(CASCADE, LLAMA._replace(element_bytes=4))
    assert not children.serves(CASCADE, LLAMA._replace(d_v=64))
    assert children.serves(DENSE, LLAMA._replace(element_bytes=4))
