"""Hardware profiles: what the dispatcher and the reports must know of a device, one YAML file each.

Shipped in conf/hardware/ (granikv/profiles/ in an installed package); `granikv calibrate` writes
new ones.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from granikv.cost import CostModel

DEVICES = ("cpu", "cuda")
_PACKAGE = Path(__file__).parent
_SHIPPED = (_PACKAGE / "profiles", _PACKAGE.parent / "conf" / "hardware")


class ProfileError(ValueError):
    """A profile that cannot be read, written or used: one line saying what to do."""


@dataclass(frozen=True, slots=True)
class HardwareProfile:
    """One device.

    Attributes:
        name: what `--granikv-hardware` and the harness call it.
        device: "cpu" or "cuda".
        title: a few words for tables and figures.
        measured: where the numbers come from: by, when, source, and notes.
        peak_tflops: matrix-product ceiling, TFLOP/s; None where it was not measured.
        bandwidth_gbps: memory bandwidth ceiling, GB/s; None likewise.
        m_sat: saturation threshold M_sat in rows of a product (§3.6); None where it was not fitted.
        cost: what a step takes by each backend; None where it was not fitted.
        server_args, server_env: what an engine's server needs on this device, whatever it serves.
    """

    name: str
    device: str
    title: str
    measured: Mapping[str, str] = field(default_factory=dict)
    peak_tflops: float | None = None
    bandwidth_gbps: float | None = None
    m_sat: int | None = None
    cost: CostModel | None = None
    server_args: tuple[str, ...] = ()
    server_env: Mapping[str, str] = field(default_factory=dict)

    def m_sat_or_raise(self) -> int:
        """M_sat. Raises ProfileError where it was never fitted on this hardware."""
        if self.m_sat is None:
            raise ProfileError(
                f"hardware profile {self.name!r} has no M_sat, so steps cannot be dispatched: run "
                f"`granikv calibrate --device {self.device} --out FILE` on this machine and give "
                "FILE to --granikv-hardware, or force one backend with --granikv-backend"
            )
        return self.m_sat

    def cost_or_raise(self) -> CostModel:
        """The cost model. Raises ProfileError where it was never fitted on this hardware."""
        if self.cost is None:
            raise ProfileError(
                f"hardware profile {self.name!r} has no cost model: run `granikv calibrate "
                f"--device {self.device} --out FILE` on this machine and give FILE to "
                "--granikv-hardware"
            )
        return self.cost

    def document(self) -> dict[str, Any]:
        """The profile as its YAML file holds it."""
        return {
            "name": self.name,
            "device": self.device,
            "title": self.title,
            "measured": dict(self.measured),
            "ceilings": {
                "peak_tflops": self.peak_tflops,
                "bandwidth_gbps": self.bandwidth_gbps,
            },
            "dispatch": {
                "m_sat": self.m_sat,
                **({"cost": self.cost.document()} if self.cost else {}),
            },
            "server": {"args": list(self.server_args), "env": dict(self.server_env)},
        }


def load_profile(path: str | Path) -> HardwareProfile:
    """Read and check one profile file. Raises ProfileError, one line, for anything wrong."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ProfileError(f"cannot read hardware profile {path}: {reason}") from None
    try:
        return _parse(yaml.safe_load(text))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise ProfileError(f"hardware profile {path} is not valid YAML{where}") from None
    except ProfileError as error:
        raise ProfileError(f"hardware profile {path}: {error}") from None


def find_profile(name: str) -> HardwareProfile:
    """The shipped profile of that name. Raises ProfileError, listing the names, for any other."""
    known = shipped_profiles()
    if name not in known:
        raise ProfileError(
            f"no hardware profile is called {name!r}; there are: {', '.join(sorted(known))}. "
            "Name one of these or a profile file (.yaml); `granikv calibrate` writes one"
        )
    return load_profile(known[name])


def shipped_profiles() -> dict[str, Path]:
    """Name and file of every shipped profile; the installed package's copy comes first."""
    found: dict[str, Path] = {}
    for directory in _SHIPPED:
        for path in sorted(directory.glob("*.yaml")):
            found.setdefault(path.stem, path)
    return found


def write_profile(profile: HardwareProfile, path: str | Path) -> None:
    """Write a profile so that the file is either whole or not there.

    Raises ProfileError where the directory cannot be written.
    """
    path = Path(path)
    text = yaml.safe_dump(
        profile.document(), sort_keys=False, width=100, allow_unicode=True, default_flow_style=None
    )
    beside: str | None = None
    try:
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=f".{path.name}.", delete=False, encoding="utf-8"
        ) as file:
            beside = file.name
            file.write(text)
        Path(beside).chmod(0o644)
        Path(beside).replace(path)
    except OSError as error:
        if beside is not None:
            Path(beside).unlink(missing_ok=True)
        raise ProfileError(f"cannot write hardware profile {path}: {error.strerror}") from None


def _parse(document: object) -> HardwareProfile:
    top = _mapping(document, "the file")
    ceilings = _mapping(_required(top, "ceilings"), "ceilings")
    dispatch = _mapping(_required(top, "dispatch"), "dispatch")
    server = _mapping(top.get("server", {}), "server")
    device = _text(_required(top, "device"), "device")
    if device not in DEVICES:
        raise ProfileError(f"device must be {' or '.join(DEVICES)}, not {device!r}")
    arguments = server.get("args", [])
    if not isinstance(arguments, list):
        raise ProfileError("server.args must be a list")
    return HardwareProfile(
        name=_text(_required(top, "name"), "name"),
        device=device,
        title=_text(top.get("title", top["name"]), "title"),
        measured=_texts(top.get("measured", {}), "measured"),
        peak_tflops=_positive(_required(ceilings, "peak_tflops"), "ceilings.peak_tflops"),
        bandwidth_gbps=_positive(_required(ceilings, "bandwidth_gbps"), "ceilings.bandwidth_gbps"),
        m_sat=_threshold(_required(dispatch, "m_sat")),
        cost=_cost(dispatch.get("cost")),
        server_args=tuple(str(argument) for argument in arguments),
        server_env=_texts(server.get("env", {}), "server.env"),
    )


def _cost(value: object) -> CostModel | None:
    try:
        return None if value is None else CostModel.parse(value)
    except ValueError as error:
        raise ProfileError(f"dispatch.cost: {error}") from None


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ProfileError(f"{where} must hold keys and values")
    return value


def _required(mapping: Mapping[str, Any], key: str) -> Any:
    if key not in mapping:
        raise ProfileError(f"the key {key!r} is missing")
    return mapping[key]


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ProfileError(f"{where} must be text, not {value!r}")
    return value


def _texts(value: object, where: str) -> dict[str, str]:
    return {str(key): str(text) for key, text in _mapping(value, where).items()}


def _positive(value: object, where: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ProfileError(f"{where} must be a positive number or null, not {value!r}")
    return float(value)


def _threshold(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ProfileError(f"dispatch.m_sat must be a whole number from 1 or null, not {value!r}")
    return value
