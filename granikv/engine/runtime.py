"""What one rank knows between the engine's hooks: its tree, the plan of the step, the counters.

The engine hands its decode backend a copy of the batch that has lost every attribute of ours, so
the plan waits here. Planning and forward run one after the other in one thread of one process.
"""

from __future__ import annotations

from typing import Any

import torch

from granikv import profiling
from granikv.attention import Segment, StepInputs
from granikv.config import GraniKVConfig
from granikv.dispatch import PAGED, Decision, DispatchCounters, DispatchRule, StepShape
from granikv.engine.tree import GraniKVRadixCache
from granikv.plan import DecodePlan
from granikv.planner import CommonPrefixPlanner, Planner

NO_PLAN = DecodePlan(0, (), ())


class Runtime:
    """The storage layer of one rank.

    Attributes:
        config: the user's choices.
        tree: the tree with pool identities; None for SGLang-Cascade, which has no storage layer.
        dispatched: which backend served how much.
        scheduler: the engine's scheduler on this rank, once it exists.
        overflowed: steps that read more outside slabs than there is room to list; they are paged.
        unplanned: decode steps that came without a plan (the engine's own warm-up).
    """

    def __init__(self, config: GraniKVConfig) -> None:
        self.config = config
        self.tree: GraniKVRadixCache | None = None
        self.dispatched = DispatchCounters()
        self.unplanned = 0
        self.overflowed = 0
        self.group_size = 1
        self.rule: DispatchRule | None = None
        self._planner: Planner | CommonPrefixPlanner = CommonPrefixPlanner()
        self.scheduler: Any = None
        self._moved = 0
        self._index: Any = None
        self._plan = NO_PLAN

    def before_forward(self, batch: Any) -> None:
        """The rows of ``batch`` are written and its forward comes next: relocate, then plan."""
        if self.tree is not None:
            with profiling.RELOCATION:
                self.tree.relocate_marked(batch)
                self._order_streams()
        self._plan = NO_PLAN
        if batch.forward_mode.is_decode():
            with profiling.PLAN:
                self._plan = self._current_planner().plan([req.last_node for req in batch.reqs])

    def _order_streams(self) -> None:
        """After a relocation, the scheduler's own stream waits for the copy.

        Its next operations read page-table rows, free lists and node values that were written in
        the forward's stream, which the engine orders the other way only.
        """
        assert self.tree is not None
        moved = self.tree.counters.relocations
        if moved == self._moved or self.scheduler is None:
            return
        self._moved = moved
        if self.tree.device.type == "cuda" and self.scheduler.enable_overlap:
            self.scheduler.schedule_stream.wait_stream(torch.cuda.current_stream())

    def shares(self) -> bool:
        """Whether the coming decode step reads a segment."""
        return bool(self._plan.segment_rows)

    def decide(self, rows: int, tokens: int) -> Decision:
        """What serves the coming decode step of ``rows`` rows, and what it reads.

        Args:
            tokens: the sum of the rows' sequence lengths.
        """
        assert self.rule is not None, "the decode backend sets the rule when it is built"
        plan = self._plan
        if plan.rows != rows:
            self.unplanned += 1
            plan = NO_PLAN
        return self.rule.decide(StepShape(rows, self.group_size, plan.segment_rows), plan, tokens)

    def overflow(self, decision: Decision) -> Decision:
        """The step does not fit its backend's buffers: it is paged."""
        self.overflowed += 1
        return Decision(PAGED, decision.plan)

    def count(self, decision: Decision) -> None:
        """The step is served as decided."""
        plan = decision.plan
        shape = StepShape(plan.rows, self.group_size, plan.segment_rows)
        self.dispatched.count(decision.backend, shape, plan.shared_tokens)

    def step(self, batch: Any, page_table: torch.Tensor, page_size: int) -> tuple[str, StepInputs]:
        """The backend for this decode step and what it reads.

        Args:
            batch: the engine's forward batch, n rows.
            page_table: [requests, context] slot of each token position.
        """
        seq_lens = [int(n) for n in batch.seq_lens.tolist()]
        decision = self.decide(len(seq_lens), sum(seq_lens))
        self.count(decision)
        rows = page_table[batch.req_pool_indices, : max(seq_lens, default=0)]
        segments = tuple(
            Segment(s.base, s.p0, s.length, torch.tensor(s.rows, device=page_table.device))
            for s in decision.plan.segments
        )
        return decision.backend, StepInputs(rows, seq_lens, segments, page_size)

    def _current_planner(self) -> Planner | CommonPrefixPlanner:
        """The planner; a flush gives the tree a new index and so makes a new one."""
        if self.tree is not None and self.tree.index is not self._index:
            self._index = self.tree.index
            self._planner = Planner(self._index)
        return self._planner
