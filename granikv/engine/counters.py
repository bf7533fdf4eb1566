"""What happened in the storage layer since the server started; read through `/server_info`."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class StorageCounters:
    """Events and slots, counted since start.

    Attributes:
        relocations: slabs made; `relocated_tokens` slots copied for them.
        rows_rewritten: live rows of the page table that were repointed.
        admissions_hot, admissions_refused: slabs placed; attempts that found no range.
        slab_evictions, cold_evictions: nodes evicted from each pool.
        donations, donated_tokens: loans of HOT space to COLD; `take_backs` and
            `returned_tokens`: loans that came back whole.
        resets: times the cache was flushed.
    """

    relocations: int = 0
    relocated_tokens: int = 0
    relocated_nodes: int = 0
    slabs_extended: int = 0
    rows_rewritten: int = 0
    admissions_hot: int = 0
    admissions_refused: int = 0
    slab_evictions: int = 0
    cold_evictions: int = 0
    donations: int = 0
    donated_tokens: int = 0
    take_backs: int = 0
    returned_tokens: int = 0
    resets: int = 0
    audits: int = 0

    def as_dict(self) -> dict[str, int]:
        """All counters by name."""
        return asdict(self)
