"""Blocks of models, both passes, and an AdamW step over their parameters: right against torch, at tiny sizes.

`--thorough` runs all of them in both types. Otherwise one case does: which one, a digest of the corpus'
text says.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch

import bench.corpus
from bench.corpus import BLOCKS, adamw_graph, block_graphs
from bench.graphs import DTYPES, TINY, checked

CASES = [(name, kind, dtype) for name in BLOCKS for kind in ("passes", "adamw") for dtype in DTYPES]
#: Of a run without `--thorough`.
FEW = 1


def _chosen() -> list[tuple[str, str, str]]:
    digest = hashlib.sha256(Path(bench.corpus.__file__).read_bytes()).digest()
    return [CASES[byte % len(CASES)] for byte in digest[:FEW]]


@pytest.mark.parametrize("name, kind, dtype", CASES)
def test_a_graph_of_the_corpus_is_right(request, name, kind, dtype):
    if not request.config.getoption("--thorough") and (name, kind, dtype) not in _chosen():
        pytest.skip("--thorough runs it")
    block, numbers = BLOCKS[name], DTYPES[dtype]
    graphs = (
        block_graphs(block, TINY, numbers, "cpu")
        if kind == "passes"
        else [adamw_graph(block, TINY, numbers, "cpu")]
    )
    for graph in graphs:
        converted = checked(graph, numbers)[0]
        assert len(converted.definitions) == 1


def test_gpt2_needs_no_kernel_that_only_moves_elements():
    """Of the forward pass: two norms, the residual sums and the activation."""
    forward, _ = block_graphs(BLOCKS["gpt2"], TINY, torch.bfloat16, "cpu")
    converted, *_ = checked(forward, torch.bfloat16)
    program = converted.definitions[0]._finished().executor.last_program
    assert len(program.kernels) <= 4
