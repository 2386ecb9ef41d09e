"""Each row's CUDA text: NVRTC compiles it, and a host compiler's build of it gives the row's torch values."""

import ctypes
import itertools

import pytest
import torch
from cuda.bindings import nvrtc

from fusewright.core.dtype import Category, DataType
from fusewright.core.op import Rule
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.ops.reductions import REDUCTIONS
from tests.ops.spelled import HOST_COMPILER, NOT_ON_HOST, call, function, needed, program
from tests.ops.spelled import host_library as build_host_library

D = DataType
DTYPES = {
    Category.BOOL: (D.Bool,),
    Category.INT: (D.Int, D.Int32),
    Category.FLOAT: (D.Float, D.Double),
    Category.COMPLEX: (D.ComplexFloat, D.ComplexDouble),
}
CASES = [
    (op, dtype)
    for op in ELEMENTWISE.values()
    for category in sorted(op.supports)
    for dtype in DTYPES[category]
    if op.rule is not Rule.CAST
]
COMBINES = [
    (op, d) for op in REDUCTIONS.values() for category in sorted(op.supports) for d in DTYPES[category]
]


def combine(op, dtype, name):
    """`name`(a, b): combines the states that `b` points to into those that `a` points to."""
    types = [t.cuda.replace("fw::index_t", "long long") for t in op.state_dtypes(dtype)]
    refs = [[f"(*({t}*){side}[{i}])" for i, t in enumerate(types)] for side in "ab"]
    return f"ENTRY {name}(void** a, void** b) {{ {op.combining(dtype).render(*refs, dtype)}; }}"


def test_every_spelling_compiles_for_sm_80():
    names = set().union(*(needed(op, dtype) for op, dtype in CASES))
    names = names.union(*(op.combining(dtype).snippets for op, dtype in COMBINES))
    functions = [function(op, dtype, f"f{i}") for i, (op, dtype) in enumerate(CASES)]
    functions += [combine(op, dtype, f"c{i}") for i, (op, dtype) in enumerate(COMBINES)]
    prelude = '#define ENTRY extern "C" __global__ void\n#define EACH(k) if (long k = threadIdx.x; k < n)'
    text = program(prelude, names, functions)
    _, handle = nvrtc.nvrtcCreateProgram(text.encode(), b"ops.cu", 0, [], [])
    options = [b"--gpu-architecture=sm_80", b"--std=c++17", b"--disable-warnings", b"--Ofast-compile=max"]
    (status,) = nvrtc.nvrtcCompileProgram(handle, len(options), options)
    _, size = nvrtc.nvrtcGetProgramLogSize(handle)
    log = bytes(size)
    nvrtc.nvrtcGetProgramLog(handle, log)
    nvrtc.nvrtcDestroyProgram(handle)
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, log.decode()


# ---- the text on the host ------------------------------------------------------------

# Those whose text has the machine's own maximum are compared on a GPU only.
HOST_COMBINES = [
    (op, d) for op, d in COMBINES if not (op.name in ("max", "min", "max_sum_exp") and d.is_floating)
]
HOST_CASES = [case for case in CASES if case[0].name not in NOT_ON_HOST]
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.25, -7.75, 1e-3, 20.0, -20.0]
SPECIAL = [float("inf"), -float("inf"), float("nan")]


@pytest.fixture(scope="module")
def host_library(tmp_path_factory):
    if HOST_COMPILER is None:
        pytest.skip("no C++ compiler")
    names = set().union(*(needed(op, dtype) for op, dtype in HOST_CASES))
    names = names.union(*(op.combining(dtype).snippets for op, dtype in HOST_COMBINES))
    functions = [function(op, dtype, f"{op.name}_{dtype.name}") for op, dtype in HOST_CASES]
    functions += [combine(op, dtype, f"{op.name}_combine_{dtype.name}") for op, dtype in HOST_COMBINES]
    return build_host_library(names, functions, tmp_path_factory.mktemp("spellings"))


def operand_values(op, dtype):
    """Values of `dtype` for which the operation is defined in C and, for complex numbers, away from cuts."""
    if dtype is D.Bool:
        return [False, True]
    if dtype.is_integral:
        return [0, 1, -1, 2, -3, 7, 31, 64, 100, dtype.lowest, dtype.highest]
    if dtype.is_complex:
        return [complex(re, im) for re in (-1.5, -0.25, 0.5, 2.25) for im in (-2.0, -0.5, 0.75, 1.25)]
    return FLOATS + (SPECIAL if getattr(op, "arity", 3) < 3 else [])


def defined(op, dtype, operands):
    if op.name in ("div", "mod", "fmod", "remainder") and dtype.category <= Category.INT:
        # The processor traps on the least integer by -1; the GPU does not.
        return operands[1] != 0 and not (operands[0] == dtype.lowest and operands[1] == -1)
    return True


@pytest.mark.parametrize(("op", "dtype"), HOST_CASES, ids=[f"{op.name}-{d.name}" for op, d in HOST_CASES])
def test_cuda_text_gives_the_torch_values(host_library, op, dtype):
    types = op.operand_dtypes(dtype)
    drawn = itertools.product(*(operand_values(op, t) for t in types))
    tuples = [operands for operands in drawn if defined(op, dtype, operands)]
    if len(tuples) > 20_000:  # four operands
        tuples = tuples[:: len(tuples) // 20_000]
    tensors = [torch.tensor(column, dtype=t.torch) for column, t in zip(zip(*tuples), types)]
    want = op.spelling(dtype).torch(*tensors)
    got = call(getattr(host_library, f"{op.name}_{dtype.name}"), tensors, want.dtype)
    if got.dtype.is_floating_point or got.dtype.is_complex:
        rtol = 1e-11 if dtype.real is D.Double else 2e-5
        torch.testing.assert_close(got, want, rtol=rtol, atol=rtol / 10, equal_nan=True)
    else:
        assert torch.equal(got, want)


@pytest.mark.parametrize(
    ("op", "dtype"), HOST_COMBINES, ids=[f"{op.name}-{d.name}" for op, d in HOST_COMBINES]
)
def test_combine_text_gives_the_reduction(host_library, op, dtype):
    """From the identity, states of consecutive pieces, some of them empty, combine to those of the whole."""
    values, pieces = operand_values(op, dtype), [slice(0), slice(1), slice(1, 4), slice(4, 4), slice(4, None)]
    if op.operands > 1:  # ties, infinities and NaN, in no order
        values = [*values, *(SPECIAL if dtype.is_floating else []), *values]
        values += SPECIAL if dtype.is_floating else []
        pieces = [slice(i * 7 % len(values), i * 7 % len(values) + 1) for i in range(len(values))]
    x = torch.tensor(values).to(dtype.torch)
    run = getattr(host_library, f"{op.name}_combine_{dtype.name}")

    def addresses(states):
        return (ctypes.c_void_p * len(states))(*(state.data_ptr() for state in states))

    types = [D.Int if t is D.Index else t for t in op.state_dtypes(dtype)]
    total = [torch.tensor(v, dtype=t.torch) for v, t in zip(op.identity(dtype), types)]
    given = (x, torch.arange(len(x)))[: op.operands]
    for piece in pieces:
        states = op.reduce(tuple(t[piece] for t in given), (0,))
        run(addresses(total), addresses(states))
    for got, want in zip(total, op.reduce(given, (0,))):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6, equal_nan=True)
