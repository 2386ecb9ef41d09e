"""Definitions where torch must see one operation: dispatch modes, fake tensors, subclasses, torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import FlopCounterMode

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import ContiguityError, InputError, RankError, ShapeError, UserError
from fusewright.schedulers import default_registry

# The GPU of the highest number that fake tensors can be of. Where there is no GPU, that is any number;
# elsewhere torch itself makes a real tensor on the device of its first fake one.
FAKED_GPU = f"cuda:{torch.cuda.device_count() - 1 if torch.cuda.is_available() else 3}"
# Dynamo alone, and with what AOTAutograd makes of a graph: functional, of symbolic sizes.
BACKENDS = ("eager", "aot_eager")


class Recording(TorchDispatchMode):
    """Notes the name of every operator."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def scaled_sums() -> FusionDefinition:
    with FusionDefinition() as fd:
        a = fd.define_tensor([-1, -1], contiguity=True)
        y = a * fd.define_scalar(DataType.Float)
        fd.add_output(y)
        fd.add_output(fd.ops.sum(y, [1]))
    return fd


def torch_scaled_sums(x: torch.Tensor, factor: float) -> list[torch.Tensor]:
    return [x * factor, (x * factor).sum(1)]


def in_place() -> FusionDefinition:
    """Doubles its first input in place; returns a sum, the input's memory, and its second input."""
    with FusionDefinition() as fd:
        a = fd.define_tensor([-1, -1], contiguity=True)
        b = fd.define_tensor([-1], contiguity=True)
        y = a * 2.0
        fd.add_output(y, alias_input=a)
        fd.add_output(fd.ops.sum(y, [1]))
        fd.add_output(y)
        fd.add_output(b)
    return fd


def assert_all_close(given: Any, expected: Any) -> None:
    assert len(given) == len(expected)
    for a, b in zip(given, expected):
        torch.testing.assert_close(a, b)


# ---- modes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [lambda: FlopCounterMode(display=False), Recording])
def test_a_call_under_a_dispatch_mode_gives_right_results(
    mode: Callable[[], TorchDispatchMode], target: torch.device
) -> None:
    fd = scaled_sums()
    x = torch.randn(4, 8, device=target)
    for _ in range(2):
        with mode():
            assert_all_close(fd.execute([x, 3.0]), torch_scaled_sums(x, 3.0))


def test_a_mode_sees_one_operator(target: torch.device) -> None:
    fd, x = scaled_sums(), torch.randn(4, 8, device=target)
    with Recording() as outer, Recording() as inner:
        fd.execute([x, 3.0])
    assert outer.names == inner.names == ["fusewright.execute.default"]


def test_writing_in_place_under_a_mode(target: torch.device) -> None:
    fd = in_place()
    x, w = torch.randn(4, 8, device=target), torch.randn(3, device=target)
    doubled = 2 * x
    with Recording() as mode:
        total, same, second = fd.execute([x, w])
    assert mode.names == ["fusewright.execute_1.default"]
    assert same is x
    assert second is w
    assert torch.equal(x, doubled)
    torch.testing.assert_close(total, doubled.sum(1))


def test_options_of_a_call_reach_the_operator(target: torch.device) -> None:
    fd, x = scaled_sums(), torch.randn(4, 8, device=target)
    with Recording(), pytest.raises(UserError, match="no_such_switch"):
        fd.execute([x, 3.0], _enable_options=["no_such_switch"])


def test_a_call_that_is_looked_at_runs_under_a_mode(target: torch.device) -> None:
    fd, x = scaled_sums(), torch.randn(4, 8, device=target)
    with FlopCounterMode(display=False):
        outputs = fd.execute([x, 3.0], profile=True, capture_debug_output=True)
    assert_all_close(outputs, torch_scaled_sums(x, 3.0))
    assert fd.profile().kernel_profiles


def test_fake_tensors_cannot_be_profiled() -> None:
    with FakeTensorMode(), pytest.raises(InputError, match="FakeTensor, which holds no values in memory"):
        scaled_sums().execute([torch.empty(4, 8), 1.0], profile=True)


def test_errors_under_a_mode_are_those_of_a_plain_call(target: torch.device) -> None:
    fd, x = scaled_sums(), torch.randn(4, 8, device=target)
    for inputs in ([x], [2.0, 3.0], [x, x], [x[0], 1.0], [x, 1j]):
        with pytest.raises(UserError) as plain:
            fd.execute(inputs)
        with Recording(), pytest.raises(type(plain.value)):
            fd.execute(inputs)


def test_a_definition_without_inputs_under_a_mode(target: torch.device) -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.full([4, 3], 2.0, DataType.Float))
    with Recording():
        (out,) = fd.execute([], device=target)
    assert torch.equal(out, torch.full((4, 3), 2.0, device=target))
    with FakeTensorMode():
        (fake,) = fd.execute([], device=FAKED_GPU)
    assert isinstance(fake, FakeTensor)
    assert fake.device == torch.device(FAKED_GPU)


