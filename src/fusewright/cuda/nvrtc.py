"""Compiles CUDA C++ text to a cubin for one exact architecture with NVRTC. This needs no GPU and no driver.

Generated code is self-contained: there are no include paths. `compile_cubin` returns an immutable `Cubin`
with the assembler's report about each kernel (registers, spills, shared memory).
"""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from time import perf_counter
from types import ModuleType

from fusewright.core.errors import CompileError, FusewrightError
from fusewright.core.forks import ForkGate

# The name that NVRTC gives the source in its messages.
PROGRAM_NAME = "kernel.cu"
# Source lines shown before and after each line that has an error.
EXCERPT_CONTEXT = 3


@cache
def _nvrtc() -> ModuleType:
    """The bindings, imported on first use: they take 0.1 s, half of what importing fusewright may take.

    Raises:
        FusewrightError: the bindings or the NVRTC library are not installed.
    """
    try:
        module = importlib.import_module("cuda.bindings.nvrtc")
        module.nvrtcVersion()  # loads the library itself
    except Exception as error:  # the loader's own exception classes differ between versions of the bindings
        raise FusewrightError(
            f"NVRTC cannot be loaded ({error}). Install the packages cuda-bindings and nvidia-cuda-nvrtc."
        ) from error
    return module


@cache
def nvrtc_version() -> tuple[int, int]:
    """(major, minor) of the NVRTC library."""
    _, major, minor = _nvrtc().nvrtcVersion()
    return major, minor


@dataclass(frozen=True)
class NvrtcOptions:
    """Compilation options; hashable, and part of the disk cache's key.

    Attributes:
        arch: the exact architecture, such as `sm_80` or `sm_90a`.
        max_registers: the limit on registers per thread; None: the compiler's choice. The compiler ignores it
            for kernels with `__launch_bounds__` (CUDA C++ Programming Guide, launch bounds).
        fma: contract multiplications and additions.
        precise_division: round float divisions correctly. Otherwise they are within 2 ulp over the whole
            range (PTX ISA, div.full), with a quarter of the instructions, as in torch.compile.
        fast_math: approximate division, square root and transcendentals; flush subnormals.
        line_info: keep source lines for profilers.
        debug: device debug information (turns optimisation off).
        minimal: omit built-in declarations of textures and the device runtime, which generated code never
            uses (saves 3 ms per kernel).
        defines: preprocessor definitions, name and value.
    """

    arch: str
    max_registers: int | None = None
    fma: bool = True
    precise_division: bool = False
    fast_math: bool = False
    line_info: bool = False
    debug: bool = False
    minimal: bool = True
    defines: tuple[tuple[str, str], ...] = ()

    def arguments(self) -> list[str]:
        """The compiler's command line.

        `-v` makes the assembler report resources into the program log; a hit in the compiler's own cache
        would leave the report out, and the disk cache is in front of it.
        """
        arguments = [f"--gpu-architecture={self.arch}", "--std=c++17", "--ptxas-options=-v"]
        arguments.append("--no-cache")
        if self.max_registers is not None:
            arguments.append(f"--maxrregcount={self.max_registers}")
        if not self.precise_division:
            arguments.append("--prec-div=false")
        if self.fast_math:
            arguments.append("--use_fast_math")
        if not self.fma:
            arguments.append("--fmad=false")
        if self.line_info:
            arguments.append("--generate-line-info")
        if self.debug:
            arguments.append("--device-debug")
        if self.minimal:
            arguments.append("--minimal")
        arguments += [f"--define-macro={name}={value}" for name, value in self.defines]
        return arguments


@dataclass(frozen=True)
class Resources:
    """The resources of one kernel, from the assembler's report. Registers are per thread; the others are in
    bytes.

    Attributes:
        stack_frame: local memory per thread besides spills: an array that could not be held in registers
            shows here.
    """

    registers: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    static_shared: int = 0
    stack_frame: int = 0
    barriers: int = 0

    def __str__(self) -> str:
        return (
            f"{self.registers} registers, {self.spill_stores} bytes spill stores, "
            f"{self.spill_loads} bytes spill loads, "
            f"{self.static_shared} bytes static shared memory, {self.stack_frame} bytes stack frame, "
            f"{self.barriers} barriers"
        )


