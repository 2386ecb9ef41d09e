"""Measurements against torch, on a machine with a GPU: `python -m bench -h`, or `./dev bench`.

`operations` holds the fused operations and their torch functions, `throughput` times them on the GPU, `host`
times the host's part of a call. `corpus` holds blocks of models as graphs, which `graphs` measures beside
torch.compile. What they print goes into docs/performance.md and docs/experiments.md.
"""