def test_each_schedule_and_registry_has_an_operator_of_its_own(target: torch.device) -> None:
    fd, other = scaled_sums(), scaled_sums()
    other._registry = default_registry()
    x = torch.randn(4, 8, device=target)
    with Recording():
        fd.execute([x, 3.0])
        other.execute([x, 3.0])
        first = fd._operator
        fd.schedule = lambda: fd.sched.schedule()  # type: ignore[method-assign]
        fd._prepare_operator()
    handles = [op.handle for op in (first, fd._operator, other._operator) if op is not None]
    assert len(set(handles)) == 3


# ---- fake tensors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "cuda", FAKED_GPU])
@pytest.mark.parametrize("inside", [True, False])
def test_fake_tensors_give_fake_outputs(device: str, inside: bool) -> None:
    with FusionDefinition() as fd:
        a = fd.define_tensor([-1, -1, -1], contiguity=True, dtype=DataType.BFloat16)
        fd.add_output(fd.ops.stride_order(a, [0, 2, 1]))
        fd.add_output(fd.ops.sum(fd.ops.cast(a, DataType.Float), [1]))
        fd.add_output(fd.ops.expand(fd.ops.broadcast(a, [False] * 3 + [True]), [2, 3, 4, 5]))
        fd.add_output(a)
    with FakeTensorMode() as mode:
        x = torch.empty(2, 3, 4, dtype=torch.bfloat16, device=device)
        if inside:
            outputs = fd.execute([x])
    if not inside:
        outputs = fd.execute([x])
    ordered, total, wide, same = outputs
    assert all(isinstance(out, FakeTensor) and out.fake_mode is mode for out in outputs)
    assert all(out.device == x.device for out in outputs)
    assert same is x
    real = fd.execute([torch.randn(2, 3, 4).to(torch.bfloat16)])
    for fake, out in zip((ordered, total, wide), real):
        assert (fake.shape, fake.stride(), fake.dtype) == (out.shape, out.stride(), out.dtype)


def test_fake_inputs_are_checked_like_others() -> None:
    fd = scaled_sums()
    with FakeTensorMode():
        with pytest.raises(RankError):
            fd.execute([torch.empty(4), 1.0])
        with pytest.raises(ContiguityError):
            fd.execute([torch.empty(4, 6)[:, ::2], 1.0])
        with pytest.raises(InputError):
            fd.execute([torch.empty(4, 6)])
    with FusionDefinition() as fd:
        a, b = fd.define_tensor([-1]), fd.define_tensor([-1])
        fd.add_output(a + b)
    with FakeTensorMode(), pytest.raises(ShapeError):
        fd.execute([torch.empty(4), torch.empty(5)])


def test_fake_calls_and_real_ones_take_turns(target: torch.device) -> None:
    fd, x = scaled_sums(), torch.randn(4, 8, device=target)
    for _ in range(2):
        with FakeTensorMode() as mode:
            assert all(isinstance(out, FakeTensor) for out in fd.execute([mode.from_tensor(x), 2.0]))
        assert_all_close(fd.execute([x, 2.0]), torch_scaled_sums(x, 2.0))


def test_writing_in_place_of_fake_tensors() -> None:
    with FakeTensorMode():
        x, w = torch.empty(4, 8, device="cuda"), torch.empty(3, device="cuda")
        total, same, second = in_place().execute([x, w])
    assert same is x
    assert second is w
    assert total.shape == (4,)


class Labelled(torch.Tensor):
    """A subclass that has its operations done by the tensor in it."""

    inner: Any

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Labelled:
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # type: ignore[override]
        args, kwargs = tree_map_only(Labelled, lambda x: x.inner, (args, kwargs or {}))
        return tree_map_only(torch.Tensor, Labelled, func(*args, **kwargs))


def test_a_subclass_decides_what_a_call_does_with_it(target: torch.device) -> None:
    fd, x = scaled_sums(), torch.randn(4, 8, device=target)
    for _ in range(2):
        fd.execute([x, 3.0])
        outputs = fd.execute([Labelled(x), 3.0])
        assert all(type(out) is Labelled for out in outputs)
        assert_all_close([out.inner for out in outputs], torch_scaled_sums(x, 3.0))


def test_a_tracer_records_one_operator(target: torch.device) -> None:
    fd, x = scaled_sums(), torch.randn(4, 8, device=target)
    graph = make_fx(lambda a: fd.execute([a, 3.0]))(x)
    called = [
        n.target for n in graph.graph.nodes if n.op == "call_function" and "fusewright" in str(n.target)
    ]
    assert called == [torch.ops.fusewright.execute.default]
    other = torch.randn(4, 8, device=target)
    assert_all_close(graph(other), torch_scaled_sums(other, 3.0))


