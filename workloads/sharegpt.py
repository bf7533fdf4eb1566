"""ShareGPT behind one shared prompt: the paper's main workload (§4.4, Tables 3 and 9–11)."""

from __future__ import annotations

from workloads import contents
from workloads.assemble import assemble
from workloads.conversations import Tokenize
from workloads.options import Common, Options
from workloads.request import Workload
from workloads.turns import TurnOptions, user_turns


def build(options: Options, tokenize: Tokenize | None) -> Workload:
    """`requests` user turns (500) behind one prefix of `prefix_length` tokens; 256 output tokens.

    The prefix is generated: the paper's is made from ShareGPT text that it does not name.
    """
    common = Common.read(options, requests=500, output_tokens=256)
    prefix_length = options.integer("prefix_length")
    read = TurnOptions.read(options)
    options.finish(common, prefix_length)
    turns = user_turns(options, common, read, tokenize)
    prefixes = contents.prefixes([prefix_length], common.vocab_size, common.seed)
    classes = [0] * common.requests
    return assemble(options.resolved, common, prefixes, classes, turns.tokens, turns.provenance)
