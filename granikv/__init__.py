"""GraniKV: a KV-cache layer with asymmetric granularity, as a plugin of SGLang 0.5.17."""
