"""SGLang's radix tree with a pool identity per node (paper §3.2, §3.4, B.10).

The tree's matching, locking and reference counting are the engine's. Added here: HOT is reserved
from the engine's own allocator, runs of nodes are relocated into slabs, evicted ranges go back to
the pool they came from, and HOT's free space is lent to COLD when live requests need it.

Accounting. What is free in HOT or held by an unlocked node can be turned into free COLD slots by
`evict()` at any time, so all of it counts as evictable, once, and nothing else does: a request that
stock SGLang would serve is served.
"""

from __future__ import annotations

import heapq
import time
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from sglang.srt.mem_cache.base_prefix_cache import EvictResult, MatchPrefixParams
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey

from granikv.admission import admission_policy
from granikv.config import GraniKVConfig
from granikv.engine.allocator import SglangAllocator
from granikv.engine.checks import Checks
from granikv.engine.counters import StorageCounters
from granikv.engine.loans import reclaimable
from granikv.engine.pins import PinBook
from granikv.engine.relocation import copier, readers_of, repoint, run_slots
from granikv.eviction import eviction_policy
from granikv.pools import ColdPool, HotPool, Range, hot_size
from granikv.prefix_index import PrefixIndex, Run

_LOANS = 16
"""HOT is lent in blocks of at least this fraction of it."""


