"""The tree on SGLang's own allocator: directed tests of what the state machine meets by chance."""

from __future__ import annotations

import inspect
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.radix_cache import RadixKey

from granikv.config import GraniKVConfig
from granikv.engine.adapters import Adapters
from granikv.engine.pin_routes import UNPIN
from tests.engine.test_tree_machine import CAPACITY, Request, TreeMachine, make_tree


class Scheduler(TreeMachine):
    """The state machine's moves, called by name."""

    def __init__(self, page_size: int = 1, **choices: Any) -> None:
        super().__init__()
        config = GraniKVConfig(checks=True, **{"min_tokens": 16, "hot_fraction": 0.5, **choices})
        self.page, self.planner = page_size, None
        self.tree = make_tree(page_size, config)

    def serve(self, prompt: list[int]) -> Request:
        """A request that has been prefilled and decodes now; the slabs it caused are made."""
        before = len(self.decoding)
        self.arrive(prompt, 0, CAPACITY)
        assert len(self.decoding) == before + 1, "no room"
        self.settle()
        return self.decoding[-1]

    def settle(self) -> None:
        """One forward that writes nothing: marked prompts are relocated, everything is audited."""
        self._forward([], decode=True)
        self.check()

    def check(self) -> None:
        self.every_slot_is_in_one_place()
        self.the_engines_own_equation_holds()
        self.every_row_reads_its_own_tokens()
        self.the_plan_reads_each_token_once_and_from_its_row()

    def done(self, req: Request, insert: bool = True) -> None:
        self.decoding.remove(req)
        self._release(req, insert)
        self.check()

    def pools(self) -> list[str]:
        """HOT or COLD for each node, root first."""
        return ["COLD" if n.hot_base is None else "HOT" for n in self.nodes()]

    def nodes(self) -> list[Any]:
        assert self.tree.checks is not None
        return sorted(self.tree.checks._nodes(), key=lambda n: n.id)


def prompt(number: int, length: int) -> list[int]:
    return [number * 1000 + i for i in range(length)]


def test_a_shared_head_is_no_shared_prefix() -> None:
    """Failure kind 10: eight share A, seven do not; A's readers finish while the rest go on."""
    scheduler = Scheduler(admission="on_share", hot_fraction=0.4)
    shared = prompt(1, 40)
    readers = [scheduler.serve([*shared, 90 + i]) for i in range(4)]
    others = [scheduler.serve(prompt(10 + i, 20)) for i in range(3)]
    assert scheduler.tree.counters.relocations == 1
    for reader in readers:
        scheduler.decode()
        scheduler.done(reader)
    plan = scheduler.tree.index
    assert [len(n.key) for n in plan] == [40]
    for other in others:
        assert all(n.hot_base is None for n in _path(other))
    scheduler.decode()
    scheduler.check()


def test_a_duplicate_insert_frees_the_copy_and_keeps_the_node() -> None:
    """Failure kind 14: two cold requests of one prompt in a batch; one KV stays, both read it."""
    scheduler = Scheduler(admission="on_share")
    twins = []
    for _ in range(2):
        scheduler.serial += 1
        twin = Request(f"twin{scheduler.serial}", prompt(1, 40))
        key = RadixKey(twin.origin_input_ids)
        found = scheduler.tree.match_prefix(MatchPrefixParams(key=key, req=twin))
        twin.last_node = found.last_device_node
        twins.append(twin)
    assert scheduler._extend(twins, [64, 64])
    scheduler.settle()
    assert scheduler.tree.counters.relocations == 1
    assert scheduler.tree.counters.rows_rewritten == 2
    assert len(scheduler.nodes()) == 1


def test_a_locked_node_is_not_evictable() -> None:
    """Failure kinds 12 and 14: what live requests read stays, whatever is asked for."""
    scheduler = Scheduler()
    reader = scheduler.serve(prompt(1, 40))
    base = _path(reader)[0].hot_base
    scheduler.tree.evict(EvictParams(num_tokens=CAPACITY))
    scheduler.check()
    assert _path(reader)[0].hot_base == base
    available = scheduler.tree.token_to_kv_pool_allocator.available_size()
    assert available == CAPACITY - 40
    assert scheduler.tree.evictable_size() == 0


