"""Imported at module level by transformers' image processors."""
