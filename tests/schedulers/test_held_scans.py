"""Rows that are reduced and scanned by one kernel: held in registers, or gone over in steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import ParamsError
from fusewright.kernel import ir as k
from fusewright.schedulers.params import LaunchParams, ReductionParams
from tests.integration.tolerance import assert_close

Define = Callable[[FusionDefinition], None]


def _input(fd: FusionDefinition, dtype: DataType = DataType.Float):
    return fd.ops.cast(fd.define_tensor([-1, -1], contiguity=True, dtype=dtype), DataType.Float)


def _volatility(fd: FusionDefinition, dtype: DataType) -> None:
    """Running sums of squared differences from the mean: a reduction, then a scan."""
    x = _input(fd, dtype)
    centered = x - fd.ops.mean(x, dims=[1], keepdim=True)
    fd.add_output(fd.ops.cumsum(centered * centered, 1))


def _fall(fd: FusionDefinition, dtype: DataType) -> None:
    """The deepest fall from a running maximum: a scan, then a reduction."""
    x = _input(fd, dtype)
    fd.add_output(fd.ops.max(fd.ops.cummax(x, 1) - x, [1]))


def _distribution(fd: FusionDefinition, dtype: DataType) -> None:
    """Two dependent reductions, a scan, and what is scanned beside its result."""
    x = _input(fd, dtype)
    share = fd.ops.softmax(x, 1)
    fd.add_output(fd.ops.cumsum(share, 1) - share)
    fd.add_output(fd.ops.cast(fd.ops.max(x, [1]), dtype))


def _kept(fd: FusionDefinition, dtype: DataType) -> None:
    """A reduction of what follows from a scan, and both again."""
    share = fd.ops.softmax(_input(fd, dtype), 1)
    before = fd.ops.cumsum(share, 1) - share
    kept = fd.ops.where(before < 0.7, share, 0.0)
    fd.add_output(kept / fd.ops.sum(kept, [1], True))


def _two_scans(fd: FusionDefinition, dtype: DataType) -> None:
    """A scan of a scan, another beside it, and a reduction between them."""
    x = _input(fd, dtype)
    once = fd.ops.cumsum(x - fd.ops.mean(x, dims=[1], keepdim=True), 1)
    fd.add_output(fd.ops.cumsum(once * 0.125, 1))
    fd.add_output(fd.ops.logcumsumexp(x, 1))


def _by_torch(define: Callable[..., None], x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    if define is _volatility:
        return ((x - x.mean(1, keepdim=True)).square().cumsum(1),)
    if define is _fall:
        return ((x.cummax(1).values - x).amax(1),)
    if define is _two_scans:
        return (
            ((x - x.mean(1, keepdim=True)).cumsum(1) * 0.125).cumsum(1),
            torch.logcumsumexp(x, 1),
        )
    share = x.softmax(1)
    before = share.cumsum(1) - share
    if define is _distribution:
        return before, x.amax(1)
    kept = torch.where(before < 0.7, share, 0.0)
    return (kept / kept.sum(1, keepdim=True),)


ALL = (_volatility, _fall, _distribution, _kept, _two_scans)
_HELD = ReductionParams(
    fastest_dim=True,
    persistent_kernel=True,
    unroll_factor_inner_reduction=4,
    vectorize_inner_reduction=True,
    batches_per_block_inner_reduction=3,
    pad_inner_reduction_to_warp=True,
    lparams=LaunchParams(bdimx=-1),
)
_STEPS = replace(
    _HELD,
    project_persistent_buffers=True,
    batches_per_block_inner_reduction=0,
    unroll_factor_top_of_vectorization=2,
    held_steps=1,
    lparams=LaunchParams(bdimx=32),
)
WAYS = {
    "one batch": replace(_HELD, batches_per_block_inner_reduction=1),
    "batches": _HELD,
    "inputs alone": replace(_HELD, project_persistent_buffers=True),
    "rows of a block": replace(_HELD, batches_per_block_inner_reduction=12, lparams=LaunchParams(bdimy=3)),
    "part of a warp": replace(
        _HELD, batches_per_block_inner_reduction=20, lparams=LaunchParams(bdimx=16, bdimy=4)
    ),
    "no vectors": replace(_HELD, unroll_factor_inner_reduction=1, vectorize_inner_reduction=False),
    "steps": _STEPS,
    "steps that are read again": replace(_STEPS, held_steps=0),
    "steps of one vector": replace(_STEPS, unroll_factor_top_of_vectorization=1, held_steps=2),
    "steps that are loaded ahead": replace(_STEPS, prefetches_steps=True),
    "steps of two rows": replace(_STEPS, lparams=LaunchParams(bdimx=32, bdimy=2)),
}


def _check(fd: FusionDefinition, define: Callable[..., None], x: torch.Tensor, **how) -> None:
    for out, expected in zip(fd.execute([x], **how), _by_torch(define, x.double())):
        assert_close(out, expected, 8 * x.shape[1])
    [kernel] = fd._last_kernels()
    assert kernel.scheduler == "inner_persistent"


def _defined(define: Callable[..., None], dtype: DataType = DataType.Float) -> FusionDefinition:
    with FusionDefinition() as fd:
        define(fd, dtype)
    return fd


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("define", ALL, ids=lambda define: define.__name__[1:])
@pytest.mark.sampled(0.4)
def test_one_kernel_by_given_params(define, way: str, target: torch.device) -> None:
    fd = _defined(define)
    for shape in ((5, 1000), (7, 320)):
        x = (torch.randint(-64, 64, shape) / 64).to(target)
        _check(fd, define, x, schedules={0: WAYS[way].for_length(shape[1])})


@pytest.mark.parametrize("dtype", [DataType.BFloat16, DataType.Float])
@pytest.mark.parametrize("shape", [(33, 257), (9, 1001), (3, 4099), (1, 64), (40, 1), (2, 0), (0, 8)])
@pytest.mark.parametrize("define", ALL, ids=lambda define: define.__name__[1:])
@pytest.mark.sampled(0.5)
def test_proposals_of_all_lengths(define, shape: tuple[int, int], dtype: DataType, target) -> None:
    """Odd rows among them, whose vectors begin at aligned addresses."""
    if not shape[1]:
        return
    x = (torch.randint(-64, 64, shape) / 64).to(dtype.torch).to(target)
    fd = _defined(define, dtype)
    for out, expected in zip(fd.execute([x]), _by_torch(define, x.double())):
        assert_close(out, expected, 8 * shape[1])


def test_long_rows_are_held_in_shared_memory_by_steps(target: torch.device) -> None:
    fd = _defined(_distribution, DataType.BFloat16)
    x = (torch.randint(-64, 64, (3, 32000)) / 16).bfloat16().to(target)
    _check(fd, _distribution, x)
    [kernel] = fd._last_kernels()
    assert kernel.params.batches_per_block_inner_reduction == 0 < kernel.params.held_steps
    scans = [s for s in k.walk(kernel.kernel.body) if isinstance(s, k.BlockScan)]
    assert len(scans) == 1


def test_shared_memory_suffices_for_what_is_proposed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What threads of a scan pass on besides what steps hold: else other kernels would be used."""
    monkeypatch.setenv("FUSEWRIGHT_SIM_DEVICE", "h200")
    fd = _defined(_distribution, DataType.BFloat16)
    for length in (24_000, 32_000, 56_008, 100_000, 112_000, 128_256, 160_000):
        kernels = fd.kernels_for(
            [torch.empty(512, length, dtype=torch.bfloat16, device="meta")], device="cpu"
        )
        assert [kernel.scheduler for kernel in kernels] == ["inner_persistent"], length


