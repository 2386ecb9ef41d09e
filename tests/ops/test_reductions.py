import pytest
import torch

from fusewright.core.dtype import Category, DataType
from fusewright.ops.reductions import MAX, MIN, PROD, REDUCTIONS, SUM, WELFORD

D = DataType
DTYPES = {
    Category.BOOL: (D.Bool,),
    Category.INT: (D.Int, D.Int32),
    Category.FLOAT: (D.Float, D.Double),
    Category.COMPLEX: (D.ComplexFloat, D.ComplexDouble),
}
CASES = [(op, d) for op in REDUCTIONS.values() for category in sorted(op.supports) for d in DTYPES[category]]
each_row = pytest.mark.parametrize(("op", "dtype"), CASES, ids=[f"{op.name}-{d.name}" for op, d in CASES])


def elements(dtype, shape):
    generator = torch.Generator().manual_seed(7)
    if dtype.is_complex or dtype.is_floating:
        return torch.randn(shape, dtype=dtype.torch, generator=generator)
    low, high = (0, 2) if dtype.is_bool else (-3, 4)
    return torch.randint(low, high, shape, generator=generator).to(dtype.torch)


def expected(op, x, dims):
    if op is PROD:
        return (x.movedim(dims, tuple(range(len(dims)))).flatten(0, len(dims) - 1).prod(0).to(x.dtype),)
    if op is WELFORD:
        count = 1
        for dim in dims:
            count *= x.shape[dim]
        var, mean = torch.var_mean(x, dims, correction=0)
        return mean, var * count, torch.full_like(mean, count, dtype=torch.int64)
    return ({SUM: torch.sum, MAX: torch.amax, MIN: torch.amin}[op](x, dims).to(x.dtype),)


def close(got, want):
    assert len(got) == len(want)
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-5)


@each_row
@pytest.mark.parametrize("dims", [(0,), (2,), (0, 2), (0, 1, 2)], ids=str)
def test_reduce_is_torchs(op, dtype, dims):
    x = elements(dtype, (3, 4, 5))
    got = op.reduce(x, dims)
    types = [t.torch for t in op.state_dtypes(dtype)]
    assert [state.dtype for state in got] == types
    close(got, expected(op, x, dims))


@each_row
def test_combining_elements_one_by_one_is_the_reduction(op, dtype):
    """Lift, combine and the identity agree with `reduce`, in any grouping."""
    x = elements(dtype, (6, 4))
    types = op.state_dtypes(dtype)
    combine = op.combining(dtype).torch
    identity = tuple(torch.full((4,), v, dtype=t.torch) for v, t in zip(op.identity(dtype), types))
    left = identity
    for row in x:
        left = combine(left, op.lift_torch(row))
    close(left, op.reduce(x, (0,)))
    halves = combine(op.reduce(x[:2], (0,)), op.reduce(x[2:], (0,)))
    close(combine(identity, combine(halves, identity)), op.reduce(x, (0,)))


@each_row
def test_no_elements_give_the_identity(op, dtype):
    got = op.reduce(elements(dtype, (2, 0, 3)), (1,))
    for state, value in zip(got, op.identity(dtype)):
        assert state.shape == (2, 3) and (state == value).all()


def test_extrema_hand_on_nan_and_infinity():
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([[1.0, nan, 2.0], [-inf, -inf, -inf], [inf, inf, inf]])
    assert MAX.reduce(x, (1,))[0][0].isnan() and MIN.reduce(x, (1,))[0][0].isnan()
    assert MAX.reduce(x, (1,))[0][1] == -inf and MIN.reduce(x, (1,))[0][2] == inf
    a, b = (torch.tensor([nan, 1.0]),), (torch.tensor([1.0, nan]),)
    assert MAX.combining(D.Float).torch(a, b)[0].isnan().all()


def test_welford_does_not_cancel():
    """Around 1e4, the sum of squares less the squared sum would have no correct digit in Float."""
    x = 1e4 + elements(D.Float, (64,))
    states = WELFORD.lift_torch(x[0])
    for value in x[1:]:
        states = WELFORD.combining(D.Float).torch(states, WELFORD.lift_torch(value))
    want = ((x.double() - x.double().mean()) ** 2).sum()
    torch.testing.assert_close(states[1].double(), want, rtol=0.001, atol=0)
