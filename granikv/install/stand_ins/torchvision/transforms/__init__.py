"""Names that SGLang and transformers import from ``torchvision.transforms``."""

import enum


class InterpolationMode(enum.Enum):
    """Keys of transformers' table of PIL filters."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"
