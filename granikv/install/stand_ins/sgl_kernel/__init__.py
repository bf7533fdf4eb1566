"""CPU stand-in for the compiled ``sgl_kernel`` package, which has no build without AMX.

SGLang imports these names when ``SGLANG_USE_CPU_ENGINE=1``. The request-to-token
bookkeeping is implemented; speculative decoding, which GraniKV refuses, raises.
``torch.ops.sgl_kernel.convert_weight_packed`` must stay undefined: SGLang takes its
presence for AMX.
"""

from collections.abc import Callable, Iterator
from typing import Any

__version__ = "0.0.0"

_SPECULATIVE_ONLY = (
    "assign_draft_cache_locs_contiguous_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
)


def _ranges(rows: Any, starts: Any, ends: Any) -> Iterator[tuple[int, slice, slice]]:
    """Per request: its row, its token range [start, end), and that range in the flat batch."""
    offset = 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        length = end - start
        yield row, slice(start, end), slice(offset, offset + length)
        offset += length


def assign_req_to_token_pool_cpu(
    rows: Any, req_to_token: Any, starts: Any, ends: Any, slots: Any, row_length: int
) -> None:
    """Write each request's new slots [sum of lengths] into its row of req_to_token [rows, tokens].

    ``row_length`` is the compiled kernel's stride argument; a tensor knows its own.
    """
    for row, tokens, flat in _ranges(rows, starts, ends):
        req_to_token[row, tokens] = slots[flat].to(req_to_token.dtype)


def assign_extend_cache_locs_cpu(
    rows: Any, req_to_token: Any, starts: Any, ends: Any, slots: Any, row_length: int
) -> None:
    """Read each request's token range of req_to_token [rows, tokens] into the flat slots."""
    for row, tokens, flat in _ranges(rows, starts, ends):
        slots[flat] = req_to_token[row, tokens].to(slots.dtype)


def _refusing(name: str) -> Callable[..., None]:
    def refuse(*_args: Any, **_kwargs: Any) -> None:
        raise NotImplementedError(f"sgl_kernel.{name}: speculative decoding has no CPU stand-in")

    refuse.__name__ = name
    return refuse


globals().update({name: _refusing(name) for name in _SPECULATIVE_ONLY})
