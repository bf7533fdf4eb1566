"""A Hypothesis state machine over the tree, the pools and SGLang's own allocator, without a server.

It plays the scheduler: requests are matched, allocated, prefilled in chunks, decoded, finished,
aborted, retracted; the cache is evicted and flushed. After each step the accounting check looks at
every slot, and the KV of every live row is compared with what was written for its tokens: each slot
holds its token's own number, so that a row that points anywhere else is seen.
"""

from __future__ import annotations

from array import array
from collections import Counter
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

pytest.importorskip("sglang", reason="the engine is not installed: run `make setup`")

from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.radix_cache import RadixKey

from granikv.config import GraniKVConfig
from granikv.engine import cpu
from granikv.engine.nodes import extend_tree_nodes
from granikv.engine.tree import GraniKVRadixCache
from granikv.planner import Planner
from granikv.prefix_index import path_of

CAPACITY = 256
CONTEXT = 160
ROWS = 8
ALPHABET = st.integers(1, 3)
LONG_PROMPTS = st.lists(st.integers(1, 2), min_size=20, max_size=90) | st.lists(
    st.integers(1, 50), min_size=20, max_size=120
)
PROMPTS = st.lists(ALPHABET, min_size=1, max_size=60)


class KvCache:
    """One layer's K and V, one number a slot: the number that was written for its token."""

    def __init__(self, page_size: int) -> None:
        self.k_buffer = [torch.zeros(CAPACITY + page_size, dtype=torch.float32)]
        self.v_buffer = [torch.zeros(CAPACITY + page_size, dtype=torch.float32)]


class Rows:
    """The page table and its free rows, as SGLang's ReqToTokenPool keeps them."""

    def __init__(self) -> None:
        self.req_to_token = torch.zeros((ROWS + 1, CONTEXT), dtype=torch.int32)
        self.free = list(range(1, ROWS + 1))

    def write(self, indices: Any, values: torch.Tensor) -> None:
        self.req_to_token[indices] = values.to(torch.int32)


class Request:
    """The part of SGLang's Req that the tree reads."""

    def __init__(self, rid: str, prompt: list[int]) -> None:
        self.rid = rid
        self.origin_input_ids = array("q", prompt)
        self.output_ids = array("q")
        self.extra_key = None
        self.priority = 0
        self.sampling_params = SimpleNamespace(custom_params=None)
        self.prefix_indices = torch.empty(0, dtype=torch.int64)
        self.last_node: Any = None
        self.cache_protected_len = 0
        self.req_pool_idx: int | None = None
        self.kv: Any = None
        self.filled = 0

    def get_fill_ids(self) -> array[int]:
        return (self.origin_input_ids + self.output_ids)[: self.filled]


def fingerprint(tokens: array[int]) -> torch.Tensor:
    """A number for each position that depends on all tokens up to it, as KV does."""
    values, hashed = [], 7
    for token in tokens:
        hashed = (hashed * 31 + token) % 8_388_593
        values.append(float(hashed))
    return torch.tensor(values)


def make_tree(page_size: int, config: GraniKVConfig) -> GraniKVRadixCache:
    extend_tree_nodes()
    kv_cache = KvCache(page_size)
    common = {"dtype": torch.float32, "device": "cpu", "kvcache": kv_cache, "need_sort": False}
    allocator: Any
    if page_size == 1:
        allocator = TokenToKVPoolAllocator(CAPACITY, **common)
    else:
        allocator = cpu.torch_paged_allocator()(CAPACITY, page_size=page_size, **common)
    params = CacheInitParams(
        disable=False,
        req_to_token_pool=Rows(),
        token_to_kv_pool_allocator=allocator,
        page_size=page_size,
    )
    return GraniKVRadixCache(params, config)


