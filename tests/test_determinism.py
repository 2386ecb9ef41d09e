"""The same definition gives byte-identical CUDA in every process, for the same reasons, whatever was defined
before it there.
"""

from __future__ import annotations

import os
import subprocess
import sys

# Hash seeds change the order of sets of strings; the order of the cases, what a process has interned before.
_PRINT_ALL = """
import hashlib, sys
import torch
from tests.integration.cases import CASES
from fusewright.host.executor import FusionExecutor

for case in CASES[:: int(sys.argv[1])]:
    executor = FusionExecutor(case.definition()._finished().fusion)
    kernels = executor.compile(case.inputs(torch.device("cpu"))).kernels
    text = executor.segments().log() + "".join(kernel.full_text for kernel in kernels)
    print(case.name, hashlib.sha256(text.encode()).hexdigest())
"""


def _texts(hash_seed: int, step: int) -> dict[str, str]:
    path = os.pathsep.join(p for p in sys.path if p)
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": path}
    command = [sys.executable, "-c", _PRINT_ALL, str(step)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return dict(line.split() for line in run.stdout.splitlines())


def test_same_cuda_in_two_processes() -> None:
    first, second = _texts(1, 1), _texts(2, -1)
    assert len(first) > 50
    assert {name: text == second[name] for name, text in first.items()} == dict.fromkeys(first, True)
