"""What the pointwise scheduler takes its kernels to need."""

from __future__ import annotations

import torch

from tests.schedulers import proposals as p


def test_a_block_runs_however_many_registers_its_threads_would_need() -> None:
    """72 gathered elements of each of 8: the estimate takes all to be held at once."""

    def function(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return sum((x[:, index + i] * (i + 1) for i in range(72)), torch.zeros((), device=x.device))

    x = torch.empty(64, 65536, device="meta")
    index = torch.empty(65536, dtype=torch.int64, device="meta")
    [kernel] = p.definition(function, x, index).kernels_for([x, index], device="cuda")
    assert kernel.params.lparams.bdimx == 512
    assert kernel.proposal is not None and 1e-4 < kernel.proposal.seconds < 1e-2
