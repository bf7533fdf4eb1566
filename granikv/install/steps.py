"""What each set-up step does. A step is safe to run again after it was cut short."""

import re
import shutil

from granikv.install.errors import SetupError
from granikv.install.runner import run_logged
from granikv.install.workspace import Workspace, pip_environment

TORCH = "torch"
_LOCKED = ("--no-deps", "--no-build-isolation")
_CPU_ENVIRONMENT = {"SGLANG_USE_CPU_ENGINE": "1", "OMP_NUM_THREADS": "1"}
# The packages' own tests are a sixth of all source and never run.
_COMPILE = (
    "import compileall, re, sys\n"
    "tests = re.compile('/_?tests?/')\n"
    "compileall.compile_dir(sys.argv[1], rx=tests, quiet=2, workers=0)\n"
)
_VERIFY = (
    "import sglang.srt.entrypoints.engine, sglang.srt.entrypoints.http_server, torch, sglang\n"
    "print('VERIFIED', sglang.__version__, torch.__version__, torch.cuda.is_available())\n"
)


def make_venv(work: Workspace) -> str:
    """An empty virtual environment; whatever a cut-short or moved one held is removed."""
    for entry in work.venv.iterdir():
        if entry == work.state:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    for stamp in work.state.glob("*.json"):
        stamp.unlink()
    work.make_venv()
    return ""


def install_lock(work: Workspace, name: str, label: str) -> str:
    """All pins of one lock file; closed under dependencies, so pip need not resolve."""
    work.pip(label, *_LOCKED, "-r", str(work.lock(name).path))
    # Where PYTHONDONTWRITEBYTECODE is set nothing else compiles, and each of a server's processes
    # would compile SGLang anew at its start. Files that are no valid Python are passed over.
    work.run(f"{label}, byte-compiling", ["-c", _COMPILE, str(work.site)], {})
    return ""


def torch_is_cuda_build(work: Workspace) -> bool | None:
    """Whether pip's indexes offer only the CUDA build of the pinned torch; None if they are mute.

    A CPU build carries the local version label ``+cpu``, which pip prefers where it is offered.
    """
    version = work.lock("engine-cpu").pins[TORCH]
    command = [str(work.python), "-m", "pip", "index", "versions", TORCH]
    try:
        output = run_logged(command, work.state / "probe.log", "torch builds", pip_environment())
    except SetupError:
        return None
    return re.search(rf"\b{re.escape(version)}\+cpu\b", output) is None


def install_cpu_engine(work: Workspace, *, cuda_torch: bool) -> str:
    """torch first, so that nothing after it asks pip for another; then SGLang and the rest."""
    lock = work.lock("engine-cpu")
    pin = f"{TORCH}=={lock.pins[TORCH]}"
    if cuda_torch:
        limits = work.state / "torch-constraints.txt"
        # The CUDA build brings its own triton; the lock's replaces it below.
        pins = work.lock("base").pins | lock.pins
        keep = {name: v for name, v in pins.items() if name not in (TORCH, "triton")}
        limits.write_text("\n".join(f"{name}=={v}" for name, v in keep.items()), encoding="utf-8")
        work.pip(TORCH, "-c", str(limits), pin)
    else:
        work.pip(TORCH, *_LOCKED, pin)
    return install_lock(work, "engine-cpu", "SGLang")


def add_stand_ins(work: Workspace) -> str:
    """Put the stand-ins for packages without a CPU build on the path of ``.venv``."""
    folder = work.root / "granikv" / "install" / "stand_ins"
    work.pth.write_text(f"{folder}\n", encoding="utf-8")
    return ""


def remove_stand_ins(work: Workspace) -> str:
    """A GPU has the real packages."""
    work.pth.unlink(missing_ok=True)
    return ""


def install_project(work: Workspace) -> str:
    """The checkout itself, editable: the ``granikv`` command and SGLang's plugin entry point."""
    work.pip("granikv", *_LOCKED, "-e", str(work.root))
    return ""


def verify_engine(work: Workspace, engine: str) -> str:
    """Import SGLang's engine and HTTP server as a server process does; returns the versions.

    Raises SetupError when they do not import, or when a GPU engine sees no GPU.
    """
    environment = _CPU_ENVIRONMENT if engine == "cpu" else {}
    output = work.run("SGLang import", ["-W", "ignore", "-c", _VERIFY], environment)
    match = re.search(r"^VERIFIED (\S+) (\S+) (True|False)$", output, re.MULTILINE)
    if match is None:
        raise SetupError(f"SGLang's import check printed no version: see {work.state}/python.log")
    if engine == "gpu" and match[3] == "False":
        raise SetupError(
            "torch sees no GPU though the driver does: check CUDA_VISIBLE_DEVICES and the driver"
        )
    place = "the CPU" if engine == "cpu" else "the GPU"
    return f"SGLang {match[1]}, torch {match[2]}, on {place}"
