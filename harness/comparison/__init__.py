"""Results beside results: what changed between two of them, and all of them as one frame."""