def test_hot_leaves_that_bury_cold_are_evicted_to_reach_it() -> None:
    """A COLD head below whose only children are slabs can still be had, leaf by leaf."""
    scheduler = Scheduler(hot_fraction=0.5, min_tokens=16)
    head = prompt(9, 8)
    for number in (1, 2):
        scheduler.done(scheduler.serve(head + prompt(number, 40)))
    cold = [n for n in scheduler.nodes() if n.hot_base is None]
    if not cold:
        # Both halves of the first slab stay HOT on a split: bury a COLD head on purpose.
        scheduler = Scheduler(hot_fraction=0.5, min_tokens=16, admission="on_share")
        first = scheduler.serve(head + prompt(1, 40))
        second = scheduler.serve(head + prompt(1, 40) + [5])
        for req in (first, second):
            scheduler.done(req)
    promised = scheduler.tree.evictable_size()
    scheduler.tree.evict(EvictParams(num_tokens=promised))
    scheduler.check()
    assert scheduler.nodes() == []
    assert scheduler.tree.token_to_kv_pool_allocator.available_size() == CAPACITY


def test_cold_below_slabs_goes_before_the_slabs() -> None:
    """A little pressure takes cached suffixes; the prefix stays for its next readers."""
    scheduler = Scheduler()
    prefix = prompt(1, 60)
    for i in range(4):
        scheduler.done(scheduler.serve([*prefix, 500 + i, 600 + i, 700 + i]))
    free = scheduler.tree.token_to_kv_pool_allocator.available_size()
    scheduler.tree.evict(EvictParams(num_tokens=6))
    assert scheduler.tree.token_to_kv_pool_allocator.available_size() >= free + 6
    assert scheduler.tree.counters.slab_evictions == 0
    assert scheduler.tree.counters.donations == 0


def test_hot_too_small_leaves_the_prefix_in_cold_for_life() -> None:
    """Failure kind 18, and the paper's f_p = 0.05 row (B.12): served from COLD, never promoted."""
    scheduler = Scheduler(hot_fraction=0.1)
    for _ in range(3):
        scheduler.done(scheduler.serve(prompt(1, 60)))
    assert set(scheduler.pools()) == {"COLD"}
    assert scheduler.tree.counters.admissions_refused == 1
    assert scheduler.tree.counters.relocations == 0


def test_idle_hot_space_is_lent_and_comes_back_whole() -> None:
    """Failure kind 18: donated under pressure, wanted back, whole again once the loan ends."""
    scheduler = Scheduler(hot_fraction=0.5, admission="on_share")
    big = scheduler.serve(prompt(1, 150))
    hot, cold = scheduler.tree.pools()
    assert hot.donated_size == cold.donated_size >= 150 - CAPACITY // 2
    scheduler.done(big)
    scheduler.tree.evict(EvictParams(num_tokens=150))
    scheduler.serve(prompt(2, 120))
    assert scheduler.tree.counters.take_backs == 1
    assert hot.donated_size == cold.donated_size == 0
    scheduler.serve([*prompt(2, 120), 7])
    assert scheduler.pools()[0] == "HOT"


def test_a_slab_evicts_stale_nodes_from_lent_slots() -> None:
    """Failure kind 18: the loan is held by a cached node that nobody came back for."""
    scheduler = Scheduler(hot_fraction=0.3, admission="on_share")
    older, newer = scheduler.serve(prompt(1, 120)), scheduler.serve(prompt(2, 80))
    hot, _ = scheduler.tree.pools()
    assert hot.donated_size > 0
    spare = scheduler.serve([5])
    for req in (older, newer, spare):
        scheduler.done(req)
    scheduler.tree.evict(EvictParams(num_tokens=100))
    assert hot.donated_size > 0, "newer nodes still hold the loan"
    scheduler.serve(prompt(3, 70))
    scheduler.serve([*prompt(3, 70), 7])
    assert scheduler.tree.counters.relocations == 1
    assert hot.donated_size == 0


def test_making_room_never_takes_the_prompt_it_is_made_for() -> None:
    """A priming request's prompt is unlocked, and may lie on slots that HOT has lent."""
    scheduler = Scheduler(hot_fraction=0.3)
    scheduler.serve(prompt(1, 150))
    scheduler.prime(prompt(2, 60), 0)
    hot, _ = scheduler.tree.pools()
    assert hot.donated_size > 0
    scheduler.settle()
    cached = sum(len(n.key) for n in scheduler.nodes())
    assert cached == 150 + 60


