"""Independent kernels in one launch: results, updates in place, and what stays apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import OutOfBoundsError
from fusewright.core.options import Options
from fusewright.host.executor import FusionExecutor
from fusewright.host.kernels import bundles
from fusewright.host.program.programs import BoundProgram
from fusewright.ir import TensorView
from fusewright.kernel.ir import Bind, Param, ScalarParam, TensorParam, walk
from fusewright.kernel.operands import POINTER_BYTES
from fusewright.runtime.compiled_kernel import CompiledKernel
from fusewright.runtime.compiler import HORIZONTAL
from fusewright.sim import simulate
from tests.host.fusions import Definition

LEARNING_RATE, DECAY, BETA1, BETA2, EPSILON = 1e-2, 1e-2, 0.9, 0.99, 1e-8


def updates(shapes: Sequence[Sequence[int]]) -> tuple[FusionDefinition, list[torch.Tensor]]:
    """x += 2 y for each shape, in place, and its inputs."""
    with FusionDefinition() as fd:
        for shape in shapes:
            x, y = (fd.define_tensor([-1] * len(shape), True, DataType.Float) for _ in range(2))
            fd.add_output(x + y * 2.0, x)
    return fd, [torch.randn(*shape) for shape in shapes for _ in range(2)]


def adamw(shapes: Sequence[Sequence[int]]) -> FusionDefinition:
    """One step over parameters of these ranks: parameter, gradient and both averages, in place but for the
    gradient.
    """
    with FusionDefinition() as fd:
        rate = fd.define_scalar(DataType.Double)
        for shape in shapes:
            p, g, m, v = (fd.define_tensor([-1] * len(shape), True, DataType.Float) for _ in range(4))
            mean = m * BETA1 + g * (1 - BETA1)
            square = v * BETA2 + g * g * (1 - BETA2)
            step = mean / (fd.ops.sqrt(square) + EPSILON)
            fd.add_output(p * (1 - LEARNING_RATE * DECAY) - rate * step, p)
            fd.add_output(mean, m)
            fd.add_output(square, v)
    return fd


def adamw_reference(inputs: Sequence[Any]) -> list[torch.Tensor]:
    """The inputs but the rate, as they should become."""
    rate, found = inputs[0], []
    for p, g, m, v in zip(*[iter(inputs[1:])] * 4):
        m, v = m * BETA1 + g * (1 - BETA1), v * BETA2 + g * g * (1 - BETA2)
        found += [p * (1 - LEARNING_RATE * DECAY) - rate * m / (v.sqrt() + EPSILON), g, m, v]
    return found


def pairs(inputs: Sequence[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return list(zip(inputs[::2], inputs[1::2]))


def kernels(fd: FusionDefinition) -> tuple[CompiledKernel, ...]:
    return fd._last_kernels()


def run(executor: FusionExecutor, inputs: Sequence[Any]) -> tuple[list[torch.Tensor], BoundProgram]:
    outputs = executor.execute(inputs)
    assert executor.last_program is not None
    return outputs, executor.last_program


def schedulers(program: BoundProgram) -> list[str]:
    return [kernel.scheduler for kernel in program.kernels]


def test_updates_of_equal_size_are_one_kernel_whose_code_is_there_once() -> None:
    fd, inputs = updates([(8, 12)] * 20)
    expected = [x + 2 * y for x, y in pairs(inputs)]
    fd.execute(inputs)
    assert all(map(torch.equal, inputs[::2], expected))
    [kernel] = kernels(fd)
    assert kernel.scheduler == HORIZONTAL and len(set(kernel.parts)) == 1
    [bind] = [stmt for stmt in walk(kernel.kernel.body) if isinstance(stmt, Bind)]
    assert len(bind.choices) == 20
    assert kernel.cuda_text.count("fw::store") == 1


def test_an_optimizer_step_over_tensors_of_different_sizes(target: torch.device) -> None:
    def given(scale: int) -> list[Any]:
        shapes = [(16 * scale + i,) if i % 3 else (3 + i, 4 * scale * (1 + i % 5)) for i in range(30)]
        tensors = [torch.rand(*shape, device=target) for shape in shapes for _ in range(4)]
        return [0.05, *tensors]

    fd = adamw([[0] if i % 3 else [0, 0] for i in range(30)])
    made = []
    for scale in (3, 3, 4, 5):
        inputs = given(scale)
        expected = adamw_reference(inputs)
        fd.execute(inputs)
        torch.testing.assert_close(inputs[1:], expected, rtol=1e-5, atol=1e-5)
        made.append(kernels(fd))
        assert len(made[-1]) <= 2 and sum(len(kernel.parts) for kernel in made[-1]) == 30
    assert made[0] == made[1], "a repeated call compiles nothing"


def test_parameters_of_one_launch_may_take_more_than_4_kilobytes() -> None:
    fd = adamw([[0]] * 75)
    inputs = [0.05, *[torch.empty(16 + i) for i in range(75) for _ in range(4)]]
    [kernel] = FusionExecutor(fd._finished().fusion).compile(inputs).kernels
    assert len(kernel.parts) == 75
    pointers = [param for param in kernel.kernel.params if isinstance(param, TensorParam)]
    assert len(pointers) * POINTER_BYTES > 4096


def test_a_call_of_other_sizes_takes_the_kernel_that_is_there() -> None:
    fd, inputs = updates([(64,), (32, 4), (8, 8)])
    fd.execute(inputs)
    first = kernels(fd)
    other = [torch.randn(*shape) for shape in ((1000,), (16, 64), (128, 4)) for _ in range(2)]
    expected = [x + 2 * y for x, y in pairs(other)]
    fd.execute(other)
    assert all(map(torch.equal, other[::2], expected))
    assert kernels(fd) == first and len(first) == 1


def different_bodies() -> tuple[FusionExecutor, list[torch.Tensor], list[torch.Tensor]]:
    """Kernels with blocks of 128 threads: elementwise, and rows that are held in registers, with barriers."""
    d = Definition()
    x, y, z = d.tensor(), d.tensor(), d.tensor()
    d.output(d.exp(x))
    d.output(d.sub(y, d.reduced("max", y)))
    d.output(d.neg(d.permute(z, [1, 0])))
    inputs = [torch.randn(9, 16), torch.randn(5, 512), torch.randn(4, 33)]
    expected = [inputs[0].exp(), inputs[1] - inputs[1].amax(1, keepdim=True), -inputs[2].T]
    return d.executor(), inputs, expected


def test_different_bodies_in_one_launch() -> None:
    executor, inputs, expected = different_bodies()
    outputs, program = run(executor, inputs)
    torch.testing.assert_close(outputs, expected)
    assert HORIZONTAL in schedulers(program)
    [kernel] = [kernel for kernel in program.kernels if kernel.parts]
    assert len({part.kernel for part in kernel.parts}) == len(kernel.parts) > 1
    blocks = {tuple(map(str, part.kernel.block)) for part in kernel.parts}
    assert len(blocks) == 1, "parts have equal blocks"
    _, profile = executor.profile(inputs)
    assert [each.scheduler for each in profile.kernel_profiles] == schedulers(program)


def test_a_workspace_is_that_of_its_launch_whatever_is_one_launch_before_it() -> None:
    """Sums across blocks have scratch memory, and so are launched by themselves."""
    d = Definition()
    x, y, z = d.tensor(), d.tensor(), d.tensor()
    d.output(d.exp(x))
    d.output(d.exp(y))
    d.output(d.reduced("sum", d.cut(d.neg(z)), [0, 1]))
    inputs = [torch.randn(3, 5), torch.randn(7, 5), torch.randn(37, 3001)]
    outputs, program = run(d.executor(), inputs)
    expected = [inputs[0].exp(), inputs[1].exp(), -inputs[2].sum((0, 1), keepdim=True)]
    torch.testing.assert_close(outputs, expected, rtol=1e-4, atol=1e-3)
    assert [len(plan.parts) for plan in program.launches] == [3, 1]


def test_equal_sums_of_one_launch_exchange_in_blocks_of_their_own() -> None:
    d = Definition()
    tensors = [d.tensor() for _ in range(3)]
    for tensor in tensors:
        d.output(d.reduced("sum", tensor, [0]))
    inputs = [torch.randn(32, 64) for _ in tensors]
    outputs, program = run(d.executor(), inputs)
    torch.testing.assert_close(outputs, [x.sum(0, keepdim=True) for x in inputs])
    assert [len(plan.parts) for plan in program.launches] == [3]


def test_the_switch_keeps_kernels_apart() -> None:
    executor, inputs, expected = different_bodies()
    outputs = executor.execute(inputs, options=Options().with_switches(disable="horizontal_fusion"))
    torch.testing.assert_close(outputs, expected)
    assert executor.last_program is not None
    assert len(executor.last_program.kernels) == 3 and HORIZONTAL not in schedulers(executor.last_program)


def test_what_depends_on_each_other_is_launched_in_order() -> None:
    """a and b are independent, c reads both, and d nothing of them: two launches."""
    d = Definition()
    x, y, z = d.tensor(), d.tensor(), d.tensor()
    a, b = d.cut(d.exp(x)), d.cut(d.neg(y))
    d.output(d.add(a, b))
    d.output(d.sin(z))
    executor = d.executor()
    inputs = [torch.randn(6, 10), torch.randn(6, 10), torch.randn(3, 5)]
    outputs, program = run(executor, inputs)
    torch.testing.assert_close(outputs, [inputs[0].exp() - inputs[1], inputs[2].sin()])
    assert [len(plan.parts) for plan in program.launches] in ([3, 1], [2, 2])


@pytest.mark.parametrize("in_place", [True, False])
def test_what_reads_an_input_is_not_beside_what_is_written_into_it(in_place: bool) -> None:
    d = Definition()
    x, z = d.tensor(), d.tensor()
    d.output(d.exp(z), *([x] if in_place else []))
    d.output(d.sub(x, d.reduced("max", x)))
    inputs = [torch.randn(8, 512), torch.randn(8, 512)]
    written, read = inputs[1].exp(), inputs[0] - inputs[0].amax(1, keepdim=True)
    outputs, program = run(d.executor(), inputs)
    torch.testing.assert_close((inputs[0] if in_place else outputs[0], outputs[-1]), (written, read))
    assert [len(plan.parts) for plan in program.launches] == ([1, 1] if in_place else [2])


def test_many_combinations_of_params_launch_the_parts_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part has kernels for widths of its own; all combinations of them are not compiled."""
    monkeypatch.setattr(bundles, "MAX_COMBINATIONS", 2)
    fd, _ = updates([(1,), (1,)])
    found = set()
    for a, b in [(64, 64), (65, 64), (64, 65), (66, 65), (65, 66), (65, 65)]:
        inputs = [torch.randn(n) for n in (a, a, b, b)]
        expected = [x + 2 * y for x, y in pairs(inputs)]
        fd.execute(inputs)
        assert all(map(torch.equal, inputs[::2], expected))
        found.update(kernel for kernel in kernels(fd) if kernel.parts)
    assert len(found) == 2 and len(kernels(fd)) == 2


