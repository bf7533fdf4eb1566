"""Kernels of decode attention in Triton and its Gluon: each kernel above its launcher.

A step is three launches a layer: `dense_prefix` (every slab range of the step, read once for all
its rows), `paged_suffix` (what no slab holds) and `merge`. The first two need nothing of each other
and may be one launch (`config.Overlap`). What they work on is planned once a step: `worklist` on
the host for the slabs, `paged_suffix.snapshot` on the device for the rest. Partial results go to
one buffer, out [parts, H_q, d_v] and natural lse [parts, H_q], float32.
"""