def test_a_reused_request_id_hides_no_live_row() -> None:
    """A client that drops its stream and retries under the same id has two live rows."""
    scheduler = Scheduler(admission="on_share")
    first = scheduler.serve(prompt(1, 60))
    second = scheduler.serve([*prompt(9, 10), 3])
    second.rid = first.rid
    scheduler.done(second)
    scheduler.serve([*prompt(1, 60), 7])
    assert scheduler.tree.counters.rows_rewritten == 2


def test_a_long_chain_below_a_slab_is_dropped_whole() -> None:
    """A conversation of a thousand turns is deeper than Python's stack."""
    scheduler = Scheduler()
    scheduler.done(scheduler.serve(prompt(1, 40)))
    node = scheduler.nodes()[0]
    insert = scheduler.tree.insert
    for turn in range(1, 60):
        key = RadixKey(Request("turn", [*prompt(1, 40), *range(turn)]).origin_input_ids)
        slots = scheduler.tree.token_to_kv_pool_allocator.alloc(1)
        insert(InsertParams(key=key, value=torch.cat([_values(node, turn), slots])))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 40)
    try:
        scheduler.tree.drop_subtree(node)
    finally:
        sys.setrecursionlimit(limit)
    scheduler.check()
    assert scheduler.nodes() == []


def test_waiting_is_no_reuse() -> None:
    """A request that is looked up in every round counts as one hit (failure kind 10)."""
    scheduler = Scheduler()
    scheduler.done(scheduler.serve(prompt(1, 40)))
    waiting = Request("waiting", prompt(1, 60))
    for _ in range(100):
        key = RadixKey(waiting.origin_input_ids)
        scheduler.tree.match_prefix(MatchPrefixParams(key=key, req=waiting))
    assert [n.hits for n in scheduler.nodes()] == [1]


def test_an_unlocked_slab_gives_way_to_a_new_one() -> None:
    """LRU release of slabs whose reference count is zero (§3.2); a locked one stays."""
    scheduler = Scheduler(hot_fraction=0.4)
    scheduler.done(scheduler.serve(prompt(1, 40)))
    kept = scheduler.serve(prompt(2, 40))
    scheduler.serve(prompt(3, 35))
    assert scheduler.tree.counters.slab_evictions == 1
    assert _path(kept)[0].hot_base is not None
    assert sorted(len(n.key) for n in scheduler.tree.index) == [35, 40]