@dataclass(frozen=True)
class Cubin:
    """A compiled program.

    Attributes:
        image: the cubin.
        arch: the architecture that it runs on.
        log: the compiler's and assembler's messages.
        resources: for each kernel, by its linker name.
        lowered_names: the linker name of each requested name.
        compile_seconds: time in NVRTC when it was compiled (a cubin from the disk cache keeps it).
    """

    image: bytes = field(repr=False)
    arch: str
    log: str = field(repr=False)
    resources: Mapping[str, Resources]
    lowered_names: Mapping[str, str]
    compile_seconds: float


_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_BARRIERS = re.compile(r"used (\d+) barriers")
_SHARED = re.compile(r"(\d+) bytes smem")


def parse_resources(log: str) -> dict[str, Resources]:
    """Resources by kernel from an assembler log (`ptxas -v`; the text of CUDA 12 and 13).

    A report is "Compiling entry function 'k'", "Function properties for k" with its stack line, and "Used n
    registers, ...". Properties of called functions that were not inlined are skipped.
    """
    found: dict[str, dict[str, int]] = {}
    entry = described = ""
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            entry = match[1]
            found[entry] = {}
        elif match := _PROPERTIES.search(line):
            described = match[1]
        elif not entry:
            continue
        elif match := _STACK.search(line):
            if described == entry:
                stack, stores, loads = map(int, match.groups())
                found[entry].update(stack_frame=stack, spill_stores=stores, spill_loads=loads)
        elif match := _REGISTERS.search(line):
            found[entry]["registers"] = int(match[1])
            for name, pattern in (("barriers", _BARRIERS), ("static_shared", _SHARED)):
                if match := pattern.search(line):
                    found[entry][name] = int(match[1])
    return {name: Resources(**facts) for name, facts in found.items()}


def error_excerpt(source: str, log: str) -> str:
    """The numbered lines of `source` around each line that `log` reports an error on; "" if there is none."""
    failing = {
        int(line) for line in re.findall(rf"{re.escape(PROGRAM_NAME)}\((\d+)\): (?:catastrophic )?error", log)
    }
    if not failing:
        return ""
    lines = source.splitlines()
    shown = sorted(
        number
        for number in range(1, len(lines) + 1)
        if any(abs(number - error) <= EXCERPT_CONTEXT for error in failing)
    )
    width = len(str(len(lines)))
    excerpt: list[str] = []
    for previous, number in zip([0, *shown], shown, strict=False):
        if excerpt and number != previous + 1:
            excerpt.append(" " * (width + 2) + "...")
        excerpt.append(f"{'>' if number in failing else ' '} {number:>{width}} | {lines[number - 1]}")
    return "\n".join(excerpt)


# NVRTC has locks of its own, which a child that was forked during a compilation would wait for forever.
_GATE = ForkGate()


