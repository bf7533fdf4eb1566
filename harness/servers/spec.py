"""What a server is: its command line and environment, without the port it happens to get."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from harness.files import identity


def servers(root: Path) -> Path:
    """Where a results directory's servers lie; a Slurm job, which has its node's GPUs, has its own.

    Other nodes share the directory but neither the processes nor the ports.
    """
    return root / "servers" / os.environ.get("SLURM_JOB_ID", "")


@dataclass(frozen=True)
class ServerSpec:
    """One server configuration.

    title: for messages. arguments: after `python -m module`, without host and port. device: name of
    the lock that lets one server at a time be measured. root: the results directory; paths below it
    do not count in the hash, so that a results directory can be moved. wrapper: what stands before
    the command, such as a profiler. share: of the device's memory; servers whose shares fit stay up
    side by side.
    """

    title: str
    python: str
    module: str
    arguments: tuple[str, ...]
    environment: dict[str, str] = field(hash=False)
    device: str
    root: Path
    wrapper: tuple[str, ...] = ()
    share: float = 1.0

    @property
    def hash(self) -> str:
        """Identity of the configuration: equal for every cell that one server can serve."""
        root = str(self.root.resolve())
        arguments = [argument.replace(root, "<results>") for argument in self.arguments]
        parts = [self.module, arguments, self.environment, self.device]
        if self.wrapper:
            parts.append([argument.replace(root, "<results>") for argument in self.wrapper])
        return identity(parts)

    @property
    def directory(self) -> Path:
        """Where its lock, its state and its logs lie."""
        return servers(self.root) / self.hash

    def command(self, port: int) -> list[str]:
        """The full command line, bound to the loopback interface."""
        address = ["--host", "127.0.0.1", "--port", str(port)]
        return [*self.wrapper, self.python, "-m", self.module, *self.arguments, *address]
