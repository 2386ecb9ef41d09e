"""The rows' CUDA text as functions of arrays, for a compiler of the device or of the host."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch

from fusewright.core.dtype import DataType
from fusewright.core.op import ElementwiseOp, Spelling
from fusewright.cuda import snippets

HOST_PRELUDE = """
#include <math.h>
#include <string.h>
#define __device__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __fdiv_rn(a, b) ((a) / (b))
#define __fsub_rn(a, b) ((a) - (b))
#define __dsub_rn(a, b) ((a) - (b))
#define __fmul_rn(a, b) ((a) * (b))
#define __dmul_rn(a, b) ((a) * (b))
#define ENTRY extern "C" void
#define EACH(k) for (long k = 0; k < n; ++k)
inline float __saturatef(float x) { return x > 0 ? x < 1 ? x : 1.0f : 0.0f; }
// Rounded down, where units are whole numbers.
inline float __fmaf_rd(float a, float b, float c) { return floor(double(a) * b + c); }
inline int __float_as_int(float x) { int bits; memcpy(&bits, &x, 4); return bits; }
inline float __int_as_float(int bits) { float x; memcpy(&x, &bits, 4); return x; }
// As inexact as the device's.
inline float __fdividef(float a, float b) { return a * (1.0f / b); }
template <class T> T rsqrt(T x) { return T(1) / sqrt(x); }
"""
# CUDA's alone, or PTX.
NOT_ON_HOST = {"erfinv", "erfcinv", "maximum", "minimum"}
HOST_COMPILER = shutil.which("c++") or shutil.which("g++")


def needed(op: ElementwiseOp, dtype: DataType, spelling: Spelling | None = None) -> set[str]:
    """The snippets of a spelling, and those of the types that it stands between."""
    types = (dtype, op.result_of(dtype))
    chosen = spelling or op.spelling(dtype)
    return {*chosen.snippets, *(("complex",) if any(t.is_complex for t in types) else ())}


def function(op: ElementwiseOp, dtype: DataType, name: str, spelling: Spelling | None = None) -> str:
    """`name`(in, out, n): the spelling over `n` elements of each of the operands, which `in` points to."""
    types = op.operand_dtypes(dtype)
    loads = "".join(f"auto x{i} = (({t.cuda}*)in[{i}])[k]; " for i, t in enumerate(types))
    value = (spelling or op.spelling(dtype)).render([f"x{i}" for i in range(op.arity)], dtype)
    result = op.result_of(dtype).cuda
    return f"ENTRY {name}(void** in, {result}* out, long n) {{ EACH(k) {{ {loads}out[k] = {value}; }} }}"


def program(prelude: str, names: Iterable[str], functions: Sequence[str]) -> str:
    texts = [snippets.text(name) for name in snippets.closure(list(names))]
    return "\n".join([prelude, *texts, *functions])


def host_library(names: Iterable[str], functions: Sequence[str], folder: Path) -> ctypes.CDLL:
    """The functions, built by the host's compiler as C defines them: no contraction, wrapping integers."""
    (folder / "ops.cpp").write_text(program(HOST_PRELUDE, names, functions))
    command = [
        str(HOST_COMPILER),
        "-std=c++17",
        "-O1",
        "-fwrapv",
        "-ffp-contract=off",
        "-w",
        "-shared",
        "-fPIC",
    ]
    subprocess.run([*command, "ops.cpp", "-o", "ops.so"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "ops.so"))


def call(function: Callable[..., None], tensors: Sequence[torch.Tensor], result: torch.dtype) -> torch.Tensor:
    """The results of one of the library's functions, for contiguous operands."""
    got = torch.empty(len(tensors[0]), dtype=result)
    pointers = (ctypes.c_void_p * len(tensors))(*(t.data_ptr() for t in tensors))
    function(pointers, ctypes.c_void_p(got.data_ptr()), ctypes.c_long(got.numel()))
    return got
