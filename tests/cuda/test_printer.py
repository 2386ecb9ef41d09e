"""Kernels as CUDA text: golden text, compilation for three architectures, determinism, completeness."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pytest

from fusewright.core.dtype import DataType, PyScalar
from fusewright.core.enums import CacheOp, ParallelType
from fusewright.cuda import printer
from fusewright.cuda.nvrtc import NvrtcOptions, compile_cubin, compile_ptx
from fusewright.cuda.printer import print_kernel
from fusewright.cuda.spelling import CACHE_SUFFIX, converted_literal, literal
from fusewright.kernel.ir import (
    Alloc,
    Compute,
    Copy,
    Imm,
    Kernel,
    Operand,
    Param,
    ScalarParam,
    Stmt,
    index_symbol,
)
from fusewright.ops.elementwise import CAST, ELEMENTWISE
from fusewright.sym import const, lt
from tests.compilation import Unoptimized
from tests.kernel import builders
from tests.kernel.builders import at, kernel, local, size, tensor

KERNELS: dict[str, Callable[[], Kernel]] = {
    "pointwise_bf16": builders.pointwise,
    "pointwise_complex128": lambda: builders.pointwise(DataType.ComplexDouble, width=1),
    "pointwise_streaming_64bit": lambda: builders.pointwise(
        index_dtype=DataType.Int, cache=CacheOp.streaming
    ),
    "row_softmax": builders.row_softmax,
    "column_sum": builders.column_sum,
    "grid_sum": builders.grid_sum,
    "grid_sums": builders.grid_sums,
    "grid_reverse": builders.grid_reverse,
    "cluster_rows": builders.cluster_rows,
    "row_welford": builders.row_welford,
    "row_welford_of_runs": lambda: builders.row_welford(run=4),
    "block_reverse": builders.block_reverse,
    "complex_product": builders.complex_product,
    "iota_select": builders.iota_select,
    "gathered_rows": builders.gathered_rows,
    "gathered_rows_of_32bit_indices": lambda: builders.gathered_rows(DataType.Int32, DataType.Int),
    "padded": builders.padded,
    "padded_streaming": lambda: builders.padded(CacheOp.streaming),
}


@pytest.mark.sampled(0.4, "name", "arch")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100"])
@pytest.mark.parametrize("name", KERNELS)
def test_compiles_without_spills(name: str, arch: str) -> None:
    kernel = KERNELS[name]()
    if kernel.cluster > 1 and arch == "sm_80":
        return  # which has no clusters
    source = print_kernel(kernel)
    resources = compile_cubin(source.text, NvrtcOptions(arch)).resources[source.name]
    assert resources.spill_loads == resources.spill_stores == resources.stack_frame == 0
    assert 0 < resources.registers <= 64


def test_blocks_that_reduce_several_values_are_counted_once() -> None:
    """Else each of two blocks that start at the same time might be last in one of the reductions."""
    text = print_kernel(KERNELS["grid_sums"]()).kernel
    assert text.count("grid_started_before<") == 1
    assert text.count("exchange0, fw_round_exchange0, fw_started_before_1") == 1
    assert text.count("exchange1, fw_round_exchange1, fw_started_before_1") == 1


@pytest.mark.parametrize("name", ["pointwise_bf16", "row_softmax", "grid_sum", "gathered_rows", "padded"])
def test_text(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"cuda/{name}", print_kernel(KERNELS[name]()).kernel)


_FLOATS = [d for d in DataType if d.is_reduced_float or d in (DataType.Float, DataType.Double)]


@pytest.mark.parametrize("source", [*_FLOATS, DataType.Int, DataType.Bool, DataType.ComplexFloat])
def test_casts_compile_on_every_architecture(source: DataType) -> None:
    # One kernel a source, with a store for every target.
    n, n_param = size("n0")
    x = tensor("x", source, n)
    i = index_symbol(ParallelType.block_x, const(32))
    targets = [d for d in DataType if d not in (DataType.Null, DataType.UInt64, DataType.Float4_e2m1fn_x2)]
    outs = [tensor(f"out_{d.name}", d, n, output=True) for d in targets]
    body: list[Stmt] = []
    for out in outs:
        value = local(f"value_{out.buffer.name}", out.buffer.dtype)
        body += [
            Alloc(value),
            Compute(CAST, at(value), (at(x.buffer, i),), source.compute),
            Copy(at(out.buffer, i), at(value)),
        ]
    text = print_kernel(kernel("casts", [x, *outs, n_param], body, [1], [32])).text
    for arch in ("sm_80", "sm_90a"):
        compile_cubin(text, NvrtcOptions(arch))


_COMPUTED = [
    d
    for d in DataType
    if d not in (DataType.Null, DataType.UInt64, DataType.Float4_e2m1fn_x2) and d.compute is d
]


@pytest.mark.parametrize("dtype", _COMPUTED)
def test_every_operation_compiles(dtype: DataType) -> None:
    n, n_param = size("n0")
    i = index_symbol(ParallelType.block_x, const(32))
    rows = [op for op in ELEMENTWISE.values() if dtype.category in op.supports]
    ins = [tensor(f"x{k}", dtype, n) for k in range(4)]
    cond = tensor("cond", DataType.Bool, n)
    outs = [tensor(f"out_{op.name}", op.result_of(dtype), n, output=True) for op in rows]
    body: list[Stmt] = []
    for op, out in zip(rows, outs):
        args = [
            cond if given is DataType.Bool and given is not dtype else x
            for given, x in zip(op.operand_dtypes(dtype), ins)
        ]
        body.append(Compute(op, at(out.buffer, i), tuple(at(arg.buffer, i) for arg in args), dtype))
    whole = kernel("every_op", [*ins, cond, *outs, n_param], body, [1], [32])
    compile_cubin(print_kernel(whole).text, Unoptimized("sm_80"))


def test_vectors_are_one_access_with_their_hint() -> None:
    source = print_kernel(builders.pointwise(cache=CacheOp.streaming))
    assert set(source.snippets) == {"bfloat16", "cache_policy", "register_words", "vec"}
    ptx = compile_ptx(source.text, NvrtcOptions("sm_90a"))
    assert ptx.count("ld.global.cs.v4") == 2
    assert ptx.count("st.global.cs.v4") == 1
    assert "ld.global.nc.v4" in compile_ptx(print_kernel(builders.pointwise()).text, NvrtcOptions("sm_90a"))


def test_written_inputs_are_not_declared_read_only() -> None:
    n, n_param = size("n0")
    x = tensor("x", DataType.Float, n)
    i = index_symbol(ParallelType.block_x, const(32))
    source = print_kernel(
        kernel("k", [x, n_param], [Copy(at(x.buffer, i), Imm(1.0, DataType.Float))], [1], [32])
    )
    assert "    float* x," in source.kernel
    assert "x[threadIdx_x] = 1.0f;" in source.kernel


def test_names_that_cuda_claims_are_changed_and_stay_distinct() -> None:
    n, n_param = size("float")
    x, y, z = (tensor(name, DataType.Float, n, output=True) for name in ("a.b", "a_b", "partial"))
    body = [Copy(at(t.buffer), Imm(0.0, DataType.Float)) for t in (x, y, z)]
    text = print_kernel(kernel("double", [x, y, z, n_param], body, [1], [32])).kernel
    assert "float* a_b," in text
    assert "float* a_b_2," in text
    assert "float* v_partial," in text
    assert "int v_float)" in text
    assert "v_double(" in text


def test_index_parameter_of_another_type_is_converted_once() -> None:
    n, _ = size("n0")
    passed = ScalarParam("extent", DataType.Int, n)
    x = tensor("x", DataType.Float, n, output=True)
    i = index_symbol(ParallelType.block_x, const(32))
    body = [builders.If(lt(i, n), (Copy(at(x.buffer, i), Imm(0.0, DataType.Float)),))]
    text = print_kernel(kernel("k", [x, passed], body, [1], [32])).kernel
    assert "long long extent_passed)" in text
    assert "const int extent = extent_passed;" in text
    assert "if (threadIdx_x < extent)" in text


LITERALS: list[tuple[PyScalar, DataType, str]] = [
    (0.1, DataType.Float, "0.1f"),
    (1 / 3, DataType.Float, "0.33333334f"),
    (2**24, DataType.Float, "16777216.0f"),
    (1e30, DataType.Float, "1e+30f"),
    (-0.0, DataType.Float, "-0.0f"),
    (1e39, DataType.Float, "__int_as_float(0x7f800000)"),
    (float("-inf"), DataType.Float, "__int_as_float(0xff800000)"),
    (float("nan"), DataType.Double, "__longlong_as_double(0x7ff8000000000000ll)"),
    (0.1, DataType.Double, "0.1"),
    (0.1, DataType.BFloat16, "fw::bfloat16(0.100097656f)"),
    (-(2**63), DataType.Int, "-9223372036854775807ll - 1"),
    (-5, DataType.Int, "-5ll"),
    (-(2**31), DataType.Int32, "-2147483647 - 1"),
    (2**32 + 7, DataType.Int32, "7"),
    (2**64 - 1, DataType.UInt64, "18446744073709551615ull"),
    (True, DataType.Bool, "true"),
    (1, DataType.ComplexFloat, "fw::complex<float>(1.0f, 0.0f)"),
    (3, DataType.Index, "3ll"),
]


@pytest.mark.parametrize(("value", "dtype", "text"), LITERALS)
def test_literals_are_exact(value: PyScalar, dtype: DataType, text: str) -> None:
    assert literal(value, dtype, DataType.Int) == text


def test_a_constant_is_rounded_before_it_is_converted() -> None:
    assert converted_literal(0.1, DataType.Half, DataType.Float, DataType.Int) == "0.099975586f"
    assert converted_literal(0.1, DataType.Float, DataType.Double, DataType.Int) == "0.10000000149011612"
    assert converted_literal(2.7, DataType.Float, DataType.Int32, DataType.Int) == "2"
    assert converted_literal(1j, DataType.ComplexFloat, DataType.Bool, DataType.Int) == "true"


def test_a_constant_out_of_an_integers_range_becomes_what_the_device_makes_of_it() -> None:
    assert converted_literal(3e9, DataType.Float, DataType.Int32, DataType.Int) == "2147483647"
    assert (
        converted_literal(float("-inf"), DataType.Double, DataType.Int32, DataType.Int) == "-2147483647 - 1"
    )
    assert converted_literal(float("nan"), DataType.Float, DataType.Int32, DataType.Int) == "0"


def test_every_node_has_its_function() -> None:
    assert set(printer.STATEMENTS) == set(get_args(Stmt))
    assert set(printer.OPERANDS) == set(get_args(Operand))
    assert set(printer.PARAMS) == set(get_args(Param))
    assert set(CACHE_SUFFIX) == set(CacheOp)


def test_vectors_are_stored_to_global_memory_at_once() -> None:
    """The compiler takes those apart that are stored in C++, where other statements stand between."""
    ptx = compile_ptx(print_kernel(builders.pointwise()).text, NvrtcOptions("sm_90a"))
    stores = [line.split()[0] for line in ptx.splitlines() if line.strip().startswith("st.global")]
    assert stores == ["st.global.v4.u32"], ptx
