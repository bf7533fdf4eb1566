"""What a tree costs the scheduler for each request: `python -m granikv.engine.tree_bench`.

Requests arrive in batches behind one cached prefix and end in order of arrival, a number of them
live at any time, on SGLang's own allocator and page table, without a model. Timed is the host, by
which the next forward is delayed: SGLang's own tree, and GraniKV's under two admission policies.
Printed as JSON: median and mean of the second half, in microseconds a request. The defaults run on
the CPU; with the KV pool of Llama-3.1-8B on an H200: `--device cuda --capacity 845617 --layers 32
--heads 8 --width 128`.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from granikv.config import GraniKVConfig

STOCK = "stock"
POLICIES = ("eager", "on_share")
VOCABULARY = 100_000


class Request:
    """The part of SGLang's Req that a tree reads."""

    extra_key = None
    priority = 0
    sampling_params = SimpleNamespace(custom_params=None)

    def __init__(self, number: int, prompt: array[int]) -> None:
        self.rid = str(number)
        self.origin_input_ids = prompt
        self.output_ids = array("q")
        self.prefix_indices = torch.empty(0, dtype=torch.int64)
        self.last_node: Any = None
        self.cache_protected_len = 0
        self.req_pool_idx: int | None = None
        self.kv: Any = None

    def get_fill_ids(self) -> array[int]:
        """All tokens: the prompt is never cut into chunks here."""
        return self.origin_input_ids + self.output_ids


