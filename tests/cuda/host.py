"""Compiles device text with the host's C++ compiler, so that its results can be checked without a GPU.

device_on_host.h stands in for CUDA. Text that needs PTX (half, bfloat16, conversions by the hardware) is out
of reach.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest
import torch

from fusewright.cuda.printer import print_kernel
from fusewright.kernel.ir import Kernel, ScalarParam
from fusewright.sym import Symbol, evaluate

COMPILER = shutil.which("g++")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")


def build(text: str, directory: Path) -> ctypes.CDLL:
    """A library of `text`, which may use CUDA's names."""
    source, library = directory / "device.cpp", directory / "device.so"
    source.write_text(text, encoding="utf-8")
    _compile("-shared", "-include", str(_header()), str(source), "-o", str(library))
    return ctypes.CDLL(str(library))


@cache
def _header() -> Path:
    """The header beside its compiled form, which saves three quarters of the time of each small library."""
    name = "device_on_host.h"
    folder = tempfile.mkdtemp(dir=os.environ.get("FUSEWRIGHT_TEST_SESSION"))
    header = Path(shutil.copy(Path(__file__).with_name(name), folder))
    _compile("-x", "c++-header", str(header), "-o", f"{header}.gch")
    return header


def _compile(*arguments: str) -> None:
    command = [str(COMPILER), "-std=c++17", "-O1", "-fPIC", "-w", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def run(kernel: Kernel, arguments: Sequence[torch.Tensor | int], directory: Path) -> None:
    """Run a printed kernel once. Arguments in the order of its parameters; index quantities are Int32."""
    source = print_kernel(kernel)
    entry = 'extern "C" void run(const unsigned* extents, void** arguments)'
    call = f"host::run({source.name}, extents, arguments);"
    library = build(f"{source.text}\n{entry} {{ {call} }}\n", directory)
    sizes: Mapping[Symbol, int] = {
        param.symbol: argument
        for param, argument in zip(kernel.params, arguments)
        if isinstance(param, ScalarParam) and param.symbol is not None and isinstance(argument, int)
    }
    extents = [evaluate(extent, sizes) for extent in (*kernel.grid, *kernel.block)]
    values = [
        ctypes.c_void_p(argument.data_ptr()) if isinstance(argument, torch.Tensor) else ctypes.c_int(argument)
        for argument in arguments
    ]
    addresses = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    library.run((ctypes.c_uint * 6)(*extents), addresses)
