"""What rows of the benchmark are to reach, as a fraction of the speed of a copy of the same bytes.

A row without an entry is held to `DEFAULT`, the budget of bandwidth-bound kernels.
"""

from __future__ import annotations

from bench.operation import Shape

DEFAULT = 0.97
GOALS: dict[tuple[str, Shape], float] = {
    ("layernorm_bwd", (16384, 4096)): 0.92,
    ("layernorm_bwd", (8192, 16384)): 0.90,
    ("layernorm_bwd", (32768, 1024)): 0.90,
    ("rmsnorm_bwd", (16384, 4096)): 0.93,
    ("rmsnorm_bwd", (8192, 16384)): 0.93,
    ("rmsnorm_bwd", (32768, 1024)): 0.93,
    ("gelu_bwd_bias", (16384, 4096)): 0.95,
    ("softmax", (2048, 65536)): 0.94,
    ("softmax", (2048, 98304)): 0.94,
    ("softmax", (1024, 131072)): 0.88,
    ("softmax", (256, 262144)): 0.85,
    ("softmax", (8192, 50257)): 0.94,
    ("softmax", (8191, 4097)): 0.98,
    ("softmax", (4096, 50257)): 0.94,
    ("softmax", (65536, 257)): 0.90,
    ("layernorm", (2048, 65536)): 0.94,
    ("layernorm", (8191, 4095)): 0.98,
    ("rmsnorm", (2048, 65536)): 0.94,
    ("rmsnorm", (1536, 98304)): 0.94,
    ("log_softmax", (2048, 151936)): 0.88,
    ("rmsnorm_fp8", (16384, 4096)): 0.95,
    ("rmsnorm_fp8", (8192, 14336)): 0.95,
    ("swiglu_fp8_blocks", (16384, 4096)): 0.95,
    ("swiglu_fp8_blocks", (8192, 14336)): 0.95,
    ("softmax_columns", (4096, 16384)): 0.90,
    ("softmax_columns", (1024, 32768)): 0.90,
    ("slice_at_offset", (16384, 4096)): 0.95,
    ("row_col_sums", (16384, 8192)): 0.95,
    ("sum_inner", (16384, 4096)): 0.96,
    ("sum_outer", (16384, 4096)): 0.96,
    ("sum_outer", (100003, 1000)): 0.95,
    ("sum_outer", (333, 300000)): 0.95,
    ("sum_all", (16384, 4096)): 0.96,
    ("sum_middle", (16, 4096, 1024)): 0.95,
    ("sum_middle", (1024, 64, 1024)): 0.95,
    ("sum_middle", (4096, 512, 33)): 0.95,
    ("sum_middle", (8, 65536, 128)): 0.95,
    ("sum_middle", (65536, 32, 32)): 0.95,
    ("centered_columns", (16384, 4096)): 0.66,
    ("scaled_by_maximum", (16384, 4096)): 0.66,
    ("batchnorm_train", (256, 256, 56, 56)): 0.66,
    ("batchnorm_train", (64, 64, 112, 112)): 0.80,
    ("cross_entropy_both", (8192, 32000)): 0.93,
    ("cross_entropy_both", (8192, 128256)): 0.93,
    ("transpose_add", (8192, 16384)): 0.99,
    ("permute_102", (2048, 64, 1024)): 0.97,
}


def goal(operation: str, shape: Shape) -> float:
    """The fraction of a copy's speed that this row is to reach."""
    return GOALS.get((operation, shape), DEFAULT)
