"""Drives SGLang servers from outside and measures them, one cell at a time."""
