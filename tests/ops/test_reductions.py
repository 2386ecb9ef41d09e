import itertools
import math

import pytest
import torch

from fusewright.core.dtype import Category, DataType
from fusewright.ops.reductions import (
    ARGMAX,
    ARGMIN,
    LOGSUMEXP,
    MAX,
    MAX_SUM_EXP,
    MIN,
    NOWHERE,
    PROD,
    REDUCTIONS,
    SUM,
    WELFORD,
)

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


def given_to(op, dtype, shape):
    """What a definition gives `op`: elements, and where each is if it asks."""
    at = torch.arange(math.prod(shape)).reshape(shape)
    return (elements(dtype, shape), at)[: op.operands]


def expected(op, given, dims):
    x = given[0]
    if op in (ARGMAX, ARGMIN):
        dims = sorted(dims)
        kept = [d for d in range(x.ndim) if d not in dims]
        rows, at = (t.permute(*kept, *dims).flatten(len(kept)) for t in given)
        find = torch.argmax if op is ARGMAX else torch.argmin
        first = find(rows.int() if rows.dtype is torch.bool else rows, -1, keepdim=True)
        return tuple(t.gather(-1, first).squeeze(-1) for t in (rows, at))
    if op is PROD:
        return (x.movedim(dims, tuple(range(len(dims)))).flatten(0, len(dims) - 1).prod(0).to(x.dtype),)
    if op is WELFORD:
        count = 1
        for dim in dims:
            count *= x.shape[dim]
        var, mean = torch.var_mean(x, dims, correction=0)
        return mean, var * count, torch.full_like(mean, count, dtype=torch.int64)
    if op is MAX_SUM_EXP:
        top = torch.amax(x, dims)
        return top, torch.exp(torch.logsumexp(x, dims) - top)
    if op is LOGSUMEXP:
        return (torch.log(torch.exp(x.double()).sum(dims)).to(x.dtype),)
    return ({SUM: torch.sum, MAX: torch.amax, MIN: torch.amin}[op](x, dims).to(x.dtype),)


def close(got, want):
    assert len(got) == len(want)
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-5)


@each_row
@pytest.mark.parametrize("dims", [(0,), (2,), (0, 2), (0, 1, 2)], ids=str)
def test_reduce_is_torchs(op, dtype, dims):
    x = given_to(op, dtype, (3, 4, 5))
    got = op.reduce(x, dims)
    types = [t.torch for t in op.state_dtypes(dtype)]
    assert [state.dtype for state in got] == types
    close(got, expected(op, x, dims))


@each_row
def test_combining_elements_one_by_one_is_the_reduction(op, dtype):
    """Lift, combine and the identity agree with `reduce`, in any grouping."""
    x = given_to(op, dtype, (6, 4))
    types = op.state_dtypes(dtype)
    combine = op.combining(dtype).torch
    identity = tuple(torch.full((4,), v, dtype=t.torch) for v, t in zip(op.identity(dtype), types))
    left = identity
    for row in zip(*x):
        left = combine(left, op.lift_torch(*row))
    close(left, op.reduce(x, (0,)))
    halves = combine(*(op.reduce(tuple(t[part] for t in x), (0,)) for part in (slice(2), slice(2, None))))
    close(combine(identity, combine(halves, identity)), op.reduce(x, (0,)))


@each_row
def test_no_elements_give_the_identity(op, dtype):
    got = op.reduce(given_to(op, dtype, (2, 0, 3)), (1,))
    for state, value in zip(got, op.identity(dtype)):
        assert state.shape == (2, 3) and (state == value).all()


def test_extrema_hand_on_nan_and_infinity():
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([[1.0, nan, 2.0], [-inf, -inf, -inf], [inf, inf, inf]])
    assert MAX.reduce((x,), (1,))[0][0].isnan() and MIN.reduce((x,), (1,))[0][0].isnan()
    assert MAX.reduce((x,), (1,))[0][1] == -inf and MIN.reduce((x,), (1,))[0][2] == inf
    a, b = (torch.tensor([nan, 1.0]),), (torch.tensor([1.0, nan]),)
    assert MAX.combining(D.Float).torch(a, b)[0].isnan().all()


def test_sums_of_exponentials_of_infinities():
    """-inf adds nothing, in whatever order it comes, and NaN is handed on."""
    nan, inf = float("nan"), float("inf")
    rows = torch.tensor([[-inf, -inf, -inf], [-inf, 5.0, -inf], [inf, 5.0, -inf], [nan, 5.0, -inf]])
    combine = MAX_SUM_EXP.combining(D.Float).torch
    for order in itertools.permutations(range(3)):
        state = tuple(torch.full((4,), v) for v in MAX_SUM_EXP.identity(D.Float))
        for i in order:
            state = combine(state, MAX_SUM_EXP.lift_torch(rows[:, i]))
        for top, total in (state, MAX_SUM_EXP.reduce((rows,), (1,))):
            assert str(top.tolist()) == str([-inf, 5.0, inf, nan])
            assert str(total.tolist()) == str([0.0, 1.0, inf, nan])


@pytest.mark.parametrize(("op", "of_infinities"), [(ARGMAX, 0), (ARGMIN, 2)], ids=["argmax", "argmin"])
def test_positions_of_extrema_do_not_depend_on_the_order(op, of_infinities):
    """NaN is extreme, the first of equal ones counts, and the identity is behind any element."""
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([[1.0, nan, nan, 0.0], [inf, inf, -inf, -inf], [0.0, -0.0, 0.0, 0.0]])
    at = torch.arange(4).expand(3, 4)
    wanted = [1, of_infinities, 0]
    assert op.reduce((x, at), (1,))[1].tolist() == wanted
    combine = op.combining(D.Float).torch
    for order in itertools.permutations(range(4)):
        state = tuple(torch.full((3,), v) for v in op.identity(D.Float))
        for i in order:
            state = combine(combine(state, (x[:, i], at[:, i])), state)
        assert state[1].tolist() == wanted
    alone = op.identity(D.Float)
    state = combine(tuple(map(torch.tensor, alone)), (torch.tensor(alone[0]), torch.tensor(7)))
    assert state[1] == 7 and alone[1] == NOWHERE


def test_welford_does_not_cancel():
    """Around 1e4, the sum of squares less the squared sum would have no correct digit in Float."""
    x = 1e4 + elements(D.Float, (64,))
    states = WELFORD.lift_torch(x[0])
    for value in x[1:]:
        states = WELFORD.combining(D.Float).torch(states, WELFORD.lift_torch(value))
    want = ((x.double() - x.double().mean()) ** 2).sum()
    torch.testing.assert_close(states[1].double(), want, rtol=0.001, atol=0)
