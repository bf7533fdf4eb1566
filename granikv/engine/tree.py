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
from granikv.engine.pins import PinBook
from granikv.engine.placement import Placement
from granikv.engine.relocation import Move, copier, readers_of, repoint
from granikv.eviction import eviction_policy
from granikv.pools import ColdPool, HotPool, hot_size
from granikv.prefix_index import PrefixIndex

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
        self._placed: list[Move] = []
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
            self._hot_slots = torch.arange(start, start + size, device=self.device)
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
            self.take_back(hot, cold)
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
        paths = self._marked_paths()
        if self.policy.at_lookup and batch.forward_mode.is_extend():
            known = [req for req in batch.reqs if req.last_node is not None]
            paths += [(req.last_node, len(req.origin_input_ids)) for req in known]
        if paths:
            placement = Placement(self, [end for end, _ in paths])
            for end, prompt_len in paths:
                self._place_path(placement, end, prompt_len)
            self.copy_placed()
        if self.checks is not None:
            self.checks.audit()

    def live_requests(self) -> Iterator[Any]:
        """Requests whose page-table row is written and names cached slots."""
        for req in list(self.live):
            if req.kv is not None and req.req_pool_idx is not None and req.last_node is not None:
                yield req

    def copy_placed(self) -> None:
        """Give the runs that were placed their KV, and repoint all that names an old slot."""
        moves, self._placed = self._placed, []
        if not moves:
            return
        readers = readers_of(moves, self.live_requests())
        nodes: list[Any] = [placed.node for move in moves for placed in move.run.nodes]
        source = torch.cat([node.value for node in nodes])
        slabs = [self._slots(move.base, move.run.length) for move in moves]
        if self.checks is not None:
            self.checks.before_relocation(moves, source, readers)
        self._copy(source, torch.cat(slabs))
        for move, slots, read_by in zip(moves, slabs, readers, strict=True):
            repoint(read_by, self.req_to_token_pool.req_to_token, move.run.nodes[0].p0, slots)
        for node in nodes:
            node.value = self._slots(node.hot_base, len(node.key))
        # Runs are whole pages, so any of their starts will do.
        self.token_to_kv_pool_allocator.free_segment(source, start_pos=0)
        self.counters.rows_rewritten += sum(reader.nodes for row in readers for reader in row)

    def _marked_paths(self) -> list[tuple[Any, int]]:
        """The deepest cached node of each marked prompt, and the prompt's length."""
        marked, self._marked = self._marked, []
        # The helper, since the engine's match gathers the path's slots on the device.
        return [(self._match_prefix_helper(self.root_node, key)[1], n) for key, n in marked]

    def _place_path(self, placement: Placement, end: Any, prompt_len: int) -> None:
        counters = self.counters
        for run in self.index.runs(end, self.policy, prompt_len):
            base = placement.place(run)
            if base is None:
                counters.admissions_refused += 1
                for placed in run.nodes:
                    placed.node.refusals += 1
                continue
            self._placed.append(Move(run, base))
            counters.relocations += 1
            counters.admissions_hot += 1
            counters.relocated_tokens += run.length
            counters.relocated_nodes += len(run.nodes)
            counters.slabs_extended += base == run.prefer
            for placed in run.nodes:
                self.index.place(placed.node, base)
                base += len(placed.node.key)

    def _slots(self, base: int, length: int) -> torch.Tensor:
        """The slots of a slab [length], on the device; nobody may write to them."""
        assert self.hot is not None
        return self._hot_slots[base - self.hot.start : base - self.hot.start + length]

    def take_back(self, hot: HotPool, cold: ColdPool) -> None:
        """End the loans whose slots are all free: before a slab, and before new slots are used."""
        self._freed = False
        returned = cold.return_whole(hot)
        self.counters.take_backs += returned > 0
        self.counters.returned_tokens += returned

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

    def drop_subtree(self, node: Any) -> None:
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
