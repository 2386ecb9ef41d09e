"""Four fusions, one for each kind of kernel: what docs/sweeps.md sweeps.

On a GPU with sizes that fill it; elsewhere with small ones, which the simulator runs.
"""

import torch

from fusewright import DataType, FusionDefinition

on_gpu = torch.cuda.is_available()
rows, columns = (16384, 4096) if on_gpu else (64, 256)
device = "cuda" if on_gpu else "cpu"


def matrix(*shape: int) -> torch.Tensor:
    generator = torch.Generator(device).manual_seed(0)
    return torch.randn(shape, dtype=torch.bfloat16, device=device, generator=generator)


with FusionDefinition() as bias_gelu:
    x = bias_gelu.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.BFloat16)
    bias = bias_gelu.define_tensor(shape=[-1], contiguity=True, dtype=DataType.BFloat16)
    h = x + bias
    y = 0.5 * h * (1.0 + bias_gelu.ops.erf(h * 0.7071067811865476))
    bias_gelu.add_output(bias_gelu.ops.cast(y, DataType.BFloat16))

with FusionDefinition() as column_sum:
    x = column_sum.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.BFloat16)
    column_sum.add_output(column_sum.ops.cast(column_sum.ops.sum(x, dims=[0]), DataType.BFloat16))

with FusionDefinition() as softmax:
    x = softmax.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.BFloat16)
    softmax.add_output(softmax.ops.softmax(x, 1))

with FusionDefinition() as transpose:
    x = transpose.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.BFloat16)
    transpose.add_output(transpose.ops.relu(transpose.ops.permute(x, [1, 0])))

bias_gelu.execute([matrix(rows, columns), matrix(columns)])
column_sum.execute([matrix(rows, columns)])
softmax.execute([matrix(rows, columns)])
transpose.execute([matrix(rows, columns)])