def test_empty_tensors_beside_others() -> None:
    fd, _ = updates([(4, 4), (0, 4), (2, 4)])
    inputs = [torch.randn(*shape) for shape in ((5, 4), (0, 4), (3, 4)) for _ in range(2)]
    expected = [x + 2 * y for x, y in pairs(inputs)]
    fd.execute(inputs)
    assert all(map(torch.equal, inputs[::2], expected))


def test_what_goes_wrong_in_a_part_is_reported_with_the_definitions_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second part, whose code is that of all three, is given a tensor of an element too few."""
    d = Definition()
    for _ in range(3):
        d.output(d.exp(d.tensor()))
    executor = d.executor()
    inputs = [torch.randn(7, 5), torch.randn(9, 3), torch.randn(4, 11)]
    _, program = run(executor, inputs)
    [launch], [kernel] = program.launches, program.kernels
    at = next(i for i, p in enumerate(kernel.kernel.params) if parameter_name(p).startswith("p1.T"))

    def shortened(given: Any, values: Sequence[Any], **shape: Any) -> object:
        return simulate(given, [*values[:at], torch.randn(26), *values[at + 1 :]], **shape)

    monkeypatch.setattr("fusewright.runtime.targets.simulate", shortened)
    with pytest.raises(OutOfBoundsError) as raised:
        executor.execute(inputs)
    theirs = launch.parts[1].op.values[0]
    assert isinstance(theirs, TensorView)
    assert f"{parameter_name(kernel.kernel.params[at])} is {theirs.name}" in str(raised.value)


def parameter_name(param: Param) -> str:
    return param.name if isinstance(param, ScalarParam) else param.buffer.name
