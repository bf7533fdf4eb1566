"""What a profiler tells of a cell: kernel timelines (kineto, nsys) and hardware counters (ncu).

A profile is chosen by `profile.kind` of the configuration. Where its tool is absent, or gives
nothing that can be used, the cell says so and keeps its other numbers.
"""