def test_the_slab_used_least_recently_gives_way_first() -> None:
    """Two unlocked slabs of one length, and either would make enough room."""
    scheduler = Scheduler(hot_fraction=0.4)
    for number in (1, 2):
        scheduler.done(scheduler.serve(prompt(number, 40)))
    scheduler.serve(prompt(3, 35))
    assert [n.key.token_ids[0] // 1000 for n in scheduler.nodes()] == [2, 3]


def test_a_slab_that_went_with_its_head_is_not_evicted_again() -> None:
    """The survey lists head and extension; the third slab must go as well to make the room."""
    scheduler = Scheduler(hot_fraction=0.4)
    for tokens in (prompt(1, 20), prompt(1, 40), prompt(2, 40)):
        scheduler.done(scheduler.serve(tokens))
    assert scheduler.pools() == ["HOT", "HOT", "HOT"]
    scheduler.serve(prompt(3, 90))
    assert scheduler.tree.counters.slab_evictions == 3
    assert scheduler.pools() == ["HOT"]


def test_a_step_does_not_count_on_room_that_it_has_given_away() -> None:
    """Either of two prompts fits once all slabs are gone, but not both: one stays in COLD."""
    scheduler = Scheduler(hot_fraction=0.4)
    for number in (1, 2):
        scheduler.done(scheduler.serve(prompt(number, 40)))
    batch = [scheduler._request(prompt(number, 60), 0) for number in (3, 4)]
    assert scheduler._extend(batch, [60, 60])
    scheduler.settle()
    assert [_path(req)[0].hot_base is None for req in batch] == [False, True]
    assert scheduler.tree.counters.admissions_refused == 1


def test_the_prompts_of_a_step_are_copied_together() -> None:
    """One copy for all runs of a step, each row pointed at its own slab."""
    scheduler = Scheduler()
    tree, copies = scheduler.tree, []
    copy = tree._copy

    def counted(source: torch.Tensor, target: torch.Tensor) -> None:
        copies.append(len(source))
        copy(source, target)

    tree._copy = counted
    batch = [Request(f"row{i}", prompt(i, 20 + i)) for i in range(3)]
    for req in batch:
        key = RadixKey(req.origin_input_ids)
        found = tree.match_prefix(MatchPrefixParams(key=key, req=req))
        req.last_node = found.last_device_node
    assert scheduler._extend(batch, [64, 64, 64])
    scheduler.settle()
    assert tree.counters.relocations == 3
    assert copies == [20 + 21 + 22]


def test_a_prompt_of_the_same_step_makes_no_room() -> None:
    """Two primed prompts are unlocked and due together; HOT holds one, and neither is lost."""
    scheduler = Scheduler(hot_fraction=0.2)
    primed = [scheduler._request(prompt(number, 40), 0) for number in (1, 2)]
    for req in primed:
        scheduler._fill(req, 40)
    scheduler._forward(primed, decode=False)
    for req in primed:
        scheduler._release(req, insert=True)
    scheduler.settle()
    assert sorted(scheduler.pools()) == ["COLD", "HOT"]
    assert scheduler.tree.counters.slab_evictions == 0


def test_eviction_goes_ahead_of_the_next_prompts() -> None:
    """What must be looked for among many slabs is not looked for again at each prompt."""
    scheduler = Scheduler(min_tokens=2)
    counters, (hot, _) = scheduler.tree.counters, scheduler.tree.pools()
    slabs = hot.size // 2
    for number in range(slabs):
        scheduler.done(scheduler.serve(prompt(number, 2)))
    assert (hot.free_size, counters.slab_evictions) == (0, 0)
    evicted = []
    for number in range(slabs, slabs + 4):
        scheduler.done(scheduler.serve(prompt(number, 2)))
        evicted.append(counters.slab_evictions)
    assert hot.size // 32 == 4
    assert evicted == [3, 3, 3, 6]


def test_slabs_are_not_evicted_where_that_could_not_help() -> None:
    """A run longer than HOT asks for nothing of those who are there."""
    scheduler = Scheduler(hot_fraction=0.3)
    scheduler.done(scheduler.serve(prompt(1, 40)))
    scheduler.serve(prompt(2, 100))
    assert scheduler.tree.counters.slab_evictions == 0
    assert scheduler.tree.counters.admissions_refused == 1


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("off_by", [-1, 0, 1])
def test_keys_around_a_page(page_size: int, off_by: int) -> None:
    """Failure kind 13: one token less or more than whole pages, twice, then flushed."""
    scheduler = Scheduler(page_size=page_size, min_tokens=1)
    length = 2 * page_size + off_by
    for _ in range(2):
        scheduler.done(scheduler.serve(prompt(1, length)))
    cached = sum(len(n.key) for n in scheduler.nodes())
    assert cached == length // page_size * page_size
    scheduler.flush(0)
    scheduler.serve(prompt(1, length))


def test_a_chunked_prompt_is_one_slab_when_it_is_complete() -> None:
    """Chunk nodes chain up; no slab is made while the prompt is being prefilled."""
    scheduler = Scheduler()
    scheduler.arrive(prompt(1, 60), 0, 16)
    while scheduler.prefilling:
        assert scheduler.tree.counters.relocations == 0
        scheduler.prefill_on(16)
    scheduler.settle()
    counters = scheduler.tree.counters
    assert (counters.relocations, counters.relocated_nodes) == (1, 4)
    assert [tuple(r) for r in scheduler.tree.pools()[0].live_ranges()] == [(1, 60)]


def test_a_longer_prompt_extends_its_parents_slab() -> None:
    """The next turn of a conversation continues in memory where its prefix ends."""
    scheduler = Scheduler()
    scheduler.done(scheduler.serve(prompt(1, 40)))
    scheduler.serve(prompt(1, 90))
    assert scheduler.tree.counters.slabs_extended == 1
    assert [tuple(r) for r in scheduler.tree.pools()[0].live_ranges()] == [(1, 90)]


def test_no_hot_pool_at_all() -> None:
    scheduler = Scheduler(hot_fraction=0.0)
    for _ in range(2):
        scheduler.done(scheduler.serve(prompt(1, 60)))
    assert set(scheduler.pools()) == {"COLD"}


def test_a_pin_survives_pressure_and_its_release_ends_that() -> None:
    scheduler = Scheduler(pin_budget=0.9)
    pins = scheduler.tree.pins
    pins.declare(1, Request("pin", prompt(1, 40)).origin_input_ids, None)
    scheduler.done(scheduler.serve(prompt(1, 40)))
    scheduler.settle()
    assert pins.as_dicts() == [{"number": 1, "tokens": 40, "pinned": True, "error": ""}]
    scheduler.tree.evict(EvictParams(num_tokens=CAPACITY))
    scheduler.check()
    assert [len(n.key) for n in scheduler.tree.index] == [40]
    scheduler.serve(prompt(1, 20) + prompt(2, 20))
    assert sorted(n.pins for n in scheduler.nodes()) == [0, 1, 1]
    assert pins.release(1)
    assert not pins.release(1)
    scheduler.done(scheduler.decoding[0])
    scheduler.tree.evict(EvictParams(num_tokens=CAPACITY))
    assert scheduler.nodes() == []


def test_pins_beyond_the_budget_are_refused_and_come_back_after_a_flush() -> None:
    scheduler = Scheduler(pin_budget=0.5)
    pins = scheduler.tree.pins
    for number in (1, 2):
        tokens = Request(f"pin{number}", prompt(number, 40)).origin_input_ids
        pins.declare(number, tokens, None)
    assert "over the pin budget" in pins.as_dicts()[1]["error"]
    scheduler.done(scheduler.serve(prompt(1, 40)))
    scheduler.settle()
    scheduler.flush(0)
    assert not pins.as_dicts()[0]["pinned"]
    scheduler.done(scheduler.serve(prompt(1, 40)))
    scheduler.settle()
    assert pins.as_dicts()[0]["pinned"]


def _adapters(scheduler: Scheduler) -> tuple[Adapters, SimpleNamespace]:
    """Our hooks around the tree, and the engine's scheduler as far as they look at it."""
    adapters = Adapters(scheduler.tree.config)
    adapters.runtime.tree = scheduler.tree
    engine = SimpleNamespace(
        waiting_queue=[],
        grammar_manager=SimpleNamespace(grammar_queue=[]),
        token_to_kv_pool_allocator=scheduler.tree.token_to_kv_pool_allocator,
        max_req_len=CAPACITY - 1,
        max_req_input_len=CAPACITY - 6,
    )
    adapters._watch_pins(engine)
    return adapters, engine


@pytest.mark.parametrize("where", ["running", "waiting", "grammar"])
def test_a_pin_that_a_request_could_not_live_with_is_refused(where: str) -> None:
    """A running request too: it grows until only the pin stands in its way, and is aborted then."""
    scheduler = Scheduler(pin_budget=0.9)
    _, engine = _adapters(scheduler)
    pins = scheduler.tree.pins
    long = Request("long", prompt(1, 20))
    if where == "running":
        long = scheduler.serve(prompt(1, 20))
    elif where == "waiting":
        engine.waiting_queue = [long]
    else:
        engine.grammar_manager.grammar_queue = [long]
    long.sampling_params.max_new_tokens = 200
    declared = Request("pin", prompt(2, 40)).origin_input_ids
    pins.declare(1, declared, None)
    assert "a request of 220 tokens" in pins.as_dicts()[0]["error"]
    assert engine.max_req_len == CAPACITY - 1
    pins.release(1)
    if where == "running":
        scheduler.done(long)
    engine.waiting_queue, engine.grammar_manager.grammar_queue = [], []
    pins.declare(2, declared, None)
    assert pins.as_dicts()[0]["error"] == ""
    assert engine.max_req_len == CAPACITY - 40 - 1


@pytest.mark.parametrize("number", ["x", None, [1], 2.5, 7])
def test_what_is_no_pin_cannot_be_unpinned(number: Any) -> None:
    """Anybody who may set the engine's state may send this; the scheduler must outlive it."""
    adapters, engine = _adapters(Scheduler())
    request = SimpleNamespace(server_args={UNPIN: number})
    assert adapters.around_set_internal_state(None, engine, request).updated is False


def _values(node: Any, turn: int) -> Any:
    """The slots of the path from ``node`` down its chain of one-token nodes."""
    values = [node.value]
    for _ in range(turn - 1):
        node = next(iter(node.children.values()))
        values.append(node.value)
    return torch.cat(values)


def _path(req: Request) -> list[Any]:
    from granikv.prefix_index import path_of

    return list(path_of(req.last_node))
