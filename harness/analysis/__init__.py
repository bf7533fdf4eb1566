"""From cells to numbers: roofline, Amdahl's law, intervals, claims. Needs no engine."""
