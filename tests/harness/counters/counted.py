"""What Nsight Compute prints: its list of metrics, and a raw page in CSV; made-up numbers."""

from __future__ import annotations

QUERY = """\
Device NVIDIA H200 (GH100)
------------------------------------------------------- --------------- --------------- --------
Metric Name                                             Metric Type     Metric Unit     Description
------------------------------------------------------- --------------- --------------- --------
dram__bytes_read                                        Counter         byte            # of bytes
gpu__time_duration                                      Counter         nsecond         time
lts__t_sector_hit_rate                                  Ratio           %               hits
sm__inst_executed_pipe_tensor_op_hmma                   Counter         inst            # of HMMA
sm__ops_path_tensor_op_hmma_src_bf16_dst_fp32           Counter                         ops
"""
PIPE = "sm__pipe_tensor_cycles_active"
TENSOR = f"{PIPE}.avg.pct_of_peak_sustained_active"
HEADER = [
    "ID",
    "Kernel Name",
    "dram__bytes_read.sum",
    "lts__t_sector_hit_rate.pct",
    TENSOR,
    "launch__waves_per_multiprocessor",
    "gpu__time_duration.sum",
]
UNITS = ["", "", "byte", "%", "%", "", "nsecond"]


def page(*launches: list[str]) -> str:
    """A raw page in CSV, as ncu prints it after its own messages."""
    rows = [HEADER, UNITS, *launches]
    lines = [",".join(f'"{field}"' for field in row) for row in rows]
    return "\n".join(["==PROF== Connected to process 1", *lines])


GOOD = ["0", "_prefix_kernel", "33,600,000", "89.1", "62.5", "4.7", "64000"]
OTHER = ["1", "_prefix_kernel", "33,800,000", "88.9", "61.5", "4.7", "66000"]
