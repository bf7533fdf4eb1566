"""Amdahl's law as the paper uses it (§4.6, Eq. 3; B.9, Eq. 4; Table 22).

Shares are fractions of the decode step's wall time: alpha of the prefix-attention kernel, beta of
NCCL, gamma of the host gap (GPU idle). Speedups are ratios, 1.0 = unchanged.
"""

from __future__ import annotations

import math


def _check_share(**shares: float) -> None:
    for name, share in shares.items():
        if not 0.0 <= share <= 1.0:
            raise ValueError(
                f"{name} = {share} is not a share of the step: give a fraction in [0, 1]"
            )


def speedup(alpha: float, s: float) -> float:
    """Eq. 3: end-to-end speedup when the share `alpha` runs `s` times faster."""
    _check_share(alpha=alpha)
    if s <= 0:
        raise ValueError(f"kernel speedup {s} must be positive")
    return 1.0 / ((1.0 - alpha) + alpha / s)


def speedup_with_fixed_terms(alpha: float, beta: float, gamma: float, s_eff: float) -> float:
    """Eq. 4 as published, with NCCL and the host gap named as terms that do not shrink.

    The paper subtracts beta and gamma from the remainder and adds them back, so this equals Eq. 3
    for every beta and gamma; it is kept in that form because the paper prints it so.
    """
    _check_share(alpha=alpha, beta=beta, gamma=gamma)
    if alpha + beta + gamma > 1.0 + 1e-12:
        raise ValueError("alpha + beta + gamma is more than the whole step")
    if s_eff <= 0:
        raise ValueError(f"kernel speedup {s_eff} must be positive")
    return 1.0 / ((1.0 - alpha - beta - gamma) + alpha / s_eff + beta + gamma)


def share_of_kernel_time(alpha: float, gamma: float) -> float:
    """The prefix share with the idle GPU taken out of the step.

    The column "S (s = 15.6)" of Table 22 needs this alpha, though its caption does not say so.
    """
    _check_share(alpha=alpha, gamma=gamma)
    if gamma == 1.0:
        raise ValueError("gamma = 1: the GPU never ran")
    return alpha / (1.0 - gamma)


def effective_kernel_speedup(alpha: float, measured: float) -> float:
    """s_eff of Table 22: the kernel speedup that Eq. 3 needs to give the measured end-to-end ratio.

    Infinite when the measured ratio is at or above what removing the kernel altogether would give.
    """
    _check_share(alpha=alpha)
    if measured <= 0:
        raise ValueError(f"measured speedup {measured} must be positive")
    left = 1.0 / measured - (1.0 - alpha)
    return alpha / left if left > 0 else math.inf