class Bench:
    """One tree under the load.

    Args:
        options: what `_parser` reads.
        admission: a policy of GraniKV, or `STOCK` for SGLang's own tree.
    """

    def __init__(self, options: argparse.Namespace, admission: str) -> None:
        self._options = options
        self._tokens = random.Random(0)
        self._number = 0
        self._live: deque[Request] = deque()
        self._taken: dict[str, list[float]] = defaultdict(list)
        self._tree = _tree(options, admission)
        self._allocator = self._tree.token_to_kv_pool_allocator
        self._rows = self._tree.req_to_token_pool
        self._relocates = admission != STOCK
        self._head = self._draw(options.prefix)

    def run(self) -> dict[str, Any]:
        """Serve the requests; microseconds a request by operation, and GraniKV's counters."""
        self._finish(self._arrive(1)[0])
        self._taken.clear()
        for _ in range(-(-self._options.requests // self._options.batch)):
            self._live.extend(self._arrive(self._options.batch))
            while len(self._live) > self._options.live:
                self._finish(self._live.popleft())
        times = {
            name: {"median_us": _us(statistics.median(late)), "mean_us": _us(statistics.mean(late))}
            for name, taken in self._taken.items()
            for late in [taken[len(taken) // 2 :]]
        }
        counters = self._tree.counters.as_dict() if self._relocates else None
        return {"times": times, "counters": counters}

    def _arrive(self, count: int) -> list[Request]:
        batch = [self._request() for _ in range(count)]
        for req in batch:
            self._timed("match", self._match, req)
        for req in batch:
            self._fill(req)
        if self._relocates:
            mode = SimpleNamespace(is_extend=lambda: True)
            step = SimpleNamespace(reqs=batch, forward_mode=mode)
            self._timed("relocate", self._tree.relocate_marked, step, share=count)
        for req in batch:
            self._timed("cache_unfinished", self._tree.cache_unfinished_req, req)
        return batch

    def _match(self, req: Request) -> None:
        from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams
        from sglang.srt.mem_cache.radix_cache import RadixKey

        # The last token is always computed anew.
        key = RadixKey(req.origin_input_ids[:-1], req.extra_key)
        found = self._tree.match_prefix(MatchPrefixParams(key=key, req=req))
        req.prefix_indices, req.last_node = found.device_indices, found.last_device_node
        req.cache_protected_len = len(req.prefix_indices)
        self._tree.inc_lock_ref(req.last_node)

    def _fill(self, req: Request) -> None:
        length, known = len(req.origin_input_ids), len(req.prefix_indices)
        slots = self._slots(length - known)
        req.req_pool_idx = self._rows.free_slots.pop()
        self._rows.write((req.req_pool_idx, slice(0, known)), req.prefix_indices.int())
        self._rows.write((req.req_pool_idx, slice(known, length)), slots.int())
        req.kv = SimpleNamespace(kv_allocated_len=length)

    def _finish(self, req: Request) -> None:
        start = len(req.get_fill_ids())
        req.output_ids = self._draw(self._options.output)
        stop = len(req.get_fill_ids())
        self._rows.write((req.req_pool_idx, slice(start, stop)), self._slots(stop - start).int())
        finish = self._tree.cache_finished_req
        self._timed("cache_finished", lambda: finish(req, True, kv_len_to_handle=stop))
        self._rows.free_slots.append(req.req_pool_idx)

    def _slots(self, count: int) -> torch.Tensor:
        from sglang.srt.mem_cache.base_prefix_cache import EvictParams

        lacking = count - int(self._allocator.available_size())
        if lacking > 0:
            self._timed("evict", self._tree.evict, EvictParams(num_tokens=lacking))
        slots: torch.Tensor | None = self._allocator.alloc(count)
        if slots is None:
            raise SystemExit("tree_bench: the requests do not fit; raise --capacity")
        return slots

    def _timed(self, name: str, call: Callable[..., Any], *args: Any, share: int = 1) -> None:
        start = time.perf_counter()
        call(*args)
        self._taken[name].append((time.perf_counter() - start) / share)

    def _request(self) -> Request:
        self._number += 1
        return Request(self._number, self._head + self._draw(self._options.suffix))

    def _draw(self, count: int) -> array[int]:
        return array("q", (self._tokens.randrange(VOCABULARY) for _ in range(count)))


def _tree(options: argparse.Namespace, admission: str) -> Any:
    from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
    from sglang.srt.mem_cache.cache_init_params import CacheInitParams
    from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, ReqToTokenPool
    from sglang.srt.mem_cache.radix_cache import RadixCache

    from granikv.engine.nodes import extend_tree_nodes
    from granikv.engine.tree import GraniKVRadixCache

    at, dtype = options.device, torch.bfloat16
    kv_cache = MHATokenToKVPool(
        options.capacity, 1, dtype, options.heads, options.width, options.layers, at, False
    )
    context = options.prefix + options.suffix + options.output
    params = CacheInitParams(
        disable=False,
        req_to_token_pool=ReqToTokenPool(options.live + options.batch, context, at, False),
        token_to_kv_pool_allocator=TokenToKVPoolAllocator(
            options.capacity, dtype=dtype, device=at, kvcache=kv_cache, need_sort=False
        ),
        page_size=1,
    )
    if admission == STOCK:
        return RadixCache(params)
    extend_tree_nodes()
    return GraniKVRadixCache(params, GraniKVConfig(admission=admission))


def main(argv: Sequence[str] | None = None) -> int:
    """Print one JSON document."""
    options = _parser().parse_args(argv)
    results = {}
    for admission in (STOCK, *POLICIES):
        print(f"tree_bench: {admission}", file=sys.stderr)
        results[admission] = Bench(options, admission).run()
    print(json.dumps({"bench": "tree", "options": vars(options), "results": results}))
    return 0


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--device", default="cpu")
    add("--capacity", type=int, default=400_000, help="slots of the KV cache")
    add("--layers", type=int, default=1)
    add("--heads", type=int, default=1, help="KV heads")
    add("--width", type=int, default=8, help="of a head")
    add("--prefix", type=int, default=8192, help="tokens that all prompts share")
    add("--suffix", type=int, default=128, help="tokens of each prompt's own")
    add("--output", type=int, default=16, help="tokens of each reply")
    add("--live", type=int, default=256, help="requests at a time")
    add("--batch", type=int, default=8, help="requests that arrive together")
    add("--requests", type=int, default=2048)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
