"""Replay of a recorded trace: its times, its lengths and what its prompts share (Mooncake)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workloads import block_trace, contents
from workloads.block_trace import TraceRequest
from workloads.conversations import Tokenize, sha256_of
from workloads.options import Basics, Options
from workloads.request import Request, Workload, WorkloadError

DATA = Path(__file__).parent / "data"
SHIPPED = {
    "conversation": "mooncake_conversation.jsonl.gz",
    "toolagent": "mooncake_toolagent.jsonl.gz",
}
"""Excerpts that come with the package (data/SOURCE.md)."""


@dataclass(frozen=True)
class _Shape:
    """How lengths of the trace become lengths here: divided by scale. block: of one."""

    block: int
    scale: int

    def prompt(self, request: TraceRequest) -> int:
        """Tokens of a prompt: whole blocks, and the last one's part, at least 1."""
        whole = self.block * (len(request.blocks) - 1)
        return whole + -(-(request.input_length - whole * self.scale) // self.scale)

    def output(self, request: TraceRequest) -> int:
        """Output tokens."""
        return -(-request.output_length // self.scale)


def build(options: Options, tokenize: Tokenize | None) -> Workload:
    """The requests of a trace, due at their recorded times (load=replay keeps these).

    `trace` names a shipped excerpt; `trace_file` is a user's own in Mooncake's form. `skip` leaves
    out the first ones, `requests` takes at most so many of the rest (null: all), `max_prompt`
    leaves out longer prompts. `scale` divides lengths and block size. Prompt lengths are exact; two
    prompts share the blocks whose ids they share and not a token more; token ids are generated.
    """
    basics = Basics.of(options)
    scale = options.integer("scale", 1)
    block_tokens = options.integer("block_tokens", 512)
    if block_tokens % scale:
        raise WorkloadError(f"scale {scale} must divide block_tokens {block_tokens}")
    shape = _Shape(block_tokens // scale, scale)
    name = options.choice("trace", "conversation", tuple(SHIPPED))
    path = options.path("trace_file")
    skip = options.integer("skip", 0, minimum=0)
    wanted = options.optional_integer("requests")
    longest = options.optional_integer("max_prompt")
    options.check_known()
    file = path or DATA / SHIPPED[name]
    recorded = block_trace.read(file, block_tokens)
    options.resolved["trace_sha256"] = sha256_of(file)
    fitting = [r for r in recorded[skip:] if longest is None or shape.prompt(r) <= longest]
    taken = fitting[:wanted]
    if not taken:
        limit = f" of at most {longest} prompt tokens" if longest else ""
        raise WorkloadError(f"the trace has no request{limit} after the first {skip}")
    source = "the user's own trace" if path else f"an excerpt of Mooncake's {name} trace"
    return Workload(
        name=basics.name,
        requests=_requests(taken, shape, basics),
        prefixes=(),
        parameters=options.resolved,
        provenance=f"{source}: times, lengths and shared blocks as recorded"
        f"{f', lengths divided by {scale}' if scale > 1 else ''}"
        f"{f', without prompts above {longest} tokens' if longest else ''}"
        "; all token ids generated",
        seed=basics.seed,
        reuse_is_timed=True,
    )


def _requests(taken: list[TraceRequest], shape: _Shape, basics: Basics) -> tuple[Request, ...]:
    for request in taken:
        basics.check_length(shape.prompt(request), shape.output(request))
    numbers = block_trace.siblings(taken)
    blocks = contents.blocks(numbers, shape.block, basics.vocab_size, basics.seed)
    began = taken[0].timestamp_ms
    return tuple(
        Request(
            index=index,
            input_ids=np.concatenate([blocks[b] for b in request.blocks])[: shape.prompt(request)],
            max_new_tokens=shape.output(request),
            due_s=(request.timestamp_ms - began) / 1000,
        )
        for index, request in enumerate(taken)
    )
