"""What happens beside the load: power and clocks of the GPUs, queues and pools of the server.

A `watch` samples from a process of its own while a cell's load runs; `window` cuts the samples to
the measured window and counts its joules.
"""
