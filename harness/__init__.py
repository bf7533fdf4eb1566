"""Drives SGLang servers from outside and measures them: one cell is one system, workload, load, repetition."""
