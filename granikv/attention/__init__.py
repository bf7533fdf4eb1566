"""Decode attention over hot slabs and cold slots: one file a backend, behind one interface."""

from granikv.attention.cascade import CascadeBackend
from granikv.attention.contiguous_unshared import ContiguousUnsharedBackend
from granikv.attention.dense import DenseBackend
from granikv.attention.interface import DecodeBackend, Partial, Segment, StepInputs
from granikv.attention.merge import lse_base2_to_natural, lse_natural_to_base2, merge
from granikv.attention.paged import PagedBackend
from granikv.attention.reference import ReferenceBackend, attend

__all__ = [
    "BACKENDS",
    "DecodeBackend",
    "Partial",
    "Segment",
    "StepInputs",
    "attend",
    "backend",
    "lse_base2_to_natural",
    "lse_natural_to_base2",
    "merge",
]

BACKENDS: dict[str, type[DecodeBackend]] = {
    cls.name: cls
    for cls in (
        PagedBackend,
        CascadeBackend,
        DenseBackend,
        ContiguousUnsharedBackend,
        ReferenceBackend,
    )
}


def backend(name: str) -> DecodeBackend:
    """The backend of that name. Raises ValueError, listing the names, for any other."""
    try:
        return BACKENDS[name]()
    except KeyError:
        known = ", ".join(BACKENDS)
        raise ValueError(f"no attention backend {name!r}; there are: {known}") from None