class _Program:
    """An NVRTC program; destroyed on leaving its `with` block."""

    def __init__(self, source: str, options: NvrtcOptions, names: tuple[str, ...]) -> None:
        self._api = _nvrtc()
        self._source = source
        self._arguments = [argument.encode() for argument in options.arguments()]
        self._names = names
        self._passage = _GATE.passage()

    def __enter__(self) -> _Program:
        self._passage.__enter__()
        self._handle = self._call(
            "nvrtcCreateProgram", self._source.encode(), PROGRAM_NAME.encode(), 0, [], []
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._api.nvrtcDestroyProgram(self._handle)
        self._passage.__exit__(None, None, None)

    def _call(self, name: str, *arguments: object) -> object:
        code, *values = getattr(self._api, name)(*arguments)
        if code:
            _, text = self._api.nvrtcGetErrorString(code)
            raise CompileError(f"{name} failed: {text.decode()}", source=self._source)
        return values[0] if values else None

    def _read(self, what: str) -> bytes:
        size = self._call(f"nvrtcGet{what}Size", self._handle)
        assert isinstance(size, int)
        buffer = b"\0" * size
        self._call(f"nvrtcGet{what}", self._handle, buffer)
        return buffer

    def compile(self) -> str:
        """Compile; the log.

        Raises:
            CompileError: with the log and the source lines around each error.
        """
        for name in self._names:
            self._call("nvrtcAddNameExpression", self._handle, name.encode())
        (code,) = self._api.nvrtcCompileProgram(self._handle, len(self._arguments), self._arguments)
        log = self._read("ProgramLog").rstrip(b"\0").decode(errors="replace").strip()
        if code:
            _, text = self._api.nvrtcGetErrorString(code)
            raise CompileError(
                f"NVRTC {'.'.join(map(str, nvrtc_version()))} failed: {text.decode()}",
                log=log,
                excerpt=error_excerpt(self._source, log),
                source=self._source,
                arguments=tuple(argument.decode() for argument in self._arguments),
            )
        return log

    def cubin(self) -> bytes:
        return self._read("CUBIN")

    def ptx(self) -> str:
        return self._read("PTX").rstrip(b"\0").decode()

    def lowered_names(self) -> dict[str, str]:
        lowered: dict[str, str] = {}
        for name in self._names:
            symbol = self._call("nvrtcGetLoweredName", self._handle, name.encode())
            assert isinstance(symbol, bytes)
            lowered[name] = symbol.decode()
        return lowered


def compile_cubin(source: str, options: NvrtcOptions, names: tuple[str, ...] = ()) -> Cubin:
    """Compiles CUDA C++ text. NVRTC runs without the GIL, so threads compile in parallel.

    Args:
        names: names of kernels in C++ spelling (`scale<float>`) whose linker names are needed; naming a
            template instantiates it. Kernels declared `extern "C"` need none.

    Raises:
        CompileError: the text does not compile.
    """
    start = perf_counter()
    with _Program(source, options, names) as program:
        log = program.compile()
        image, lowered = program.cubin(), program.lowered_names()
    return Cubin(image, options.arch, log, parse_resources(log), lowered, perf_counter() - start)


def compile_cubin_and_ptx(source: str, options: NvrtcOptions) -> tuple[Cubin, str]:
    """Both, of one compilation. Raises as `compile_cubin`."""
    start = perf_counter()
    with _Program(source, options, ()) as program:
        log = program.compile()
        image, ptx = program.cubin(), program.ptx()
    return Cubin(image, options.arch, log, parse_resources(log), {}, perf_counter() - start), ptx


def compile_ptx(source: str, options: NvrtcOptions) -> str:
    """The PTX that `compile_cubin` would assemble, for reading."""
    with _Program(source, options, ()) as program:
        program.compile()
        return program.ptx()


def disassembler() -> tuple[str, ...] | None:
    """The command that prints a cubin's machine code: nvdisasm or cuobjdump; None: neither is on PATH."""
    for tool, flag in (("nvdisasm", "--print-code"), ("cuobjdump", "--dump-sass")):
        path = shutil.which(tool)
        if path is not None:
            return path, flag
    return None


def sass(cubin: Cubin) -> str:
    """The machine code as text, by the `disassembler`; without one, a line that says so."""
    command = disassembler()
    if command is None:
        return "no machine code: neither nvdisasm nor cuobjdump is on PATH (both come with the CUDA toolkit)"
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "kernel.cubin"
        file.write_bytes(cubin.image)
        run = subprocess.run([*command, str(file)], capture_output=True, text=True, check=False)
    return run.stdout if run.returncode == 0 else f"{Path(command[0]).name} failed: {run.stderr.strip()}"
