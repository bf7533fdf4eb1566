"""Hydra finds sweepers in this namespace alone; what this one does is in `harness.sweeps`."""

from __future__ import annotations

from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class CellSweeper(Sweeper):
    """Cells of an experiment, planned before the first is measured (`hydra.sweeper` in conf/).

    params: the experiment's product. order: `harness.sweeps.order`.
    """

    def __init__(self, params: DictConfig | None, order: str) -> None:
        self.order = order

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Called by Hydra once the configuration is composed."""
        self.composed = config
        self.launcher: Launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Plan, estimate, launch; raises SweepError when a cell failed."""
        from harness.sweeps import multirun

        return multirun.sweep(arguments, self.order, self.launcher, self.composed)
