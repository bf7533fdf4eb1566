"""Putting prefixes and suffixes together into a workload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from workloads.options import Common
from workloads.request import NO_PREFIX, Request, Tokens, Workload


def assemble(
    parameters: dict[str, Any],
    common: Common,
    prefixes: Sequence[Tokens],
    classes: Sequence[int],
    suffixes: Sequence[Tokens],
    provenance: str,
) -> Workload:
    """Request i is prefixes[classes[i]] (nothing for NO_PREFIX) followed by suffixes[i].

    Raises WorkloadError if a prompt and its output do not fit the model's context.
    """
    requests = tuple(
        _request(index, prefixes, prefix_class, suffix, common.output_tokens)
        for index, (prefix_class, suffix) in enumerate(zip(classes, suffixes, strict=True))
    )
    common.check_fits(max(request.prompt_len for request in requests))
    return Workload(
        name=common.name,
        requests=requests,
        prefixes=tuple(prefixes),
        parameters=parameters,
        provenance=provenance,
        seed=common.seed,
    )


def _request(
    index: int,
    prefixes: Sequence[Tokens],
    prefix_class: int,
    suffix: Tokens,
    output_tokens: int,
) -> Request:
    if prefix_class == NO_PREFIX:
        return Request(index, suffix, output_tokens)
    prefix = prefixes[prefix_class]
    return Request(
        index,
        np.concatenate([prefix, suffix]),
        output_tokens,
        prefix_class=prefix_class,
        prefix_len=int(prefix.size),
    )
