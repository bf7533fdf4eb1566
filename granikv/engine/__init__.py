"""Everything that touches SGLang. Nothing outside this folder imports it.

The engine is unmodified and pinned: see `granikv.engine.refusals.SGLANG_VERSION`.
"""
