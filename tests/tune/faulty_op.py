"""An operation whose kernel never ends in blocks of 64 threads, and reads where nothing is in blocks of 32.

Only tests of a GPU's faults import it, and the processes that make and run the kernel.
"""

from __future__ import annotations

import torch

import fusewright
from fusewright.core.dtype import Category
from fusewright.core.op import ElementwiseOp, Rule, Spelling

NAME, HANGS, FAULTS = "faulty", 64, 32
CUDA = (
    f"[&]() {{{{ while (blockDim.x == {HANGS}u) __nanosleep(1000); "
    f"return blockDim.x == {FAULTS}u ? *(volatile {{T}} const*)8 : {{0}}; }}}}()"
)

fusewright.register_op(ElementwiseOp(NAME, 1, Rule.FLOAT_UP, {Category.FLOAT: Spelling(CUDA, torch.clone)}))
