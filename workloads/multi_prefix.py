"""Several shared prompts at once: equal ones (Appendix B.8, Table 20), unequal ones (Table 21)."""

from __future__ import annotations

from workloads import contents
from workloads.assemble import assemble
from workloads.conversations import Tokenize
from workloads.options import Common, Options
from workloads.request import Workload, WorkloadError
from workloads.streams import Stream, StreamName
from workloads.turns import TurnOptions, user_turns

ASSIGNMENTS = ("seeded", "round_robin")


def build(options: Options, tokenize: Tokenize | None) -> Workload:
    """User turns, each behind one of k prefixes; 500 requests and 256 output tokens by default.

    Equal prefixes: `prefix_count` and `prefix_length`; unequal ones: the list `prefix_lengths`.
    `assignment` gives a request its class: "seeded" draws it, "round_robin" takes turns.
    `common_head` tokens open every prefix alike (a chat template) and count in its length.
    """
    common = Common.read(options, requests=500, output_tokens=256)
    lengths = _prefix_lengths(options)
    assignment = options.choice("assignment", "seeded", ASSIGNMENTS)
    common_head = options.integer("common_head", 0, minimum=0)
    if common_head >= min(lengths):
        raise WorkloadError(
            f"common_head {common_head} must be shorter than the shortest prefix, {min(lengths)}"
        )
    read = TurnOptions.read(options)
    options.finish(common, max(lengths))
    turns = user_turns(options, common, read, tokenize)
    prefixes = contents.prefixes(lengths, common.vocab_size, common.seed, common_head)
    classes = _classes(assignment, len(lengths), common)
    return assemble(options.resolved, common, prefixes, classes, turns.tokens, turns.provenance)


def _prefix_lengths(options: Options) -> tuple[int, ...]:
    unequal = options.integers("prefix_lengths")
    if unequal is None:
        count = options.integer("prefix_count")
        return (options.integer("prefix_length"),) * count
    if options.has("prefix_count") or options.has("prefix_length"):
        raise WorkloadError("give either prefix_lengths or prefix_count with prefix_length")
    return unequal


def _classes(assignment: str, count: int, common: Common) -> list[int]:
    if assignment == "round_robin":
        return [index % count for index in range(common.requests)]
    stream = Stream(common.seed, StreamName.CLASSES)
    drawn: list[int] = stream.below(count, common.requests).tolist()
    return drawn
