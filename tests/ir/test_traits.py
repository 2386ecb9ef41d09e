"""What is taken for granted of kinds of nodes: what each states, and that a new one is granted nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fusewright.core.dtype import DataType
from fusewright.core.enums import SchedulerType
from fusewright.core.errors import ScheduleError, VerifyError
from fusewright.ir import Fusion, Node, TensorView, Traits, Val, fusion_text, verify_fusion
from fusewright.lower.vector_copies import is_vector_access
from fusewright.ops.build_elementwise import apply_to_tensor
from fusewright.ops.build_inputs import add_output, define_tensor
from fusewright.ops.build_reduction import sum_
from fusewright.ops.build_shape import broadcast, permute
from fusewright.rewrite import canonicalize
from fusewright.schedule import Schedule
from fusewright.schedulers import Reject, Scheduler, default_registry
from fusewright.schedulers.io import cache_inputs_and_outputs
from fusewright.segment import partition
from fusewright.segment.recompute import recompute_borders
from tests.ir.kinds import KINDS

POINTWISE = Traits(pointwise=True, carries_relabels=True)
RELABEL = Traits(pointwise=True, move=True, view=True, relabel=True, carries_relabels=True, own_load=True)
STATED = {
    "Pointwise": POINTWISE,
    "Reduction": Traits(),
    "Scan": Traits(),
    "Copy": Traits(pointwise=True, move=True, carries_relabels=True),
    "Broadcast": RELABEL,
    "Squeeze": RELABEL,
    "Permute": RELABEL,
    "Relabel": RELABEL,
    "Expand": Traits(pointwise=True, move=True, view=True, carries_relabels=True),
    "Indexed": Traits(indexed=True, own_load=True),
    "Choose": Traits(pointwise=True, carries_relabels=True),
    "Stored": Traits(placed=True),
    "Piece": Traits(placed=True, piece=True),
    "Join": Traits(whole=True),
    "Update": Traits(placed=True, updates=True),
    "Full": POINTWISE,
    "Iota": POINTWISE,
    "Random": Traits(pointwise=True),
    "RandomState": Traits(),
    "LibraryCall": Traits(whole=True),
}

MAKING_KERNELS = [s for s in default_registry() if s.type is not SchedulerType.expr_eval]


class Recurrence(Node):
    """A kind that nothing knows: element i is the sum of the elements before it."""

    __slots__ = ("dim",)
    traits = Traits()
    attributes = ("dim",)

    def __init__(self, inputs: Sequence[Val], outputs: Sequence[Val], dim: int) -> None:
        super().__init__(inputs, outputs)
        self.dim = dim


def recurrence(fusion: Fusion, x: TensorView) -> TensorView:
    out = fusion.new_like(x)
    fusion.add_node(Recurrence((x,), (out,), 0))
    return out


def exp(fusion: Fusion, x: TensorView) -> TensorView:
    return apply_to_tensor(fusion, "exp", x)


@pytest.fixture
def fusion() -> Fusion:
    return Fusion()


def test_every_kind_states_its_traits():
    assert {kind.__name__: kind.traits for kind in KINDS} == STATED
    assert all("traits" in vars(kind) for kind in KINDS), "inherited traits are not stated"


@pytest.mark.parametrize("kind", KINDS)
def test_each_trait_includes_the_wider_one(kind):
    traits = kind.traits
    assert traits.relabel <= traits.view <= traits.move <= traits.pointwise >= traits.carries_relabels


def test_nothing_is_granted_to_a_kind_that_states_nothing():
    assert (
        Node.traits
        == Traits()
        == Traits(pointwise=False, move=False, view=False, relabel=False, carries_relabels=False)
    )


def test_the_verifier_asks_for_traits(fusion):
    class Unstated(Node):
        __slots__ = ()

    x = define_tensor(fusion, [4], True)
    out = fusion.new_tensor([fusion.copy_axis(x.logical[0])], DataType.Float)
    fusion.add_node(Unstated((x,), (out,)))
    add_output(fusion, out)
    with pytest.raises(VerifyError, match="the node class Unstated states no traits"):
        verify_fusion(fusion)


def test_the_verifier_takes_a_new_kind_and_prints_it(fusion):
    add_output(fusion, recurrence(fusion, define_tensor(fusion, [4], True)))
    verify_fusion(fusion)
    assert "Recurrence( T0_g_float[iS0{4}], dim=0 );" in fusion_text(fusion)


@pytest.mark.parametrize("scheduler", MAKING_KERNELS, ids=lambda s: s.type.name)
@pytest.mark.parametrize("with_reduction", [False, True])
def test_schedulers_refuse_a_new_kind_by_name(fusion, scheduler: Scheduler, with_reduction: bool):
    x = define_tensor(fusion, [-1, -1], True)
    y = exp(fusion, recurrence(fusion, x))
    if with_reduction:
        y = apply_to_tensor(fusion, "sub", y, broadcast(fusion, sum_(fusion, y, [1]), [False, True]))
    add_output(fusion, y)
    verdict = scheduler.prepare(fusion)
    others = {SchedulerType.scan: "scan", SchedulerType.inner_persistent: "reduction nor a scan"}
    other = others.get(scheduler.type, "reduction")
    assert verdict == Reject(f"Recurrence, which computes T1, is neither pointwise nor a {other}")


def test_no_kernel_is_made_of_a_new_kind(fusion):
    add_output(fusion, recurrence(fusion, exp(fusion, define_tensor(fusion, [-1], True))))
    with pytest.raises(ScheduleError, match="Recurrence, which computes T2"):
        partition(fusion, default_registry())


def test_a_new_kind_is_not_computed_again(fusion):
    x = define_tensor(fusion, [-1], True)
    first = recurrence(fusion, x)
    second = exp(fusion, first)
    add_output(fusion, second)
    groups = [[first.definition], [second.definition]]
    position = {node: i for i, node in enumerate(fusion.ordered_nodes())}
    found = recompute_borders(fusion, groups, position, lambda nodes, read: True)
    assert found == [[group] for group in groups]


def test_relabels_stay_below_a_new_kind(fusion):
    x = define_tensor(fusion, [-1, -1], True)
    add_output(fusion, permute(fusion, recurrence(fusion, x), [1, 0]))
    add_output(fusion, permute(fusion, exp(fusion, recurrence(fusion, x)), [1, 0]))
    before = str(fusion)
    canonicalize(fusion)
    assert str(fusion) == before


def test_a_new_kind_is_no_load_and_no_vector_access(fusion):
    out = recurrence(fusion, define_tensor(fusion, [8], True))
    add_output(fusion, out)
    assert not is_vector_access(out.definition)
    ports = cache_inputs_and_outputs(schedule := Schedule(fusion))
    assert [load.definition.label for load in ports.loads] == ["Set"] and len(schedule.tensors()) == 4
