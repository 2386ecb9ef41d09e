"""The host program: its printed form, its Python, and the dumps that show them."""

from __future__ import annotations

import io

import torch

from fusewright.core.options import Options
from fusewright.core.tracing import Tracer
from fusewright.host.inputs.layout import Layout
from fusewright.host.inputs.scalars import ScalarFunction
from fusewright.host.program.codegen import codegen
from fusewright.host.program.ir import EvaluateScalar
from fusewright.host.program.programs import Programs
from fusewright.host.program.workspaces import ZeroedWorkspace
from fusewright.ir import TensorView
from fusewright.ops.build_elementwise import cast
from fusewright.runtime.arguments import Workspace
from fusewright.runtime.targets import SimulatedTarget
from fusewright.sym import Symbol, const
from tests.host.fusions import DataType, Definition


def chain():
    d = Definition()
    x, s = d.tensor(), d.scalar()
    d.output(d.mul(d.cut(d.exp(x)), d.mul(s, s)))
    return d.executor()


def test_program_and_code():
    executor = chain()
    program = executor.compile([torch.ones(4, 8), 2.0])
    first, second = (kernel.name for kernel in program.kernels)
    text = str(program.program)
    assert "d4 = mul(d3, d3)" in text
    order = [text.index(part) for part in (f"launch {first}", f"launch {second}", "free T1", "return T")]
    assert order == sorted(order)
    assert program.code.source.startswith("def run(inputs):") and "del T1" in program.code.source


def test_scalars_of_sizes_and_constants_are_computed_once_for_a_signature():
    d = Definition()
    x, s = d.tensor(), d.scalar()
    rows = d.fusion.size_scalar(x.extents[0])
    per_row = d.mul(rows, rows)
    d.output(d.mul(d.add(x, per_row), d.mul(cast(d.fusion, per_row, DataType.Double), s)))
    program = d.executor().compile([torch.ones(4, 8), 2.0])
    assert program.program.setup[0].node.outputs == (per_row,)
    at_each_call = [op.node.label for op in program.program.operations if isinstance(op, EvaluateScalar)]
    assert at_each_call == ["mul", "cast"]  # what depends on the scalar input
    for size in (4, 5):
        (out,) = d.executor().execute([torch.ones(size, 8), 2.0])
        assert torch.equal(out, torch.full((size, 8), (1.0 + size**2) * size**2 * 2.0))


def test_tensors_on_another_device_than_the_current_one_run_on_theirs():
    executor = chain()
    program = executor.compile([torch.ones(4, 8), 2.0])
    code = codegen(program.program, takes_pointers=False, has_stream=False, several_devices=True)
    current = [0]

    class OnDevice:
        def __enter__(self):
            current[0] = 1

        def __exit__(self, *_):
            current[0] = 0

    places = {"current_device": lambda: current[0], "device_index": 1, "on_device": OnDevice}
    (out,) = code.function({**program.names, **places})()([torch.zeros(4, 8), 3.0])
    assert torch.equal(out, torch.full((4, 8), 9.0)) and current == [0]


def test_sizes_share_the_code():
    executor = chain()
    programs = [executor.compile([torch.ones(rows, 8), 2.0]) for rows in (8, 16)]
    assert programs[0].code is programs[1].code and programs[0].run is not programs[1].run


def test_dumps():
    stream = io.StringIO()
    names = ("host", "launch", "segments", "params", "schedule", "cuda")
    options = Options(dump=tuple((name, ()) for name in names))
    chain().execute([torch.ones(4, 8), 2.0], tracer=Tracer(options, stream))
    text = stream.getvalue()
    for name in names:
        assert f"==== fusewright {name}" in text
    assert "segment 1 (pointwise)" in text and "grid (" in text and "def run(inputs):" in text


def sizes(tensor: TensorView, *shape: int) -> dict[Symbol, int]:
    return {e: size for e, size in zip(tensor.extents, shape) if isinstance(e, Symbol)}


def test_layout_of_expanded_and_reordered_outputs():
    d = Definition()
    x = d.tensor([-1, 1, -1], [True, None, True])
    plain = Layout(x)
    assert plain.at(sizes(x, 5, 1, 7)) == ((5, 1, 7), (7, 7, 1))
    y = d.tensor([3, -1], [None, True])
    assert Layout(y).at(sizes(y, 3, 4)) == ((3, 4), (0, 1))
    z = d.tensor([-1, -1], stride_order=[0, 1])
    assert Layout(z).at(sizes(z, 2, 3)) == ((2, 3), (1, 2))


def test_scalar_functions_agree_with_the_rows():
    d = Definition()
    a, b, n = d.scalar(), d.scalar(), d.scalar(DataType.Int)
    cases = [
        (d.add(a, b), (1.5, 2), 3.5),
        (d.mul(a, b), (1e200, 1e200), float("inf")),
        (d.pow(a, b), (2.0, 0.5), 2**0.5),
        (d.lt(a, b), (1.0, 2.0), True),
        (cast(d.fusion, a, DataType.Float), (0.1,), torch.tensor(0.1).item()),
        (cast(d.fusion, n, DataType.Double), (3,), 3.0),
        (d.neg(n), (5,), -5),
        (d.mul(n, n), (2**62, 4), 0),  # wraps, as in 64 bits
        (cast(d.fusion, n, DataType.Float), (2**60 + 2**36 + 1,), float(2**60 + 2**37)),  # rounds once
    ]
    for result, operands, expected in cases:
        value = ScalarFunction(result.definition)(*operands)
        assert value == expected and type(value) is type(expected)


def test_zeroed_workspace_is_kept_per_stream():
    workspace = ZeroedWorkspace(8, torch.int32, torch.device("cpu"))
    first = workspace(1)
    assert first.tolist() == [0] * 8
    assert workspace(1) is first and workspace(2) is not first


def test_zeroed_workspaces_belong_to_a_kernel_and_a_shape_of_its_grid():
    """What launches leave there numbers the rounds of the blocks of one grid."""
    executor = chain()
    programs = Programs(executor.fusion, SimulatedTarget(Options()), frozenset())
    workspace = Workspace(const(8), DataType.Int, zeroed=True)

    def of(kernel, *grid):
        return programs._zeroed(kernel, 0, workspace, 8, grid)

    assert of("a", 2, 4, 1) is of("a", 2, 4, 1)
    assert of("a", 2, 4, 1) is not of("a", 4, 2, 1) and of("a", 2, 4, 1) is not of("b", 2, 4, 1)
