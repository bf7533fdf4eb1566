"""The CPU stand-ins do what the compiled functions do, and refuse the rest."""

import importlib.util
from types import ModuleType

import pytest

from tests.project.paths import ROOT

torch = pytest.importorskip("torch")

STAND_INS = ROOT / "granikv" / "install" / "stand_ins"


@pytest.fixture(scope="module")
def sgl_kernel() -> ModuleType:
    """The stand-in under a name of its own: the real one may be installed."""
    path = STAND_INS / "sgl_kernel" / "__init__.py"
    spec = importlib.util.spec_from_file_location("stand_in_sgl_kernel", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_new_slots_land_in_their_rows(sgl_kernel: ModuleType) -> None:
    table = torch.zeros(3, 6, dtype=torch.int32)
    rows, starts, ends = torch.tensor([2, 0]), torch.tensor([1, 0]), torch.tensor([4, 2])
    slots = torch.tensor([11, 12, 13, 21, 22])
    sgl_kernel.assign_req_to_token_pool_cpu(rows, table, starts, ends, slots, 6)
    assert table.tolist() == [[21, 22, 0, 0, 0, 0], [0] * 6, [0, 11, 12, 13, 0, 0]]


def test_slots_are_read_back_in_batch_order(sgl_kernel: ModuleType) -> None:
    table = torch.arange(12, dtype=torch.int32).reshape(2, 6)
    rows, starts, ends = torch.tensor([1, 0]), torch.tensor([2, 0]), torch.tensor([4, 1])
    slots = torch.zeros(3, dtype=torch.int64)
    sgl_kernel.assign_extend_cache_locs_cpu(rows, table, starts, ends, slots, 6)
    assert slots.tolist() == [8, 9, 0]


def test_an_empty_range_moves_nothing(sgl_kernel: ModuleType) -> None:
    table = torch.full((1, 3), 7, dtype=torch.int32)
    one = torch.tensor([1])
    sgl_kernel.assign_req_to_token_pool_cpu(
        torch.tensor([0]), table, one, one, torch.tensor([], dtype=torch.int64), 3
    )
    assert table.tolist() == [[7, 7, 7]]


def test_speculative_decoding_is_refused_by_name(sgl_kernel: ModuleType) -> None:
    with pytest.raises(NotImplementedError, match="verify_tree_greedy_cpu"):
        sgl_kernel.verify_tree_greedy_cpu()


def test_nothing_looks_like_amx(sgl_kernel: ModuleType) -> None:
    assert not hasattr(sgl_kernel, "convert_weight_packed")
