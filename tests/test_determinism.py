"""The same definition gives byte-identical CUDA in every process, for the same reasons, whatever was defined
before it there.
"""

from __future__ import annotations

import os
import subprocess
import sys

# One of so many cases is run by default.
EACH = 4
# Hash seeds change the order of sets of strings; the order of the cases, what a process has interned before.
_PRINT_ALL = """
import hashlib, sys
import torch
from tests.cuda.test_printer import KERNELS
from tests.integration.cases import CASES
from fusewright.cuda.printer import print_kernel
from fusewright.host.executor import FusionExecutor

def show(name, text):
    print(name, hashlib.sha256(text.encode()).hexdigest())

def chosen(cases):
    each, order = map(int, sys.argv[1:])
    return cases[::each][::order]

for name, build in chosen(list(KERNELS.items())):
    show("kernel_" + name, print_kernel(build()).text)
for case in chosen(CASES):
    executor = FusionExecutor(case.definition()._finished().fusion)
    kernels = executor.compile(case.inputs(torch.device("cpu"))).kernels
    text = executor.segments().log() + "".join(kernel.full_text for kernel in kernels)
    show(case.name, text)
"""


def _texts(hash_seed: int, each: int, order: int) -> dict[str, str]:
    path = os.pathsep.join(p for p in sys.path if p)
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": path}
    command = [sys.executable, "-c", _PRINT_ALL, str(each), str(order)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return dict(line.split() for line in run.stdout.splitlines())


def test_same_cuda_in_two_processes(thorough: bool) -> None:
    each = 1 if thorough else EACH
    first, second = _texts(1, each, 1), _texts(2, each, -1)
    assert len(first) > 50 / each
    assert {name: text == second[name] for name, text in first.items()} == dict.fromkeys(first, True)
