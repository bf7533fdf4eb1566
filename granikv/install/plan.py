"""Which steps a set-up consists of, in order, and which of them are left to do."""

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from granikv.install import steps
from granikv.install.errors import SetupError
from granikv.install.locks import Size
from granikv.install.sizes import CUDA_TORCH_EXTRA, SIZES, gigabytes
from granikv.install.workspace import Workspace

_NOTHING = Size(0, 0)


@dataclass(frozen=True)
class Step:
    """One restartable unit. A step whose stamp holds the same ``key`` is done.

    ``run`` returns a note for the stamp, such as the version it verified.
    """

    name: str
    title: str
    key: str
    run: Callable[[Workspace], str]
    size: Size = _NOTHING


def _key(*parts: object) -> str:
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()


def _lock_step(work: Workspace, name: str, title: str) -> Step:
    run = functools.partial(steps.install_lock, name=name, label=title)
    return Step(name, title, _key(work.lock(name).digest), run, SIZES[name])


def _project_key(work: Workspace) -> str:
    return _key(work.root, (work.root / "pyproject.toml").read_text(encoding="utf-8"))


def _cpu_steps(work: Workspace, cuda_torch: bool) -> list[Step]:
    size = SIZES["engine-cpu"]
    if cuda_torch:
        size = Size(
            size.download_mb + CUDA_TORCH_EXTRA.download_mb, size.disk_mb + CUDA_TORCH_EXTRA.disk_mb
        )
    install = functools.partial(steps.install_cpu_engine, cuda_torch=cuda_torch)
    key = _key("cpu", work.lock("engine-cpu").digest)
    return [
        Step("engine", "SGLang and torch for the CPU", key, install, size),
        Step("stand-ins", "CPU stand-ins", _key("cpu", work.root), steps.add_stand_ins),
    ]


def _gpu_steps(work: Workspace) -> list[Step]:
    title = "SGLang, torch and kernels for the GPU"
    install = functools.partial(steps.install_lock, name="engine-gpu", label=title)
    key = _key("gpu", work.lock("engine-gpu").digest)
    return [
        Step("engine", title, key, install, SIZES["engine-gpu"]),
        Step("stand-ins", "no CPU stand-ins", _key("gpu"), steps.remove_stand_ins),
    ]


def build_plan(work: Workspace, engine: str, *, dev: bool, cuda_torch: bool) -> list[Step]:
    """All steps for ``engine`` ("cpu", "gpu" or "none"), done or not.

    ``cuda_torch``: pip would take torch's CUDA build for the CPU engine; sizes follow.
    """
    plan = [
        Step("venv", "virtual environment", _key(work.venv), steps.make_venv),
        _lock_step(work, "build", "build tools"),
        _lock_step(work, "base", "harness, tables and figures"),
    ]
    if dev:
        plan.append(_lock_step(work, "dev", "linters and tests"))
    if engine == "cpu":
        plan += _cpu_steps(work, cuda_torch)
    elif engine == "gpu":
        plan += _gpu_steps(work)
    plan.append(Step("project", "granikv itself", _project_key(work), steps.install_project))
    if engine != "none":
        verify = functools.partial(steps.verify_engine, engine=engine)
        key = _key(work.root, *(step.key for step in plan if step.name in ("base", "engine")))
        plan.append(Step("verify", "import check", key, verify))
    return plan


def pending(work: Workspace, plan: Sequence[Step]) -> list[Step]:
    """The steps left to do; all of them when ``.venv`` has no working interpreter path."""
    if not work.python.exists():
        return list(plan)
    return [step for step in plan if not work.stamps.is_current(step.name, step.key)]


def total(todo: Sequence[Step]) -> Size:
    """What the steps download and take on disk together."""
    return Size(sum(s.size.download_mb for s in todo), sum(s.size.disk_mb for s in todo))


def announce(todo: Sequence[Step], free_mb: int) -> list[str]:
    """The lines that say what will be downloaded, printed before anything is."""
    lines = []
    for step in todo:
        if step.size.download_mb:
            download, disk = gigabytes(step.size.download_mb), gigabytes(step.size.disk_mb)
            lines.append(f"  {step.title}: download {download}, {disk} on disk")
    size = total(todo)
    if not lines:
        return ["  nothing to download"]
    lines.append(
        f"  together: download about {gigabytes(size.download_mb)} (less what pip has cached), "
        f"{gigabytes(size.disk_mb)} on disk; free: {gigabytes(free_mb)}"
    )
    return lines


def check_space(todo: Sequence[Step], free_mb: int) -> None:
    """Raise SetupError when the downloads and what they unpack to cannot fit."""
    size = total(todo)
    wanted = size.download_mb + size.disk_mb
    if free_mb < wanted:
        raise SetupError(
            f"not enough disk space: {gigabytes(wanted)} wanted for download and installation, "
            f"{gigabytes(free_mb)} free"
        )
