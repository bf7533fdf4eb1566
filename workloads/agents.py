"""Agent sessions: dialogues that grow turn by turn behind one shared system prompt."""

from __future__ import annotations

import numpy as np

from workloads import contents
from workloads.conversations import Tokenize
from workloads.options import Basics, Options
from workloads.request import Request, Workload, WorkloadError
from workloads.streams import Stream, StreamName


def build(options: Options, tokenize: Tokenize | None) -> Workload:
    """`requests` in dialogues of `turns` each (the last may be shorter) behind one shared prefix.

    A turn's prompt is the former turn's, an answer of `output_tokens` tokens and a new message of
    `message_min` to `message_max` tokens (a user's, or a tool's result). It is asked once the
    former turn is answered and a think time has passed, exponential with mean `think_s`. Arrivals
    are those of sessions.

    The answers inside the prompts are generated, not the model's: every system is asked the same,
    and what it generated itself is not asked again. All token ids are generated.
    """
    basics = Basics.of(options)
    count, turns = options.integer("requests", 512), options.integer("turns", 8)
    sessions = -(-count // turns)
    prefix_length = options.integer("prefix_length")
    smallest = options.integer("message_min", 32)
    largest = options.integer("message_max", smallest)
    answer = options.integer("output_tokens", 128)
    think_s = options.seconds("think_s", 1.0)
    options.check_known()
    if smallest > largest:
        raise WorkloadError(f"message_min {smallest} is above message_max {largest}")
    basics.check_length(prefix_length + turns * (largest + answer) - answer, answer)
    stream = Stream(basics.seed, StreamName.LENGTHS)
    drawn = smallest + stream.below(largest - smallest + 1, sessions * turns)
    # Message, answer, message, …: the last message is not followed by an answer.
    lengths = [
        [length for message in each for length in (message, answer)][:-1]
        for each in drawn.reshape(sessions, turns).tolist()
    ]
    prefix = contents.prefixes([prefix_length], basics.vocab_size, basics.seed)[0]
    waits = -think_s * np.log1p(-Stream(basics.seed, StreamName.THINK_TIMES).unit(drawn.size))
    requests = []
    for session, parts in enumerate(contents.messages(lengths, basics.vocab_size, basics.seed)):
        for index in range(session * turns, min(count, (session + 1) * turns)):
            turn = index % turns
            requests.append(
                Request(
                    index=index,
                    input_ids=np.concatenate([prefix, *parts[: 2 * turn + 1]]),
                    max_new_tokens=answer,
                    prefix_class=0,
                    prefix_len=prefix_length,
                    after=index - 1 if turn else None,
                    think_s=round(float(waits[index]), 6) if turn else 0.0,
                )
            )
    return Workload(
        name=basics.name,
        requests=tuple(requests),
        prefixes=(prefix,),
        parameters=options.resolved,
        provenance="generated agent sessions: lengths, think times and all token ids drawn",
        seed=basics.seed,
        reuse_is_timed=True,
    )
