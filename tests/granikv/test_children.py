"""The children of a step compute the same attention, and their scenes are what they say.

The fused ones run compiled on a GPU; on a CPU `test_interpreted.py` runs them through Triton's
interpreter.
"""

from __future__ import annotations

import pytest
import torch

from granikv.attention.reference import attend
from granikv.bench.children import (
    Arena,
    Child,
    Scene,
    composition,
    fused_children,
    reads_of,
    torch_children,
)
from granikv.cost import Geometry
from tests.granikv.interpreter import interpreted_only

TINY = Geometry(2, 2, 16, 16, 4)
CASES = [(6, 5, [70, 33]), (3, 7, []), (1, 3, [40]), (5, 2, [9, 0])]


def _arena(device: str = "cpu", geometry: Geometry = TINY) -> Arena:
    dtype = torch.float32 if geometry.element_bytes == 4 else torch.bfloat16
    return Arena(
        geometry, dtype, torch.device(device), slots=400, rows=6, context=256, l2_bytes=4000
    )


def _reference(scene: Scene) -> torch.Tensor:
    scale = scene.q.shape[2] ** -0.5
    outs = []
    for row, length in enumerate(scene.lens):
        slots = scene.table[row, :length].long()
        k, v = scene.k[1][slots].float(), scene.v[1][slots].float()
        outs.append(attend(scene.q[row : row + 1].float(), k, v, scale).out)
    return torch.cat(outs)


def _error(child: Child, scene: Scene, share: bool) -> float:
    plan = scene.plan if share else scene.plan.without(range(len(scene.plan.segments)))
    scene.out.fill_(torch.nan)
    returned = child.prepare(scene, plan)(1)
    out = returned if isinstance(returned, torch.Tensor) else scene.out
    expected = _reference(scene)
    return ((out.float() - expected).abs().max() / expected.abs().max()).item()


@pytest.mark.parametrize("sizes", CASES)
@pytest.mark.parametrize("share", [True, False])
def test_torch_children(sizes: tuple[int, int, list[int]], share: bool) -> None:
    arena = _arena()
    scene, found = arena.scene(composition(*sizes, TINY)), torch_children(arena)
    for child in (*found.stock.values(), *found.sharing.values()):
        assert _error(child, scene, share) < 1e-5


@interpreted_only
@pytest.mark.parametrize("sizes", CASES[:2])
def test_fused_children_interpreted(sizes: tuple[int, int, list[int]]) -> None:
    arena = _arena()
    found, scene = fused_children(arena), arena.scene(composition(*sizes, TINY))
    assert set(found.stock) == {"own"}
    assert set(found.sharing) == {"dense"}
    assert set(found.missing) == {"cascade"}, "FlashInfer is not installed here"
    for child in (*found.stock.values(), *found.sharing.values()):
        assert _error(child, scene, share=True) < 1e-5
        assert _error(child, scene, share=False) < 1e-5


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("sizes", CASES)
def test_every_child_on_a_gpu(sizes: tuple[int, int, list[int]]) -> None:
    geometry = Geometry(2, 4, 128, 128, 2)
    arena = _arena("cuda", geometry)
    found, scene = fused_children(arena), arena.scene(composition(*sizes, geometry))
    for child in (*found.stock.values(), *found.sharing.values()):
        assert _error(child, scene, share=True) < 1e-2
        assert _error(child, scene, share=False) < 1e-2


def test_a_scene_is_its_case() -> None:
    case = composition(7, 4, [30, 20], TINY)
    assert [(r.first, r.rows, r.length) for r in case.reads] == [(0, 3, 30), (3, 4, 20)]
    arena = Arena(TINY, torch.float32, torch.device("cpu"), slots=100, rows=8, context=64)
    scene = arena.scene(case)
    assert scene.lens == [34] * 3 + [24] * 4
    assert scene.plan.covered == 30 * 3 + 20 * 4
    own = [scene.table[row, n - 4 : n] for row, n in enumerate(scene.lens)]
    assert len(set(torch.cat(own).tolist())) == 28, "no two rows share a slot of their own"
    assert int(torch.cat(own).min()) == 51
    reads = reads_of(case)
    assert (reads.own, reads.lengths.tolist(), reads.readers.tolist()) == (28, [30, 20], [3, 4])


def test_layers_take_turns_over_more_than_the_l2() -> None:
    l2 = 1_000_000
    arena = Arena(
        TINY, torch.float32, torch.device("cpu"), slots=2000, rows=8, context=1100, l2_bytes=l2
    )
    for rows, suffix, lengths in [(8, 50, [1000]), (1, 100, [500]), (8, 100, [1000])]:
        scene = arena.scene(composition(rows, suffix, lengths, TINY))
        used = sum(k.numel() + v.numel() for k, v in zip(scene.k, scene.v, strict=True)) * 4
        assert used >= 2.9 * l2
        starts = [k.data_ptr() for k in scene.k]
        assert len(set(starts)) == len(starts) >= 2
