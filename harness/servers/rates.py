"""How fast the engine itself decoded, by its log: what it made, whatever of it was delivered.

SGLang's scheduler logs every 40 decode steps (`--decode-log-interval`) how many tokens it has made
since its line before, per second. Its HTTP front end is another process: where that is the slower
one, streams are delivered late, the engine waits for the next requests, and throughput at the
client says more about the front end than about attention.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from harness.metrics import STEADY_SHARE

NAN = float("nan")
BATCH = re.compile(
    r"^\[[-\d]+ [:\d]+(?P<rank>[^\]]*)\] (?P<kind>Prefill|Decode) batch\b(?P<rest>.*)", re.MULTILINE
)
DECODE = re.compile(
    r"#running-req: (?P<running>\d+),.*\bgen throughput \(token/s\): (?P<rate>\d+(?:\.\d+)?)"
)


class _Decode(NamedTuple):
    """One decode line: requests in the batch, and tok/s since the line before."""

    running: int
    rate: float


def of_window(text: str, output_tok_s_steady: float) -> dict[str, float]:
    """The metrics that need the server's log: `engine_decode_tok_s` and `delivered_share`.

    text: what the log gained in the measured window. output_tok_s_steady: as the client saw it.
    """
    engine = engine_decode_tok_s(text)
    return {
        "engine_decode_tok_s": engine,
        "delivered_share": delivered_share(output_tok_s_steady, engine),
    }


def engine_decode_tok_s(text: str) -> float:
    """The engine's decode rate in tok/s: the median, over lines that count, of the rate they give.

    A line's rate is the tokens made since the decode line before it / the time since then. It
    counts where no prefill stands between the two, whose time and the idling before it would be in
    the rate, and where at least STEADY_SHARE of the most requests of the window decode. Of several
    ranks the first counts: each makes all the tokens. NaN where no line counts.
    """
    batches = list(_batches(text))
    most = max((one.running for one in batches if one), default=0)
    rates = [
        after.rate
        for before, after in pairwise(batches)
        if before and after and after.running >= STEADY_SHARE * most
    ]
    return median(rates) if rates else NAN


def delivered_share(output_tok_s_steady: float, engine_decode_tok_s: float) -> float:
    """The client's rate in the steady window / what the engine decodes, both in tok/s.

    Prefills in the window lower it too; without any, well below 1 means that the front end, not the
    engine, set the throughput. NaN where either is not known.
    """
    return output_tok_s_steady / engine_decode_tok_s if engine_decode_tok_s > 0 else NAN


def _batches(text: str) -> Iterator[_Decode | None]:
    """The batches that one rank logged, in order; None for a prefill."""
    rank: str | None = None
    for line in BATCH.finditer(text):
        rank = line["rank"] if rank is None else rank
        if line["rank"] != rank:
            continue
        if line["kind"] == "Prefill":
            yield None
        elif found := DECODE.search(line["rest"]):
            yield _Decode(int(found["running"]), float(found["rate"]))
