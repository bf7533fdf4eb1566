"""A closed loop: so many clients, each sending its next request when the last is answered."""

from __future__ import annotations

from harness.load.burst import Burst


class Closed(Burst):
    """permits: the number of clients. A request is due when its client is free."""

    kind = "closed"
    due_when_permitted = True

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """Options of this load."""
        return ("permits",)
