"""Whether systems gave the same tokens: exact where the engine computes in float32."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from harness.store import Cell

REFERENCE = "sglang_default"
EXACT_DTYPE = "float32"


@dataclass(frozen=True)
class Agreement:
    """One system beside SGLang default.

    equal, compared: requests with the same greedy tokens, and all that both answered. workloads:
    how many distinct ones they come from.
    """

    system: str
    equal: int
    compared: int
    workloads: int

    @property
    def holds(self) -> bool:
        """Every output is equal."""
        return self.equal == self.compared

    def __str__(self) -> str:
        return (
            f"{self.system}: {self.equal} of {self.compared} greedy outputs equal {REFERENCE}'s "
            f"({self.workloads} workloads)"
        )


def _exact(cell: Cell) -> bool:
    facts = cell.record["server"].get("facts", {})
    return cell.valid and facts.get("dtype") == EXACT_DTYPE


def _outputs(cell: Cell) -> pd.Series[str]:
    log = cell.requests
    return log[log["ok"]].set_index("index")["output_sha256"]


def _key(cell: Cell) -> tuple[str, str]:
    return cell.record["workload"]["sha256"], cell.config["model"]["name"]


def compare(cells: Iterable[Cell]) -> list[Agreement]:
    """Each system's outputs beside the reference's, over the valid float32 cells; sorted by name.

    Lower precisions are left out: there a batch of another size may round another way.
    """
    exact = [cell for cell in cells if _exact(cell)]
    reference = {_key(cell): _outputs(cell) for cell in exact if cell.system == REFERENCE}
    found: dict[str, list[tuple[int, int]]] = {}
    for cell in exact:
        if cell.system == REFERENCE or _key(cell) not in reference:
            continue
        both = pd.concat([reference[_key(cell)], _outputs(cell)], axis=1, join="inner")
        equal = int((both.iloc[:, 0] == both.iloc[:, 1]).sum())
        found.setdefault(cell.system, []).append((equal, len(both)))
    return [
        Agreement(system, sum(e for e, _ in counts), sum(n for _, n in counts), len(counts))
        for system, counts in sorted(found.items())
    ]
