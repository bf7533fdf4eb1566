"""Measured sizes of what the locks bring, for Linux x86_64 and CPython 3.11."""

from granikv.install.locks import Size

# Download: the wheels' sizes as the index states them. Disk: the installed files with their
# byte code, in the blocks of a common file system.
SIZES = {
    "build": Size(download_mb=4, disk_mb=25),
    "base": Size(download_mb=164, disk_mb=680),
    "dev": Size(download_mb=48, disk_mb=150),
    "engine-cpu": Size(download_mb=493, disk_mb=2000),
    # Resolved but not installed where the locks were made: disk is taken as twice the download.
    "engine-gpu": Size(download_mb=3930, disk_mb=7860),
}

# What torch 2.13.0's CUDA build with its libraries adds to its CPU build; disk as above.
CUDA_TORCH_EXTRA = Size(download_mb=2540, disk_mb=5080)


def gigabytes(megabytes: int) -> str:
    """A size for people."""
    return f"{megabytes / 1000:.1f} GB" if megabytes >= 1000 else f"{megabytes} MB"
