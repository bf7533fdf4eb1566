"""The negative control: prompts as long as ShareGPT's that share nothing.

A prefix cache must show no gain on them; where one does, the measurement is at fault.
"""

from __future__ import annotations

from workloads import contents
from workloads.assemble import assemble
from workloads.conversations import Tokenize
from workloads.options import Common, Options
from workloads.request import NO_PREFIX, Workload
from workloads.turns import TurnOptions, user_turns


def build(options: Options, tokenize: Tokenize | None) -> Workload:
    """Request i is as long as request i of `sharegpt` under the same parameters, and all its own.

    No two prompts have the same first token, so that not one token can be reused.
    """
    common = Common.read(options, requests=500, output_tokens=256)
    prefix_length = options.integer("prefix_length")
    read = TurnOptions.read(options)
    options.finish(common, prefix_length)
    turns = user_turns(options, common, read, tokenize)
    lengths = [prefix_length + turn for turn in turns.lengths]
    prompts = contents.suffixes(lengths, common.vocab_size, common.seed)
    classes = [NO_PREFIX] * common.requests
    provenance = f"nothing shared, all token ids generated, as long as: {turns.provenance}"
    return assemble(options.resolved, common, [], classes, prompts, provenance)
