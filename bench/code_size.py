"""Instructions per element: how much code the kernels of some operations run for what they load.

Counted in machine code where nvdisasm or cuobjdump is on PATH, else in PTX, whose instructions are others.
The count is of the loop with the most loads from global memory, or of the whole kernel where no loop has
any (then each thread loads all of its elements at once). No GPU is needed.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from bench.operation import Inputs
from bench.operations import selected
from bench.report import Cell, markdown_table
from fusewright.cuda.instructions import Instruction, read_code
from fusewright.cuda.nvrtc import NvrtcOptions, compile_ptx, sass
from fusewright.runtime.compiled_kernel import CompiledKernel

OPERATIONS = ("softmax", "layernorm", "sum_outer")
HEADER = ("operation", "shape", "kernel", "registers", "spilled bytes", "instructions", "in the loop",
          "bytes loaded", "per 2 bytes", "branches")  # fmt: skip
ELEMENT_BYTES = 2  # of bfloat16, which these operations load


@dataclass(frozen=True)
class Size:
    """What was counted: instructions in all and in the counted part, what that loads, and its branches."""

    language: str
    instructions: int
    counted: int
    bytes: int
    branches: int


def _is_branch(instruction: Instruction) -> bool:
    return instruction.name.startswith(("BRA", "bra", "BSSY", "BSYNC"))


def _bytes(instruction: Instruction) -> int:
    """What it loads from global memory."""
    if instruction.name.startswith("LDG"):
        width = re.search(r"\.[US]?(8|16|64|128)\b", instruction.name)
        return int(width[1]) // 8 if width else 4
    if instruction.name.startswith("ld.global"):
        found = re.search(r"(?:\.v(\d))?\.[busf](\d+)$", instruction.name)
        return int(found[1] or 1) * int(found[2]) // 8 if found else 4
    return 0


def count(text: str, language: str) -> Size:
    """The instructions of one kernel, given as nvdisasm's text or as PTX."""
    code, labels = read_code(text, language)
    loops = []
    for end, instruction in enumerate(code):
        if _is_branch(instruction):
            target = re.search(r"[.$][A-Za-z_$][\w$]*", instruction.rest)
            start = labels.get(target[0], end) if target else end
            # A kernel ends in a branch to itself.
            loops += [code[start : end + 1]] if start < end else []
    loaded = [loop for loop in loops if any(map(_bytes, loop))]
    counted = max(loaded, key=lambda loop: (sum(map(_bytes, loop)), len(loop)), default=code)
    return Size(language, len(code), len(counted), sum(map(_bytes, counted)), sum(map(_is_branch, counted)))


def size_of(kernel: CompiledKernel, arch: str) -> tuple[Size, int, int]:
    """(size, registers, spilled bytes) of a kernel."""
    cubin = kernel.cubin(arch)
    resources = cubin.resources[kernel.name]
    text, language = sass(cubin), "SASS"
    if "/*0000*/" not in text:
        text, language = compile_ptx(kernel.full_text, NvrtcOptions(arch)), "PTX"
    return count(text, language), resources.registers, resources.spill_loads


class _Unset(Inputs):
    """Tensors of which nothing but the sizes is looked at."""

    def __call__(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        return torch.empty(*shape, device=self.device, dtype=dtype or self.dtype)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", default=list(OPERATIONS), help="operations")
    parser.add_argument("--arch", default="sm_90a", help="architecture (default sm_90a)")


def rows(names: Sequence[str], arch: str) -> tuple[list[tuple[Cell, ...]], set[str]]:
    """A row a kernel, and in what was counted."""
    found: list[tuple[Cell, ...]] = []
    languages: set[str] = set()
    for operation in selected(names):
        for shape in operation.shapes:
            inputs = operation.inputs(shape, _Unset(torch.device("cpu")))
            fd = operation.definition(inputs)
            leaf = fd._finished()
            executor = leaf.executor_for(fd._registry)
            executor.compile(inputs, options=fd._options)
            for kernel in executor.kernels_for(inputs, options=fd._options):
                size, registers, spilled = size_of(kernel, arch)
                languages.add(size.language)
                each = size.counted / max(size.bytes / ELEMENT_BYTES, 1)
                shown = "x".join(map(str, shape))
                found.append(
                    (operation.name, shown, kernel.scheduler, registers, spilled, size.instructions,
                     size.counted, size.bytes, each, size.branches)
                )  # fmt: skip
    return found, languages


def run(parsed: argparse.Namespace) -> int:
    table, languages = rows(parsed.names, parsed.arch)
    print(f"instructions of {', '.join(sorted(languages))} for {parsed.arch}\n")
    print(markdown_table(HEADER, table))
    return 0
