"""Random numbers in kernels: the same for every schedule, and those of the reference; torch's generator."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition

DTYPES = [DataType.Float, DataType.Double, DataType.Half, DataType.BFloat16, DataType.Float8_e5m2]
NAMES = ["rand_like", "randn_like", "uniform", "normal"]


def _definition(name: str, dtype: DataType, stateless: bool) -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=dtype)
        state: dict[str, Any] = {}
        if stateless:
            state = {
                "rng_seed": fd.define_scalar(dtype=DataType.Int),
                "rng_offset": fd.define_scalar(dtype=DataType.Int),
            }
        if name.endswith("like"):
            numbers = getattr(fd.ops, name)(x, **state)
        else:
            numbers = getattr(fd.ops, name)(-0.5, 1.5, x.shape(), dtype=dtype, **state)
        fd.add_output(numbers)
    return fd


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sampled(0.5)
def test_numbers_of_a_seed_are_those_of_the_reference(
    name: str, dtype: DataType, target: torch.device
) -> None:
    fd = _definition(name, dtype, stateless=True)
    for shape in ((5, 9), (16, 64), (1, 7), (0, 3)):
        x = torch.zeros(shape, device=target).to(dtype.torch)
        (numbers,) = fd.validate([x, 2**62 + 1, 4])
        assert numbers.dtype == dtype.torch and numbers.shape == x.shape
        if name == "rand_like" and numbers.numel():
            assert float(numbers.float().min()) >= 0 and float(numbers.float().max()) < 1
        if name == "uniform" and numbers.numel():
            assert float(numbers.float().min()) >= -0.5 and float(numbers.float().max()) < 1.5


@pytest.mark.parametrize("name", NAMES)
def test_a_generator_gives_the_numbers_of_its_seed_and_offset(name: str, target: torch.device) -> None:
    drawn = _definition(name, DataType.Float, stateless=False)
    stated = _definition(name, DataType.Float, stateless=True)
    x = torch.zeros(5, 9, device=target)
    for seed in (0, 123, 2**63 - 1):
        torch.manual_seed(seed)
        sequence = [drawn.execute([x])[0] for _ in range(4)]
        for i, numbers in enumerate(sequence):
            assert torch.equal(numbers, stated.execute([x, seed, 4 * i])[0])
        assert not torch.equal(sequence[0], sequence[1])


def test_torchs_seed_reproduces_runs_whatever_torch_draws_in_between(target: torch.device) -> None:
    fd = _definition("rand_like", DataType.Float, stateless=False)

    def run() -> list[torch.Tensor]:
        torch.manual_seed(5)
        x = torch.randn(4, 8, device=target)
        found = fd.execute([x])
        return [*found, torch.randn(4, 8, device=target), *fd.execute([x]), *fd.execute([x])]

    first, second = run(), run()
    assert all(torch.equal(a, b) for a, b in zip(first, second))
    assert not torch.equal(first[0], first[2]) and not torch.equal(first[2], first[3])


def test_each_operation_draws_for_itself_and_every_kernel_sees_the_same(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        a, b = fd.ops.rand_like(x), fd.ops.rand_like(x)
        kept = fd.ops.where(fd.ops.lt(a, 0.5), x, 0.0)
        total = fd.ops.sum(kept, [0], keepdim=True)  # another kernel than what follows
        fd.add_output(a)
        fd.add_output(b)
        fd.add_output(fd.ops.mul(a, fd.ops.sum(total, [1], keepdim=True)))
        fd.add_output(fd.ops.segment_set(kept))
    given = torch.rand(40, 33, device=target)
    torch.manual_seed(1)
    first, second, scaled, copied = fd.validate([given])
    assert not torch.equal(first, second)
    expected = torch.where(first < 0.5, given, 0.0)
    assert torch.equal(copied, expected)
    torch.testing.assert_close(scaled, first * expected.sum())


def test_numbers_depend_on_the_position_alone(target: torch.device) -> None:
    """Not on strides, the order of dimensions in memory, or what the numbers are used for."""
    seed = {"rng_seed": 3, "rng_offset": 0}
    x = torch.randn(24, 40, device=target)
    results = []
    for given in (x, x.t().contiguous().t(), x[:, :1].expand(24, 40)):
        with FusionDefinition() as fd:
            t = fd.from_pytorch(given)
            numbers = fd.ops.rand_like(t, **seed)
            fd.add_output(numbers)
            fd.add_output(fd.ops.sum(numbers, [1]))
            fd.add_output(fd.ops.permute(numbers, [1, 0]))
            shifted = fd.ops.exp(fd.ops.mul(numbers, t))
            fd.add_output(fd.ops.div(shifted, fd.ops.sum(shifted, [1], keepdim=True)))
        results.append(fd.validate([given]))
    for numbers, total, turned, _ in results:
        assert torch.equal(numbers, results[0][0])
        assert torch.equal(turned, numbers.t())
        torch.testing.assert_close(total, numbers.sum(1))


def test_a_softmax_with_dropout_is_one_kernel(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        shifted = fd.ops.exp(fd.ops.sub(x, fd.ops.max(x, [1], keepdim=True)))
        softmax = fd.ops.div(shifted, fd.ops.sum(shifted, [1], keepdim=True))
        keep = fd.ops.lt(fd.ops.rand_like(x), 0.8)
        fd.add_output(fd.ops.mul(fd.ops.mul(softmax, keep), 1 / 0.8))
        fd.add_output(keep)
    _, kept = fd.validate([torch.randn(30, 200, device=target)])
    assert len(fd._last_kernels()) == 1
    assert abs(float(kept.float().mean()) - 0.8) < 0.03  # six standard deviations
