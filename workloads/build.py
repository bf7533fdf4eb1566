"""From a configuration to a workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from workloads import agents, multi_prefix, negative_control, sharegpt, synthetic, trace
from workloads.conversations import Tokenize
from workloads.options import Options
from workloads.request import Workload, WorkloadError

KINDS: dict[str, Callable[[Options, Tokenize | None], Workload]] = {
    "sharegpt": sharegpt.build,
    "multi_prefix": multi_prefix.build,
    "synthetic": synthetic.build,
    "negative_control": negative_control.build,
    "trace": trace.build,
    "agents": agents.build,
}
"""The registry: a new kind of workload is a module with a `build` and a line here."""


def build(config: Mapping[str, Any], *, tokenize: Tokenize | None = None) -> Workload:
    """The workload that a configuration of conf/workload/ describes.

    config: flat keys, `vocab_size` among them and `context_length` (tokens) where it is known.
    vocab_size is best the number of ordinary token ids: special ids above it are then never drawn.
    tokenize: text to token ids, in place of the configuration's `tokenizer` directory.
    The same configuration gives the same Workload.sha256 in every process. Raises WorkloadError,
    in one line, for anything that cannot be built.
    """
    kind = config.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise WorkloadError(f"unknown workload kind {kind!r}; there are: {', '.join(KINDS)}")
    return KINDS[kind](Options(config), tokenize)
