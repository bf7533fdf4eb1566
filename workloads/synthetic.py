"""The synthetic burst grid (Appendix B.1, Tables 6–8): B requests at once behind one prefix."""

from __future__ import annotations

from workloads import contents
from workloads.arrivals import burst, with_arrivals
from workloads.assemble import assemble
from workloads.conversations import Tokenize
from workloads.options import Common, Options
from workloads.request import Workload, WorkloadError
from workloads.streams import Stream, StreamName


def build(options: Options, tokenize: Tokenize | None) -> Workload:
    """`requests` (the paper's B, 256) behind one prefix, 128 output tokens each, all due at 0.

    Suffix lengths are uniform in [suffix_min, suffix_max] (128 and 128: the paper does not give
    them). `tokenize` is not used: every token is generated.
    """
    common = Common.read(options, requests=256, output_tokens=128)
    prefix_length = options.integer("prefix_length")
    smallest = options.integer("suffix_min", 128)
    largest = options.integer("suffix_max", smallest)
    if smallest > largest:
        raise WorkloadError(f"suffix_min {smallest} is above suffix_max {largest}")
    options.finish(common, prefix_length + largest - 1)
    stream = Stream(common.seed, StreamName.LENGTHS)
    lengths = smallest + stream.below(largest - smallest + 1, common.requests)
    suffixes = contents.suffixes(lengths.tolist(), common.vocab_size, common.seed)
    prefixes = contents.prefixes([prefix_length], common.vocab_size, common.seed)
    provenance = "synthetic burst: suffix lengths and all token ids generated"
    workload = assemble(
        options.resolved, common, prefixes, [0] * common.requests, suffixes, provenance
    )
    return with_arrivals(workload, burst(common.requests))
