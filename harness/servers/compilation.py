"""Whether a server compiled something while it was measured.

Two witnesses: lines of its log, and files in its kernels' caches on disk. Triton and FlashInfer
compile without a word, so that on a GPU the log alone would miss the most frequent case.
"""

from __future__ import annotations

import getpass
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from harness.servers.log import added

PATTERNS: dict[str, re.Pattern[str]] = {
    "CUDA graph capture": re.compile(
        r"\bCapture .*\bgraph\b|\bCapturing (?:batches|num tokens)\b|\bcaptured \d+ CUDA graphs\b"
    ),
    "Triton autotuning": re.compile(
        r"\bTriton autotuning for function\b|\bAutotuning kernel \S+ with config\b"
    ),
    "FlashInfer autotuning": re.compile(
        r"\[Auto[Tt]uner\]: (?:Autotuning|Tuning)\b|\bRunning FlashInfer autotune\b"
    ),
    "torch.compile": re.compile(
        r"^AUTOTUNE \w+\(|\bAutotune Choices Stats\b|\bCompiling a graph for\b|\btorch\._inductor\b"
    ),
    "DeepGEMM": re.compile(r"\bDeepGEMM (?:JIT Compiling|warmup)\b"),
    "FlashInfer JIT": re.compile(r"\bflashinfer\.jit: (?:Generat|Compil|Build)", re.IGNORECASE),
    "SGLang JIT": re.compile(r"\bCached JIT module \S+ failed to load; rebuilding\b"),
    "a C++ or CUDA build": re.compile(
        r"\bninja: |\bBuilding extension module\b|\bEmitting ninja build file\b"
        r"|^\[\d+/\d+\] .*(?:nvcc|ptxas|\bc\+\+|g\+\+|clang)|\bptxas info\b"
    ),
    "compilation": re.compile(r"\b(?:JIT|just-in-time)[ -]compil|\bCompiling\b", re.IGNORECASE),
}
"""Lines that are printed when something is compiled, tuned or captured; the first match names it.

Read from SGLang 0.5.17 (graph runners, flashinfer_autotune, deep_gemm_wrapper, kernels/jit),
FlashInfer 0.6.15 (jit, autotuner), Triton 3.6 (autotuner), PyTorch (inductor, cpp_extension) and
ninja."""

# The echo of the server's arguments names many of these words and compiles nothing.
NOT_WORK = re.compile(r"server_args=ServerArgs\(|ninja: no work to do")

KERNEL_FILES = frozenset({".cubin", ".ptx", ".so", ".o", ".hsaco"})
SHOWN = 160


@dataclass
class Compilations:
    """What was compiled in a window, one line each, complete once the window has closed.

    log: all that the server's log gained meanwhile.
    """

    log: str = ""
    found: list[str] = field(default_factory=list)

    @property
    def reasons(self) -> list[str]:
        """One reason against the cell, or none."""
        if not self.found:
            return []
        more = f" (and {len(self.found) - 1} more)" if len(self.found) > 1 else ""
        return [f"the server compiled inside the measured window: {self.found[0]}{more}"]


@contextmanager
def watch(log: Path, caches: Sequence[Path] = ()) -> Iterator[Compilations]:
    """Collect what the server compiles while the block runs.

    log: the server's. caches: directories of compiled kernels (`caches_of`); a file that another
    program puts there counts too.
    """
    compilations, known = Compilations(), kernels(caches)
    with added(log) as gained:
        yield compilations
    compilations.log = gained.text
    compilations.found += in_text(gained.text)
    new = kernels(caches).items() - known.items()
    compilations.found += [f"new kernel {path.name}" for path, _ in sorted(new)]


def in_text(text: str) -> list[str]:
    """The lines of a log excerpt that tell of work in PATTERNS, each with what it is."""
    return [
        f"{what}: {line.strip()[:SHOWN]}"
        for line in re.split(r"[\r\n]+", text)
        if (what := _what(line)) is not None
    ]


def _what(line: str) -> str | None:
    if NOT_WORK.search(line):
        return None
    return next((what for what, pattern in PATTERNS.items() if pattern.search(line)), None)


def caches_of(environment: Mapping[str, str]) -> list[Path]:
    """Where a server with this environment keeps compiled kernels: its own choices or defaults."""
    home = Path(environment.get("HOME") or Path.home())

    def chosen(name: str, default: Path) -> Path:
        return Path(environment[name]) if environment.get(name) else default

    inductor = Path(tempfile.gettempdir()) / f"torchinductor_{_user()}"
    return [
        chosen("TRITON_CACHE_DIR", chosen("TRITON_HOME", home) / ".triton" / "cache"),
        chosen("FLASHINFER_WORKSPACE_BASE", home) / ".cache" / "flashinfer",
        chosen("TVM_FFI_CACHE_DIR", home / ".cache" / "tvm-ffi"),
        chosen("SGLANG_DG_CACHE_DIR", home / ".cache" / "deep_gemm"),
        chosen("TORCHINDUCTOR_CACHE_DIR", inductor),
    ]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def kernels(caches: Sequence[Path]) -> dict[Path, int]:
    """The compiled files below these directories with the time each was written, in ns."""
    found = {}
    for cache in caches:
        for directory, _, names in os.walk(cache):
            for name in names:
                path = Path(directory, name)
                if path.suffix in KERNEL_FILES:
                    # A compiler may put another file in its place meanwhile.
                    with suppress(OSError):
                        found[path] = path.stat().st_mtime_ns
    return found
