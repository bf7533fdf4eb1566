"""Sweeps: which cells an experiment asks for, in which order, for how long, and what is left."""