class GraniKVRadixCache(RadixCache):  # type: ignore[misc]
    """The radix tree of one rank, over a HOT and a COLD pool.

    Args:
        params: the engine's own parameters of a tree.
        config: the user's choices.
    """

    def __init__(self, params: Any, config: GraniKVConfig) -> None:
        self.config = config
        self.policy = admission_policy(config.admission, config.min_tokens)
        self.eviction = eviction_policy(config.eviction)
        self.counters = StorageCounters()
        self.allocator = SglangAllocator(params.token_to_kv_pool_allocator)
        self._copy = copier(params.token_to_kv_pool_allocator.get_kvcache())
        self.index = PrefixIndex()
        self.live: weakref.WeakSet[Any] = weakref.WeakSet()
        self.hot: HotPool | None = None
        self.cold: ColdPool | None = None
        self.pins = PinBook(self)
        self.checks = Checks(self) if config.checks else None
        super().__init__(params)
        self.counters.resets = 0

    # -- life of the pools ---------------------------------------------------------------------

    def reset(self) -> None:
        """Forget everything; the engine clears its allocator next, so HOT is reserved later."""
        super().reset()
        self.hot = None
        self.cold = None
        self.index = PrefixIndex()
        self._marked: list[tuple[RadixKey, int]] = []
        self._tick = 0
        self._freed = False
        self._inserted = False
        self.live.clear()
        self.pins.disarm()
        self.counters.resets += 1

    def pools(self) -> tuple[HotPool, ColdPool]:
        """HOT and COLD; HOT is reserved at the first call, while the allocator is still fresh."""
        if self.hot is None or self.cold is None:
            capacity = int(self.token_to_kv_pool_allocator.size)
            size = hot_size(capacity, self.config.hot_fraction, self.page_size)
            start = self.allocator.reserve(size) if size else self.page_size
            self.hot = HotPool(start, size, self.page_size)
            self.cold = ColdPool(self.allocator, capacity - size, self.page_size)
        return self.hot, self.cold

    def pin_capacity(self) -> int:
        """Slots that declared prefixes may hold."""
        return int(self.pools()[0].size * self.config.pin_budget)

    # -- what the engine calls -----------------------------------------------------------------

    def match_prefix(self, params: MatchPrefixParams) -> Any:
        """End HOT's idle loans first; stamp the path, and count a request's first look as a hit."""
        hot, cold = self.pools()
        if self._freed and params.req is not None and 0 < hot.donated_size <= cold.free_size:
            self._take_back(hot, cold)
        result = super().match_prefix(params)
        self._use(result.last_device_node, params.req)
        return result

    def insert(self, params: Any) -> Any:
        """Stamp the path with the logical time; an insertion is no hit."""
        result = super().insert(params)
        self._use(result.last_device_node, None)
        return result

    def cache_unfinished_req(self, req: Any, chunked: bool = False) -> None:
        """Mark the prompt for a slab before the next forward, unless only a chunk of it is here."""
        super().cache_unfinished_req(req, chunked)
        self._inserted = True
        # A prompt that is still being prefilled would be torn into one slab a chunk.
        if not chunked:
            req.granikv_marked = True
            if self.index.runs(req.last_node, self.policy, len(req.origin_input_ids)):
                self._mark_prompt(req)

    def cache_finished_req(self, req: Any, is_insert: bool = True, **kwargs: Any) -> None:
        """Count the request as live no more; mark a prompt not marked yet, pin a declared one."""
        super().cache_finished_req(req, is_insert, **kwargs)
        self.live.discard(req)
        self._freed = True
        if is_insert:
            self._inserted = True
            # A request that ends with its prefill, as a priming one does, was never unfinished.
            if not getattr(req, "granikv_marked", False):
                self._mark_prompt(req)
            self.pins.declare_from(req)

    def evictable_size(self) -> int:
        """Slots of unlocked nodes, slabs included, and HOT's free ones, which `evict` can lend."""
        free = self.hot.free_size if self.hot is not None else 0
        return int(self.evictable_size_) + free

    def evict(self, params: Any) -> EvictResult:
        """Make ``params.num_tokens`` slots free in COLD, the cheapest first.

        Cached nodes that no request ever came back for, then HOT's idle space (B.12), then the
        rest of COLD's cache, then unlocked slabs.
        """
        start = time.perf_counter()
        need = int(params.num_tokens)
        got = self._evict_cold(need, unused_only=True)
        got += self._borrow(need - got)
        got += self._evict_cold(need - got, unused_only=False)
        while got < need and (leaf := self._coldest_hot_leaf()) is not None:
            self._drop(leaf)
            got += self._borrow(need - got)
            got += self._evict_cold(need - got, unused_only=False)
        self.update_eviction_metrics(got, start)
        return EvictResult(num_tokens_evicted=got)

    def _split_node(self, key: RadixKey, child: Any, split_len: int) -> Any:
        upper = super()._split_node(key, child, split_len)
        upper.last_use, upper.hits = child.last_use, child.hits
        self.index.split(upper, child, split_len)
        return upper

    # -- slabs ---------------------------------------------------------------------------------

    def relocate_marked(self, batch: Any) -> None:
        """Make the slabs that the policy wants, before ``batch`` is planned.

        Called when the rows of ``batch`` are written and its forward has not started.
        """
        if self._inserted:
            self._inserted = False
            self.pins.arm()
        marked, self._marked = self._marked, []
        for key, prompt_len in marked:
            node = super().match_prefix(MatchPrefixParams(key=key)).last_device_node
            self._relocate_path(node, prompt_len)
        if self.policy.at_lookup and batch.forward_mode.is_extend():
            for req in batch.reqs:
                if req.last_node is not None:
                    self._relocate_path(req.last_node, len(req.origin_input_ids))
        if self.checks is not None:
            self.checks.audit()

    def live_requests(self) -> Iterator[Any]:
        """Requests whose page-table row is written and names cached slots."""
        for req in list(self.live):
            if req.kv is not None and req.req_pool_idx is not None and req.last_node is not None:
                yield req

    def _relocate_path(self, node: Any, prompt_len: int) -> None:
        for run in self.index.runs(node, self.policy, prompt_len):
            # A prompt that ended with its prefill is unlocked: making room must not take it.
            self.inc_lock_ref(node)
            base = self._place(run)
            self.dec_lock_ref(node)
            if base is None:
                self.counters.admissions_refused += 1
                for placed in run.nodes:
                    placed.node.refusals += 1
            else:
                self._relocate(run, base)

    def _relocate(self, run: Run, base: int) -> None:
        source, p0 = run_slots(run), run.nodes[0].p0
        readers = readers_of(run, self.live_requests())
        if self.checks is not None:
            self.checks.before_relocation(run, source, readers)
        self._copy(source, base)
        repoint(readers, self.req_to_token_pool.req_to_token, p0, base)
        self.token_to_kv_pool_allocator.free_segment(source, start_pos=p0)
        at = base
        for placed in run.nodes:
            length = len(placed.node.key)
            slots = torch.arange(at, at + length, dtype=source.dtype, device=source.device)
            placed.node.value = slots  # type: ignore[attr-defined]
            self.index.place(placed.node, at)
            at += length
        counters = self.counters
        counters.relocations += 1
        counters.admissions_hot += 1
        counters.relocated_tokens += run.length
        counters.relocated_nodes += len(run.nodes)
        counters.slabs_extended += base == run.prefer
        counters.rows_rewritten += sum(reader.nodes for reader in readers)

    def _place(self, run: Run) -> int | None:
        """A contiguous range for the run, which the caller has locked; None to stay COLD.

        Free space first, then loans that nobody uses, then unlocked slabs; nothing is evicted
        unless that makes a range long enough.
        """
        hot, cold = self.pools()
        base = hot.alloc(run.length, run.prefer)
        if base is None and hot.donated_size:
            base = self._place_on_loans(hot, cold, run)
        if base is None and self._could_fit(hot, run.length, []):
            base = self._evict_slabs_for(hot, run)
        return base

    def _place_on_loans(self, hot: HotPool, cold: ColdPool, run: Run) -> int | None:
        """Place the run where HOT has lent space that is free, or held by stale nodes only."""
        loans, nodes = reclaimable(hot, self.allocator.free_slots(), self._stale_nodes())
        if not loans or not self._could_fit(hot, run.length, loans):
            return None
        for node in nodes:
            if node.parent.children.get(node.key.child_key(self.page_size)) is node:
                self._drop_subtree(node)
        self._take_back(hot, cold)
        return hot.alloc(run.length, run.prefer)

    def _stale_nodes(self) -> list[Any]:
        """COLD nodes that no live request reads and none came back for."""
        stale, stack = [], list(self.root_node.children.values())
        while stack:
            node = stack.pop()
            stack.extend(node.children.values())
            if node.hot_base is None and node.lock_ref == 0 and not node.hits:
                stale.append(node)
        return stale

    def _take_back(self, hot: HotPool, cold: ColdPool) -> None:
        """End the loans whose slots are all free: before a slab, and before new slots are used."""
        self._freed = False
        returned = cold.return_whole(hot)
        self.counters.take_backs += returned > 0
        self.counters.returned_tokens += returned

    def _could_fit(self, hot: HotPool, length: int, loans: list[Range]) -> bool:
        """Whether a range this long is left without the unlocked slabs and these loans."""
        unlocked = [
            Range(n.hot_base, len(n.key))
            for n in self.index
            if n.lock_ref == 0 and n.hot_base is not None
        ]
        longest, start, end = 0, 0, -1
        for slots in sorted([*hot.free_ranges(), *loans, *unlocked]):
            start = start if slots.base == end else slots.base
            end = slots.end
            longest = max(longest, end - start)
        return longest >= length

    def _evict_slabs_for(self, hot: HotPool, run: Run) -> int | None:
        victims = sorted((n for n in self.index if n.lock_ref == 0), key=self.eviction.key)  # type: ignore[arg-type]
        for victim in victims:
            if victim.hot_base is None:
                continue
            self._drop_subtree(victim)
            base = hot.alloc(run.length, run.prefer)
            if base is not None:
                return base
        return None

    def mark(self, key: RadixKey, prompt_len: int) -> None:
        """Ask the policy about the path of ``key`` before the next forward."""
        self._marked.append((key, prompt_len))

    def _mark_prompt(self, req: Any) -> None:
        key = RadixKey(req.origin_input_ids, req.extra_key).page_aligned(self.page_size)
        if len(key):
            self.mark(key, len(req.origin_input_ids))

    # -- eviction ------------------------------------------------------------------------------

    def _evict_cold(self, need: int, unused_only: bool) -> int:
        """Evict COLD leaves until ``need`` slots are freed; the slots freed."""
        if need <= 0:
            return 0
        heap = [
            (self.eviction.key(leaf), leaf)
            for leaf in self.evictable_leaves
            if leaf.hot_base is None and not (unused_only and leaf.hits)
        ]
        heapq.heapify(heap)
        got = 0
        while got < need and heap:
            _, leaf = heapq.heappop(heap)
            parent = leaf.parent
            got += self._drop(leaf)
            exposed = parent in self.evictable_leaves and parent.hot_base is None
            if exposed and not (unused_only and parent.hits):
                heapq.heappush(heap, (self.eviction.key(parent), parent))
        return got

    def _borrow(self, need: int) -> int:
        """Lend HOT's free space to COLD; the slots lent."""
        if need <= 0:
            return 0
        hot, cold = self.pools()
        # In blocks, so that there are few loans to look at when they are wanted back.
        block = hot.size // _LOANS // self.page_size * self.page_size
        lent = cold.borrow(hot, max(need, block))
        self.counters.donations += lent > 0
        self.counters.donated_tokens += lent
        return lent

    def _coldest_hot_leaf(self) -> Any | None:
        leaves = (leaf for leaf in self.evictable_leaves if leaf.hot_base is not None)
        return min(leaves, key=self.eviction.key, default=None)

    def _drop_subtree(self, node: Any) -> None:
        """Remove an unlocked node with all below it, leaves first; a chain can be long."""
        below, stack = [], [node]
        while stack:
            below.append(stack.pop())
            stack.extend(below[-1].children.values())
        for leaf in reversed(below):
            self._drop(leaf)

    def _drop(self, leaf: Any) -> int:
        """Remove an unlocked leaf, its slots to the pool they came from; COLD slots freed."""
        # Taken before the index forgets the range: the engine's own books read the key.
        slab = self.index.drop(leaf)
        if slab is None:
            self.token_to_kv_pool_allocator.free_segment(leaf.value, start_pos=0)
            self.counters.cold_evictions += 1
        else:
            self.pools()[0].release(slab.base, slab.length)
            if self.checks is not None:
                self.checks.poison(slab)
            self.counters.slab_evictions += 1
        self._delete_leaf(leaf)
        self._record_remove_event(leaf)
        return 0 if slab is not None else len(leaf.key)

    # -- logical time --------------------------------------------------------------------------

    def _use(self, node: Any, req: Any) -> None:
        """Stamp the path to ``node``; a request that looks a prefix up counts as one hit."""
        self._tick += 1
        first_look = False
        if req is not None:
            self.live.add(req)
            # A waiting request is looked up again in every round.
            first_look = not getattr(req, "granikv_looked_up", False)
            req.granikv_looked_up = True
        while node is not None and node is not self.root_node:
            node.last_use = self._tick
            node.hits += first_look
            node = node.parent