class TreeMachine(RuleBasedStateMachine):
    """One rank's scheduler, as far as the tree can tell."""

    def __init__(self) -> None:
        super().__init__()
        self.serial = 0
        self.pinned = 0
        self.prefilling: list[Request] = []
        self.decoding: list[Request] = []

    @initialize(
        page_size=st.sampled_from([1, 4, 16]),
        admission=st.sampled_from(["eager", "on_share", "pinned"]),
        eviction=st.sampled_from(["lru", "hotness"]),
        hot_fraction=st.sampled_from([0.0, 0.1, 0.3, 0.6]),
        min_tokens=st.sampled_from([4, 16]),
    )
    def start(self, page_size: int, **choices: Any) -> None:
        self.page = page_size
        self.tree = make_tree(page_size, GraniKVConfig(checks=True, pin_budget=0.6, **choices))
        self.planner: Planner | None = None

    met: ClassVar[Counter[str]] = Counter()

    def teardown(self) -> None:
        """Add up what the storage layer was made to do."""
        if hasattr(self, "tree"):
            self.met.update(self.tree.counters.as_dict())

    # -- the scheduler's moves -----------------------------------------------------------------

    @rule(prompt=PROMPTS, again=st.integers(0, 3), chunk=st.sampled_from([8, 16, 64]))
    def arrive(self, prompt: list[int], again: int, chunk: int) -> None:
        """A request arrives, often behind the prompt of another, and prefills its first chunk."""
        if not self._pool().free:
            return
        req = self._request(prompt, again)
        if not self._extend([req], [chunk]):
            self.tree.dec_lock_ref(req.last_node)

    @rule(prompt=LONG_PROMPTS, again=st.integers(0, 3), chunk=st.sampled_from([16, 64, 160]))
    def arrive_long(self, prompt: list[int], again: int, chunk: int) -> None:
        """A prompt that can be longer than HOT, or than COLD's own half."""
        self.arrive(prompt, again, chunk)

    @rule(prompt=LONG_PROMPTS, again=st.integers(0, 3))
    def prime(self, prompt: list[int], again: int) -> None:
        """A request that ends with its prefill: it is finished without ever being unfinished."""
        if not self._pool().free:
            return
        req = self._request(prompt, again)
        if not self._room(len(req.origin_input_ids) + self.page):
            self.tree.dec_lock_ref(req.last_node)
            return
        self._fill(req, len(req.origin_input_ids))
        self._forward([req], decode=False)
        self._release(req, insert=True)

    @rule(prompt=LONG_PROMPTS)
    def pin(self, prompt: list[int]) -> None:
        """A prefix is declared, often one that is in use."""
        if len(self.tree.pins.as_dicts()) < 4:
            self.pinned += 1
            known = [*self.prefilling, *self.decoding]
            tokens = known[0].origin_input_ids if known else array("q", prompt)
            self.tree.pins.declare(self.pinned, tokens, None)
            self.tree.pins.arm()

    @rule(back=st.integers(0, 4))
    def unpin(self, back: int) -> None:
        """A declared prefix is released."""
        self.tree.pins.release(self.pinned - back)

    @rule(chunk=st.sampled_from([8, 16, 64]))
    @precondition(lambda self: self.prefilling)
    def prefill_on(self, chunk: int) -> None:
        """The next chunk of a prompt."""
        self._extend([self.prefilling[0]], [chunk])

    @rule()
    @precondition(lambda self: self.decoding)
    def decode(self) -> None:
        """One decode step of all rows."""
        batch = [r for r in self.decoding if r.filled < CONTEXT - 1]
        if not batch or not self._room(len(batch) * self.page):
            return
        for req in batch:
            req.output_ids.append(1 + req.filled % 3)
            self._grow(req, req.filled + 1)
        self._forward(batch, decode=True)

    @rule(at=st.integers(0, 7), insert=st.booleans())
    @precondition(lambda self: self.decoding)
    def finish(self, at: int, insert: bool) -> None:
        """A request finishes, or is aborted or retracted without insertion."""
        self._release(self.decoding.pop(at % len(self.decoding)), insert)

    @rule(insert=st.booleans())
    @precondition(lambda self: self.prefilling)
    def abort_in_prefill(self, insert: bool) -> None:
        """A request is cancelled between two chunks."""
        self._release(self.prefilling.pop(), insert)

    @rule(tokens=st.integers(1, CAPACITY))
    def evict(self, tokens: int) -> None:
        """Memory pressure: what `evictable_size` promises, `evict` delivers."""
        promised = self.tree.evictable_size()
        before = self.tree.token_to_kv_pool_allocator.available_size()
        self.tree.evict(EvictParams(num_tokens=tokens))
        gained = self.tree.token_to_kv_pool_allocator.available_size() - before
        assert gained >= min(tokens, promised)

    @rule(sure=st.integers(0, 7))
    @precondition(lambda self: not self.prefilling and not self.decoding)
    def flush(self, sure: int) -> None:
        """All caches are emptied, as the engine does it when idle; seldom, to keep a history."""
        if sure:
            return
        self.tree.reset()
        self.tree.token_to_kv_pool_allocator.clear()

    # -- what must hold ------------------------------------------------------------------------

    @invariant()
    def every_slot_is_in_one_place(self) -> None:
        if hasattr(self, "tree"):
            assert self.tree.checks is not None
            self.tree.checks.audit()

    @invariant()
    def the_engines_own_equation_holds(self) -> None:
        if not hasattr(self, "tree"):
            return
        uncached = sum(
            -(-r.filled // self.page) * self.page - r.cache_protected_len
            for r in (*self.prefilling, *self.decoding)
        )
        available = self.tree.token_to_kv_pool_allocator.available_size()
        total = available + self.tree.evictable_size() + self.tree.protected_size() + uncached
        assert total == CAPACITY

    @invariant()
    def every_row_reads_its_own_tokens(self) -> None:
        for req in (*self.prefilling, *self.decoding):
            slots = self._pool().req_to_token[req.req_pool_idx, : req.filled].long()
            expected = fingerprint(req.get_fill_ids())
            for buffer in (*self._kv().k_buffer, *self._kv().v_buffer):
                assert torch.equal(buffer[slots], expected), req.rid

    @invariant()
    def the_plan_reads_each_token_once_and_from_its_row(self) -> None:
        if not self.decoding:
            return
        if self.planner is None or self.planner._index is not self.tree.index:
            self.planner = Planner(self.tree.index)
        plan = self.planner.plan([r.last_node for r in self.decoding])
        covered = [[0] * r.filled for r in self.decoding]
        for row, (req, ranges) in enumerate(zip(self.decoding, plan.paged, strict=True)):
            for start, stop in ranges:
                for position in range(start, req.filled if stop is None else stop):
                    covered[row][position] += 1
        for segment in plan.segments:
            assert segment.base is not None
            for row in segment.rows:
                req = self.decoding[row]
                span = slice(segment.p0, segment.p0 + segment.length)
                slots = self._pool().req_to_token[req.req_pool_idx, span].tolist()
                assert slots == list(range(segment.base, segment.base + segment.length))
                for position in range(segment.p0, segment.p0 + segment.length):
                    covered[row][position] += 1
        assert all(count == 1 for row in covered for count in row)

    # -- how the engine does it ----------------------------------------------------------------

    def _request(self, prompt: list[int], again: int) -> Request:
        """A request that has been matched and locked, as the engine admits one."""
        self.serial += 1
        known = [*self.prefilling, *self.decoding]
        if again and known:
            prompt = (list(known[self.serial % len(known)].origin_input_ids) + prompt)[:90]
        req = Request(f"r{self.serial}", prompt)
        key = RadixKey(req.origin_input_ids, limit=len(prompt) - 1)
        found = self.tree.match_prefix(MatchPrefixParams(key=key, req=req))
        req.prefix_indices, req.last_node = found.device_indices, found.last_device_node
        req.cache_protected_len = len(req.prefix_indices)
        self.tree.inc_lock_ref(req.last_node)
        return req

    def _fill(self, req: Request, stop: int) -> None:
        """A row for the request, its cached slots in it, and slots up to ``stop``."""
        if req.req_pool_idx is None:
            req.req_pool_idx = self._pool().free.pop()
        cached = len(req.prefix_indices)
        self._pool().write((req.req_pool_idx, slice(0, cached)), req.prefix_indices)
        req.filled = cached
        self._grow(req, stop)

    def _extend(self, batch: list[Request], chunks: list[int]) -> bool:
        """Allocate, write rows, run the forward, insert; whether there was room."""
        stops = [
            min(len(r.origin_input_ids), len(r.prefix_indices) + c)
            for r, c in zip(batch, chunks, strict=True)
        ]
        if not self._room(sum(stops) + len(batch) * self.page):
            return False
        for req, stop in zip(batch, stops, strict=True):
            self._fill(req, stop)
        self._forward(batch, decode=False)
        for req in batch:
            unfinished = req.filled < len(req.origin_input_ids)
            self.tree.cache_unfinished_req(req, chunked=unfinished)
            for room in (self.prefilling, self.decoding):
                if req in room:
                    room.remove(req)
            (self.prefilling if unfinished else self.decoding).append(req)
        return True

    def _grow(self, req: Request, stop: int) -> None:
        """Slots for the tokens up to ``stop``, in the row."""
        allocator, row = self.tree.token_to_kv_pool_allocator, self._pool().req_to_token
        assert req.req_pool_idx is not None
        start, req.filled = req.filled, stop
        if self.page == 1:
            slots = allocator.alloc(stop - start)
        else:
            last = row[req.req_pool_idx, start - 1 : start] if start else torch.tensor([-1])
            before, after = torch.tensor([start]), torch.tensor([stop])
            slots = allocator.alloc_extend(before, before, after, after, last, stop - start)
        assert slots is not None
        self._pool().write((req.req_pool_idx, slice(start, stop)), slots)
        req.kv = SimpleNamespace(kv_allocated_len=stop)

    def _forward(self, batch: list[Request], decode: bool) -> None:
        """Relocate, then write the KV of every token that has none yet."""
        mode = SimpleNamespace(is_extend=lambda: not decode, is_decode=lambda: decode)
        self.tree.relocate_marked(SimpleNamespace(reqs=batch, forward_mode=mode))
        for req in batch:
            slots = self._pool().req_to_token[req.req_pool_idx, : req.filled].long()
            new = slice(req.filled - 1 if decode else len(req.prefix_indices), req.filled)
            for buffer in (*self._kv().k_buffer, *self._kv().v_buffer):
                buffer[slots[new]] = fingerprint(req.get_fill_ids())[new]

    def _release(self, req: Request, insert: bool) -> None:
        """As SGLang's release_kv_cache: hand the row to the tree, then forget it."""
        self.tree.cache_finished_req(req, is_insert=insert, kv_len_to_handle=req.filled)
        assert req.req_pool_idx is not None
        self._pool().free.append(req.req_pool_idx)
        req.req_pool_idx = req.kv = None

    def _room(self, tokens: int) -> bool:
        """As the engine admits: free and evictable slots count, the shortfall is evicted."""
        allocator = self.tree.token_to_kv_pool_allocator
        if allocator.available_size() + self.tree.evictable_size() < tokens:
            return False
        if allocator.available_size() < tokens:
            self.tree.evict(EvictParams(num_tokens=tokens - allocator.available_size()))
        assert allocator.available_size() >= tokens
        return True

    def _pool(self) -> Rows:
        rows: Rows = self.tree.req_to_token_pool
        return rows

    def _kv(self) -> KvCache:
        kv_cache: KvCache = self.tree.token_to_kv_pool_allocator.get_kvcache()
        return kv_cache


def test_thousands_of_moves_lose_no_slot_and_meet_every_event() -> None:
    """The machine, and proof that it went where the storage layer can fail."""
    TreeMachine.met.clear()
    run_state_machine_as_test(
        TreeMachine,
        settings=settings(
            max_examples=200,
            stateful_step_count=50,
            deadline=None,
            derandomize=True,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
    assert TreeMachine.met["audits"] > 3000
    for event in (
        "relocations",
        "rows_rewritten",
        "slabs_extended",
        "admissions_refused",
        "slab_evictions",
        "cold_evictions",
        "donations",
        "take_backs",
        "resets",
    ):
        assert TreeMachine.met[event] > 0, event


def test_a_path_is_found_from_any_node() -> None:
    """The helper that everything above relies on, on a tree with a split."""
    tree = make_tree(1, GraniKVConfig(checks=True, hot_fraction=0.3, min_tokens=4))
    machine = TreeMachine()
    machine.page, machine.tree, machine.planner = 1, tree, None
    machine.arrive(prompt=[1, 2, 3, 1, 2, 3, 1, 2], again=0, chunk=64)
    machine.arrive(prompt=[1, 2, 3, 1, 3, 3], again=0, chunk=64)
    nodes = path_of(machine.decoding[1].last_node)
    assert [len(n.key) for n in nodes] == [4, 2]
