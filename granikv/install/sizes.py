"""Measured sizes of what the locks bring, for Linux x86_64 and CPython 3.11."""

from granikv.install.locks import Size

# Download: the wheels' sizes as the index states them. Disk: `du` of .venv before and after.
SIZES = {
    "build": Size(download_mb=4, disk_mb=20),
    "base": Size(download_mb=150, disk_mb=600),
    "dev": Size(download_mb=50, disk_mb=150),
    "engine-cpu": Size(download_mb=500, disk_mb=1900),
    # Not installed where the locks were made: only the download is known, disk is taken as
    # twice that.
    "engine-gpu": Size(download_mb=3950, disk_mb=7900),
}

# What torch 2.13.0's CUDA build with its libraries adds to its CPU build.
CUDA_TORCH_EXTRA = Size(download_mb=2550, disk_mb=4500)


def gigabytes(megabytes: int) -> str:
    """A size for people."""
    return f"{megabytes / 1000:.1f} GB" if megabytes >= 1000 else f"{megabytes} MB"