def test_rows_that_are_needed_again_are_held_by_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than computed anew, as long as a block stays small."""
    monkeypatch.setenv("FUSEWRIGHT_SIM_DEVICE", "h200")

    def masked(fd: FusionDefinition) -> None:
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.BFloat16)
        share = fd.ops.softmax(fd.ops.cast(x, DataType.Float), 1)
        fd.add_output(fd.ops.where(fd.ops.cumsum(share, 1) - share < 0.9, x, 0.0))

    with FusionDefinition() as fd:
        masked(fd)
    [kernel] = fd.kernels_for([torch.empty(4096, 4096, dtype=torch.bfloat16, device="meta")], device="cpu")
    assert not kernel.params.project_persistent_buffers
    assert kernel.params.lparams.bdimx == 256


@pytest.mark.parametrize(
    "field, given",
    [
        ("persistent_in_shared_memory", True),
        ("blocks_per_cluster", 2),
        ("unroll_factor_iter_dom", 2),
        ("staged_vector", 4),
    ],
)
def test_params_that_scanned_rows_do_not_take(field: str, given: object) -> None:
    fd = _defined(_volatility)
    x = torch.randn(16, 320)
    params = replace(_HELD, **{field: given})
    with pytest.raises(ParamsError, match=field):
        fd.execute([x], schedules={0: params.for_length(320)})


@pytest.mark.parametrize("field, given", [("sweeps_backward", True), ("persistent_blocks", 2)])
def test_params_that_steps_of_scanned_rows_do_not_take(field: str, given: object) -> None:
    fd = _defined(_volatility)
    with pytest.raises(ParamsError, match=field):
        fd.execute([torch.randn(16, 320)], schedules={0: replace(_STEPS, **{field: given})})


def test_scans_along_other_dimensions_are_kernels_of_their_own(target: torch.device) -> None:
    with FusionDefinition() as fd:
        x = _input(fd)
        mean = fd.ops.mean(x, dims=[1], keepdim=True)
        out = fd.ops.cumsum(x - mean, 0)
        fd.add_output(out)
    x = torch.randn(40, 24, device=target)
    assert_close(fd.execute([x])[0], (x.double() - x.double().mean(1, keepdim=True)).cumsum(0), 64)
    assert [kernel.scheduler for kernel in fd._last_kernels()] == ["reduction", "scan"]


@pytest.mark.parametrize(
    ("rows", "length", "lanes", "vectors"), [(65536, 257, 8, 5), (32768, 513, 16, 5), (524288, 33, 4, 2)]
)
def test_few_lanes_hold_short_odd_rows(
    rows: int, length: int, lanes: int, vectors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With as few places in vain as there can be."""
    monkeypatch.setenv("FUSEWRIGHT_SIM_DEVICE", "h200")
    with FusionDefinition() as fd:
        running = fd.ops.cumsum(fd.ops.softmax(_input(fd, DataType.BFloat16), 1), 1)
        fd.add_output(fd.ops.cast(running, DataType.BFloat16))
    [kernel] = fd.kernels_for([torch.empty(rows, length, dtype=torch.bfloat16, device="meta")], device="cpu")
    params = kernel.params
    assert isinstance(params, ReductionParams)
    assert params.shift_rows
    found = params.lparams.bdimx, params.batches_per_block_inner_reduction, params.lparams.bdimy
    assert found == (lanes, vectors, 128 // lanes)


def test_light_that_passes_through_samples_is_weighed_in_one_kernel(target: torch.device) -> None:
    """The product of all before, by a pad and a slice: rows of as many elements as there are samples."""
    x = (torch.randint(1, 64, (40, 192)) / 64).bfloat16().to(target)
    with FusionDefinition() as fd:
        given = fd.ops.cast(fd.from_pytorch(x, static_sizes=True), DataType.Float)
        passed = fd.ops.cumprod(fd.ops.pad(1.0 - given * 0.125, [1, 0], 1.0), 1)
        weight = given * fd.ops.slice(passed, [0, 0], [40, 192])
        fd.add_output(fd.ops.cast(weight, DataType.BFloat16))
        fd.add_output(fd.ops.sum(weight, [1]))
    weights, sums = fd.execute([x])
    through = torch.nn.functional.pad(1 - x.double() / 8, (1, 0), value=1.0).cumprod(1)[:, :-1]
    assert_close(weights, x.double() * through, 192)
    assert_close(sums, (x.double() * through).sum(1), 192)
    [kernel] = fd._last_kernels()
    assert kernel.scheduler == "inner_persistent"
    assert isinstance(kernel.params, ReductionParams)
    assert (kernel.params.unroll_factor_inner_reduction, kernel.params.unaligned_inputs) == (8, (0,))


def test_masks_of_the_most_probable_differ_only_within_rounding_of_the_threshold(
    target: torch.device,
) -> None:
    """Of the most probable: a decision may be another one than in double only where the running sum is as
    near to the threshold as its rounding. Rows of 20001 are gone over in steps, shorter ones are held.
    """
    threshold, unit = 0.9, torch.finfo(torch.float32).eps
    for length in (300, 4096, 20001):
        x = (torch.randn(4, length, generator=torch.Generator().manual_seed(length)) * 2).to(target)
        with FusionDefinition() as fd:
            share = fd.ops.softmax(fd.from_pytorch(x), 1)
            fd.add_output(fd.ops.cumsum(share, 1) - share < threshold)
        [kept] = fd.execute([x])
        share = x.double().softmax(1)
        before = share.cumsum(1) - share
        differ = kept != (before < threshold)
        near = (before - threshold).abs() <= 4 * length**0.5 * unit
        assert not (differ & ~near).any()
        assert differ.sum() <= near.sum() < x.numel() // 10
