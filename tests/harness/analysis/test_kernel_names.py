"""Kernels by name: real names of engines and libraries, and every kernel of this project."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.analysis.kernel_names import classify
from harness.analysis.timeline import CATEGORIES

KERNELS = Path(__file__).resolve().parents[3] / "granikv" / "attention" / "kernels"

FA3 = (
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::"
    "CollectiveMainloopFwdSm90<(int)2, cute::tuple<cute::C<(int)1>, cute::C<(int)1>>, (int)128, "
    "cutlass::bfloat16_t, float, cutlass::arch::Sm90, (bool)1>>>>(T1::Params)"
)
ARGMAX = (
    "void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, "
    "at::native::ArgMaxOps<float>, unsigned int, long, (int)4, (int)4>>(T3)"
)
NAMES = {
    "prefix_attention": (
        "_prefix_kernel",
        "_prefix_kernel_hopper",
        FA3,
        "void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<(flashinfer::"
        "MaskMode)0, (unsigned int)16, (unsigned int)1>, flashinfer::PagedParams>(T2)",
        "void flashinfer::BatchPrefillWithRaggedKVCacheKernel<T1, T2>(T2)",
        "void flashinfer::PrefillWithKVCacheKernel<flashinfer::CollectiveMainloop<T1>>(T1)",
        "void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<(int)128>>(Flash_fwd_params)",
        "_fwd_grouped_kernel_stage1",
        "fmhaSm100aKernel_QBfloat16KvBfloat16OBfloat16H128PagedKvDenseP16",
    ),
    "decode_attention": (
        "_suffix_kernel",
        "_merge_kernel",
        "_snapshot_kernel",
        "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0>(T6)",
        "void flashinfer::PersistentVariableLengthMergeStatesKernel<(unsigned int)8>(T3 *)",
        "void flashinfer::MergeStateInPlaceKernel<(unsigned int)8, __nv_bfloat16>(T2 *)",
        "void cutlass::device_kernel<flash::FlashAttnFwdCombine<cute::tuple<cute::C<(int)8>>>>(T1)",
        "flash::prepare_varlen_num_blocks_kernel(int, int, int, int const*)",
        "_fwd_kernel_stage2",
    ),
    "gemm": (
        "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT",
        "nvjet_tst_64x8_64x16_4x1_v_bz_splitK_TNT",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_kernel",
        "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn",
        "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2>(T1)",
        "void cublasLt::splitKreduce_kernel<(int)32, (int)16, int, float, __nv_bfloat16>(T3)",
        "void gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16>(T13)",
    ),
    "nccl": (
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
        "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
        "void sglang::cross_device_reduce_1stage<__nv_bfloat16, (int)2>(T1 *, int, int)",
        "void (anonymous namespace)::all_reduce_two_shot_kernel<__nv_bfloat16>(T1)",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<T1>(T1)",
    ),
    "sampling": (
        ARGMAX,
        "void flashinfer::sampling::TopKTopPSamplingFromProbKernel<(unsigned int)1024>(T6 *)",
        "void flashinfer::sampling::TopPRenormProbKernel<(unsigned int)1024>(T4 *)",
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<(int)4, float>(T3 *, int)",
    ),
    "other": (
        "void flashinfer::norm::FusedAddRMSNormKernel<(unsigned int)8, __nv_bfloat16>(T2 *)",
        "void flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheKernel<(bool)0>(T1 *)",
        "void act_and_mul_kernel<__nv_bfloat16, &silu>(T1 *, const T1 *, int)",
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<int>>(int)",
        "void at::native::index_elementwise_kernel<(int)128, (int)4>(long, T3)",
        "_relocate_kernel",
        "create_flashinfer_kv_indices_triton",
        "triton_poi_fused_mul_silu_2",
    ),
}


@pytest.mark.parametrize("category", NAMES)
def test_names_seen_in_traces(category: str) -> None:
    assert {name: classify(name) for name in NAMES[category]} == dict.fromkeys(
        NAMES[category], category
    )


def test_every_category_has_names() -> None:
    assert set(NAMES) == set(CATEGORIES)


def test_a_mangled_name_is_recognised() -> None:
    mangled = "_ZN10flashinfer34BatchPrefillWithPagedKVCacheKernelINS_12KernelTraitsIL"
    assert classify(mangled) == "prefix_attention"


def test_every_kernel_of_this_project_but_the_copy_is_attention() -> None:
    """A kernel that is added to the project and not to the table would be lost in `other`."""
    sources = [path.read_text("utf-8") for path in KERNELS.glob("*.py")]
    launched = {name for text in sources for name in re.findall(r"\b(_\w*kernel\w*)\[", text)}
    assert launched >= {"_prefix_kernel", "_prefix_kernel_hopper", "_suffix_kernel"}
    assert {name for name in launched if classify(name) == "other"} == {"_relocate_kernel"}
