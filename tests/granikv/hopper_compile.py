"""Compiles the Hopper kernels for sm_90a with no GPU, and prints what they need, as JSON."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from granikv.attention.kernels.config import PrefixConfig, StepConfig, SuffixConfig
from granikv.bench.kernels import Bench, Case, Read

CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
RING = SuffixConfig(64, 132, 4, 3, "ring")
BESIDE = PrefixConfig(128, 64, 132, 8, 3, "specialised", 128, q_shared=False)
CONFIGS = {
    "launches": StepConfig(BESIDE, RING, "none", early=True),
    "fused": StepConfig(
        BESIDE._replace(num_stages=2), RING._replace(block_n=128, num_stages=2), "fused", early=True
    ),
}


class Hopper:
    """As much of a driver as compiling asks for."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def resources(kernel: Any) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(kernel.asm["cubin"])
        command = [str(CUOBJDUMP), "--dump-resource-usage", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    ptx = kernel.asm["ptx"]
    return {
        "shared": kernel.metadata.shared,
        "warps": kernel.metadata.num_warps,
        "registers": int(re.findall(r"REG:(\d+)", said)[0]),
        "stack": int(re.findall(r"STACK:(\d+)", said)[0]),
        "wgmma": ptx.count("wgmma.mma_async"),
        "bulk_copies": ptx.count("cp.async.bulk.tensor"),
        "copies": ptx.count("cp.async.cg"),
        "triggers": ptx.count("griddepcontrol.launch_dependents"),
        "waits": ptx.count("griddepcontrol.wait"),
    }


def main() -> None:
    driver.set_active(Hopper())
    launch = JITFunction.run
    compiled: dict[str, dict[str, Any]] = {}

    def compile_only(
        self: Any, *args: Any, grid: Any, warmup: bool = False, **options: Any
    ) -> None:
        if self.is_gluon() or self.__name__ == "_merge_kernel":
            kernel = launch(self, *args, grid=(1,), warmup=True, **options)
            compiled[name][self.__name__] = resources(kernel)

    JITFunction.run = compile_only
    case = Case("compiled", 16, 8, (32, 8), 128, (Read(0, 16, 0, 64),))
    for name, config in CONFIGS.items():
        compiled[name] = {}
        bench = Bench(case, 1, config, torch.bfloat16, "cpu")
        bench.whole(0)
    print(json.dumps(compiled))


if __name__ == "__main__":
    main()