# ---- torch.compile -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_definition_is_one_operator_of_a_compiled_graph(
    backend: str, dynamic: bool | None, target: torch.device
) -> None:
    fd = scaled_sums()

    def function(x: torch.Tensor, factor: float) -> list[torch.Tensor]:
        return [out + 1 for out in fd.execute([x * 2, factor])]

    compiled = torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic)
    for rows in (4, 5, 6):
        x = torch.randn(rows, 8, device=target, requires_grad=rows == 5)
        assert_all_close(compiled(x, 3.0), [out + 1 for out in torch_scaled_sums(2 * x.detach(), 3.0)])


def test_symbolic_sizes_are_passed_on(target: torch.device) -> None:
    graphs = []

    def counted(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    with FusionDefinition() as fd:
        a = fd.define_tensor([-1, -1], contiguity=True)
        n = fd.define_scalar(DataType.Int)
        wide = fd.ops.broadcast_in_dim(fd.ops.sum(a, [1]), [fd.ops.size(a, 0), n], [0])
        fd.add_output(fd.ops.add(wide, 1.0))
    compiled = torch.compile(
        lambda x: fd.execute([x, x.shape[1]])[0] * 2, backend=counted, fullgraph=True, dynamic=True
    )
    for shape in ((4, 8), (5, 7), (9, 3)):
        x = torch.randn(shape, device=target)
        expected = (x.sum(1, keepdim=True).expand(shape) + 1) * 2
        torch.testing.assert_close(compiled(x), expected)
    assert len(graphs) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_in_place_outputs_of_a_compiled_graph(backend: str, target: torch.device) -> None:
    fd = in_place()

    def function(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        before = x + 1
        return [before, *fd.execute([x, w]), x + 1]

    compiled = torch.compile(function, backend=backend, fullgraph=True)
    for _ in range(2):
        x, w = torch.randn(4, 8, device=target), torch.randn(3, device=target)
        old, doubled = x.clone(), 2 * x
        outputs = compiled(x, w)
        assert_all_close(outputs, [old + 1, doubled.sum(1), doubled, w, doubled + 1])
        assert torch.equal(x, doubled)


@pytest.mark.parametrize("returned", [0, 2])
def test_in_place_definitions_that_return_none_or_several(returned: int, target: torch.device) -> None:
    with FusionDefinition() as fd:
        a = fd.define_tensor([-1, -1], contiguity=True)
        y = a * 2.0
        fd.add_output(y, alias_input=a)
        for dim in range(returned):
            fd.add_output(fd.ops.sum(y, [dim]))
    compiled = torch.compile(lambda x: [*fd.execute([x]), x * 1], backend="aot_eager", fullgraph=True)
    x = torch.randn(4, 8, device=target)
    doubled = 2 * x
    assert_all_close(compiled(x), [*(doubled.sum(dim) for dim in range(returned)), doubled])


def test_a_graph_calls_the_definition_that_it_is_given(target: torch.device) -> None:
    def definition(factor: float) -> FusionDefinition:
        with FusionDefinition() as fd:
            fd.add_output(fd.define_tensor([-1]) * factor)
        return fd

    compiled = torch.compile(lambda fd, x: fd.execute([x])[0], backend="aot_eager", fullgraph=True)
    x = torch.randn(8, device=target)
    for factor in (2.0, 3.0, 2.0):
        torch.testing.assert_close(compiled(definition(factor), x), factor * x)


def test_a_definition_that_a_subclass_has_yet_to_write(target: torch.device) -> None:
    class Doubled(FusionDefinition):
        def definition(self) -> None:
            self.add_output(self.define_tensor([-1]) * 2.0)

    fd = Doubled()
    compiled = torch.compile(lambda x: fd.execute([x])[0], backend="aot_eager", fullgraph=True)
    x = torch.randn(8, device=target)
    torch.testing.assert_close(compiled(x), 2 * x)


def test_two_draws_of_random_numbers_stay_two(target: torch.device) -> None:
    with FusionDefinition() as fd:
        a = fd.define_tensor([-1], contiguity=True)
        zero, one = fd.define_scalar(0.0), fd.define_scalar(1.0)
        fd.add_output(a + fd.ops.uniform(zero, one, [fd.ops.size(a, 0)], dtype=DataType.Float))
    compiled = torch.compile(
        lambda x: (fd.execute([x])[0], fd.execute([x])[0]), backend="aot_eager", fullgraph=True
    )
    first, second = compiled(torch.zeros(64, device=target))
    assert not torch.equal(first, second)


def test_a_handle_that_no_definition_has_is_an_error(target: torch.device) -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([-1]) * 2.0)
    x = torch.randn(3, device=target)
    with Recording():
        fd.execute([x])
    with pytest.raises(UserError, match="is not known in this process"):
        torch.ops.fusewright.execute("0" * 64, [x], [], None, False, [], [])
