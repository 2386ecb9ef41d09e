"""Which scheduler takes which fusion, what it says of others, and what edited params may not be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fusewright.core.enums import SchedulerType
from fusewright.core.errors import OptionError, ParamsError, RegistrationError
from fusewright.ir import Fusion
from fusewright.ops.build_elementwise import apply_to_tensor
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_reduction import sum_
from fusewright.ops.build_shape import broadcast
from fusewright.schedule import Schedule
from fusewright.schedulers import (
    InnerPersistentScheduler,
    LaunchParams,
    PointwiseParams,
    PointwiseScheduler,
    ReductionParams,
    ReductionScheduler,
    Reject,
    apply,
    default_registry,
    propose,
    rejection_text,
)
from tests.schedulers import proposals as p


def chosen(fusion: Fusion) -> str:
    takers = (each for each in default_registry() if not isinstance(each.prepare(fusion), Reject))
    return next((str(taker.type.name) for taker in takers), "none")


def outer_normalization() -> Fusion:
    def body(fusion):
        x = define_tensor(fusion, [-1, -1], True)
        return apply_to_tensor(fusion, "sub", x, broadcast(fusion, sum_(fusion, x, [0]), [True, False]))

    return p.built(body)


@pytest.mark.parametrize(
    "fusion, name",
    [
        (p.elementwise(2), "pointwise"),
        (p.biased(), "pointwise"),
        (p.reduced([1]), "reduction"),
        (p.reduced([0]), "reduction"),
        (p.normalized(), "inner_persistent"),
        (p.scanned(0), "scan"),
    ],
)
def test_default_choice(fusion, name):
    assert chosen(fusion) == name


def test_a_pointwise_scheduler_needs_a_reference():
    verdict = PointwiseScheduler().prepare(p.reduced([1]))
    assert isinstance(verdict, Reject) and verdict.reason == "cannot find reference tensor"
    assert rejection_text(SchedulerType.pointwise, verdict.reason) == (
        "Scheduler _pointwise_ ***rejected*** because : cannot find reference tensor"
    )


@pytest.mark.parametrize(
    "scheduler, fusion, reason",
    [
        (ReductionScheduler(), p.elementwise(2), "no reduction"),
        (ReductionScheduler(), p.normalized(), "uses a reduced dimension again|depends on another"),
        (InnerPersistentScheduler(), p.elementwise(2), "no reduction"),
        (InnerPersistentScheduler(), p.reduced([1]), "nothing uses the result of the reduction"),
        (InnerPersistentScheduler(), outer_normalization(), "the contiguous dimension of T0 is not reduced"),
    ],
)
def test_rejections_give_the_reason(scheduler, fusion, reason):
    verdict = scheduler.prepare(fusion)
    assert isinstance(verdict, Reject)
    assert any(part in verdict.reason for part in reason.split("|"))


def test_reductions_of_other_dimensions_have_a_scheduler_of_their_own():
    fusion = Fusion()
    x = define_tensor(fusion, [-1, -1], True)
    for dim in (0, 1):
        add_output(fusion, sum_(fusion, x, [dim]))
    verdict = ReductionScheduler().prepare(fusion)
    assert isinstance(verdict, Reject) and "reduce different dimensions" in verdict.reason
    assert chosen(fusion) == "inner_outer"


def test_registry_order_and_lookup():
    registry = default_registry().copy()
    assert registry.get("pointwise") is registry.get(SchedulerType.pointwise)
    with pytest.raises(OptionError, match="unknown scheduler"):
        registry.get("matrix")
    mine = PointwiseScheduler()
    with pytest.raises(RegistrationError, match="Cannot register the scheduler pointwise: there is one"):
        registry.register(mine)
    registry.unregister("pointwise")
    registry.register(mine)
    assert next(iter(registry)) is mine
    other = ReductionScheduler()
    registry.unregister("reduction")
    registry.register(other, before=SchedulerType.inner_persistent)
    order = list(registry)
    assert order.index(other) == order.index(registry.get(SchedulerType.inner_persistent)) - 1


@pytest.mark.parametrize(
    "params, text",
    [
        (PointwiseParams(vectorization_factor=3), "Vectorization factor must be a power of 2"),
        (PointwiseParams(vectorization_factor=32), "`vectorization_factor`"),
        (PointwiseParams(unroll_factor_inner=0), "`unroll_factor_inner`: expected 1 to "),
        (PointwiseParams(break_point=-1), "`break_point`"),
        (PointwiseParams(lparams=LaunchParams(bdimx=2048)), "`lparams.bdimx`: expected 1 to 1024"),
        (PointwiseParams(lparams=LaunchParams(bdimx=64, bdimy=32)), "at most 1024"),
        (ReductionParams(fastest_dim=True), "`lparams.bdimx`: expected the extent"),
    ],
)
def test_edited_params_are_checked_before_they_are_applied(params, text):
    with pytest.raises(ParamsError) as error:
        params.validate(p.H200)
    assert text in str(error.value)


def test_params_that_another_kind_of_kernel_needs_are_refused():
    fusion = p.normalized()
    facts = p.facts_of(fusion, [(64, 64)])
    params = propose(InnerPersistentScheduler(), fusion, facts, p.H200)
    with pytest.raises(ParamsError, match="persistent_kernel"):
        apply(InnerPersistentScheduler(), Schedule(fusion), replace(params, persistent_kernel=False), p.H200)


def test_reasons_take_no_part_in_equality():
    assert PointwiseParams(reason="a") == PointwiseParams(reason="b")
    assert hash(PointwiseParams(reason="a")) == hash(PointwiseParams(reason="b"))
    assert ReductionParams() != ReductionParams(fastest_dim=True)
