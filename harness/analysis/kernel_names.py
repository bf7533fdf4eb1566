"""What a GPU kernel does, by its name: the categories of B.3 (Tables 13, 14 and 22).

The prefix pass counts as prefix attention. A kernel that reads a row's whole context at once, as
the stock decode backends do, counts there too: the prefix is most of what it reads, and the paper
prints its baseline so (Table 13: 11,058 ms of prefix and 95 ms of decode attention). A kernel that
reads the suffix alone, or merges partial results, is decode attention.

A name says nothing of who launched it: the two products of Hydragen's form are GEMMs here, and the
softmax between them counts as sampling.
"""

from __future__ import annotations

import functools
import re

from harness.analysis.timeline import NCCL, PREFIX

DECODE, GEMM, SAMPLING, OTHER = "decode_attention", "gemm", "sampling", "other"

RULES: tuple[tuple[str, str], ...] = (
    # NCCL's own, the one- and two-shot reductions of vLLM and SGLang, FlashInfer's (TensorRT-LLM's)
    # and PyTorch's symmetric memory.
    (NCCL, r"nccl(Dev)?Kernel|cross_device_reduce|(one|two)_?shot|all_?reduce|all_?gather"),
    (NCCL, r"reduce_?scatter|multimem|mscclpp|moe_finalize_lamport"),
    # granikv/attention/kernels: passes over slabs, and what prepares them; passes over suffixes.
    (PREFIX, r"\b_prefix_kernel|\b_fused_kernel|\b_gather_kernel|\b_pages_kernel"),
    (DECODE, r"\b_suffix_kernel|\b_merge_kernel|\b_snapshot_kernel"),
    # Merging partial results: FlashInfer, FA3, FA2, SGLang, SGLang's Triton backend.
    (DECODE, r"Merge(Attn)?States?|merge_(attn_)?states?|FlashAttnFwdCombine|splitkv_combine"),
    (DECODE, r"\b_fwd_kernel_stage2|prepare_varlen_num_blocks"),
    # FlashInfer's CUDA-core decode; its tensor-core decode is its prefill kernel.
    (DECODE, r"(Batch|Single)DecodeWith\w*KVCache"),
    (PREFIX, r"PrefillWith\w*KVCache|BatchAttention|FlashAttnFwdSm\d+|flash_fwd_(splitkv_)?kernel"),
    (PREFIX, r"\bfmhaSm\d+|\b_fwd_(grouped_)?kernel(_stage1)?\b|fmha_v\d"),
    # FlashInfer's and SGLang's samplers, and PyTorch's argmax, softmax and multinomial.
    (
        SAMPLING,
        r"Sampling(From|Kernel)|Renorm(Prob|Kernel)|TopKMask|ArgMaxOps|argmax|OnlineSoftmax",
    ),
    (SAMPLING, r"SoftMaxForward|softmax_warp|log_softmax|temperature|[Mm]ultinomial|top_?[kp]_"),
    # cuBLAS of every generation, CUTLASS, DeepGEMM, and reductions of split products.
    (GEMM, r"nvjet_|gemm|gemv|GemmUniversal|splitKreduce|\bmatmul_kernel|cublasLt"),
)
"""Category and regular expression; the first that is found in a name decides."""

_COMPILED = tuple((category, re.compile(pattern)) for category, pattern in RULES)


@functools.cache
def classify(name: str) -> str:
    """The category (`timeline.CATEGORIES`) of a kernel's name, demangled or not."""
    for category, pattern in _COMPILED:
        if pattern.search(name):
            return category
    return OTHER
