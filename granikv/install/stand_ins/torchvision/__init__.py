"""Import-only stand-in for torchvision: its CPU wheel does not match the engine's torch.

SGLang and transformers import the names below at module level; serving text calls none.
"""

__version__ = "0.0.0"
