"""Names that SGLang and transformers import from ``torchvision.io``."""

import enum
from typing import Any, NoReturn


class ImageReadMode(enum.Enum):
    """How an image's channels are read."""

    UNCHANGED = "UNCHANGED"
    RGB = "RGB"


def decode_image(*_args: Any, **_kwargs: Any) -> NoReturn:
    """Refuse: images need the real torchvision."""
    raise NotImplementedError("torchvision.io: images need the real torchvision")


decode_jpeg = decode_image
