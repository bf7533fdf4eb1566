"""Names that SGLang and transformers import from ``torchvision.transforms.functional``."""

from typing import Any, NoReturn

from torchvision.transforms import InterpolationMode

__all__ = ["InterpolationMode", "pil_to_tensor"]


def pil_to_tensor(*_args: Any, **_kwargs: Any) -> NoReturn:
    """Refuse: images need the real torchvision."""
    raise NotImplementedError("torchvision.transforms: images need the real torchvision")
