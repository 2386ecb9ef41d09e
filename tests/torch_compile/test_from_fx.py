"""`from_fx`: what it makes of whole graphs, run in the simulator."""

from __future__ import annotations

import copy
import json
import pickle
import re

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch.fx.experimental.proxy_tensor import make_fx

from fusewright.core.errors import GraphError, InputError, ShapeError
from fusewright.torch_compile import decompositions, from_fx
from tests.torch_compile.graphs import traced


def kernels(converted):
    return [k for fd in converted.definitions for k in fd._finished().executor.last_program.kernels]


def test_results_nest_and_repeat_as_in_the_graph():
    def function(x, y):
        total = x + y
        return {"sum": total, "more": [total, x, None, 3]}

    x, y = torch.randn(4, 8), torch.randn(4, 8)
    made = from_fx(traced(function, x, y))(x, y)
    assert made["more"][0] is made["sum"] and made["more"][1] is x and made["more"][2:] == [None, 3]
    torch.testing.assert_close(made["sum"], x + y)


def test_a_symbolic_size_may_be_any():
    def function(x):
        return torch.softmax(x.reshape(x.shape[0] * x.shape[1], x.shape[2]), -1).sum(0)

    converted = from_fx(traced(function, torch.randn(3, 4, 5), symbolic=True))
    for shape in ((3, 4, 5), (2, 7, 9)):
        x = torch.randn(shape)
        torch.testing.assert_close(converted(x), function(x))


def test_a_mean_divides_by_a_symbolic_size():
    def function(x):
        return x / (x.shape[0] / 2) + x.sum(1, keepdim=True) / x.shape[1]

    converted = from_fx(traced(function, torch.randn(3, 4), symbolic=True))
    x = torch.randn(5, 7)
    torch.testing.assert_close(converted(x), function(x))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.reshape(x.shape[0], -1) + 1,
        lambda x: x.reshape(-1, x.shape[1] * x.shape[2]).sum(0),
        lambda x: torch.nn.functional.pad(x, (1, 2)).reshape(-1),
        lambda x: x[:, : x.shape[1] // 2].reshape(-1) * 2,
        lambda x: x[1:, ::2].transpose(0, 2).reshape(-1) * 2,
        lambda x: x.sum() / x.numel(),
        lambda x: torch.cat([x, x], 1).flatten(1) - x.shape[2] ** 2,
    ],
)
def test_sizes_that_are_computed_from_others_are_computed_in_the_definition(function):
    converted = from_fx(traced(function, torch.randn(4, 6, 5), symbolic=True))
    assert len(converted.definitions) == 1 and not converted.report().evaluated
    for shape in ((4, 6, 5), (3, 7, 2), (2, 9, 6)):
        x = torch.randn(shape)
        torch.testing.assert_close(converted(x), function(x))


def test_a_size_that_is_a_number_must_be_that():
    x = torch.randn(3, 4)
    converted = from_fx(traced(lambda x: x * 2, x))
    with pytest.raises(ShapeError):
        converted(torch.randn(3, 5))
    with pytest.raises(InputError):
        converted(x, x)


def test_a_size_may_be_a_result():
    converted = from_fx(traced(lambda x: (x * 2, x.shape[0] + 1), torch.randn(3, 4), symbolic=True))
    x = torch.randn(5, 4)
    made = converted(x)
    torch.testing.assert_close(made[0], x * 2)
    assert made[1] == 6


def test_updates_of_inputs_are_done_in_place():
    def step(parameter, grad):
        parameter.sub_(0.1 * grad)
        return parameter.sum()

    parameter, grad = torch.randn(8), torch.randn(8)
    converted = from_fx(traced(torch.func.functionalize(step), parameter, grad))
    mine, address = parameter.clone(), parameter.data_ptr()
    total = converted(parameter, grad)
    assert parameter.data_ptr() == address
    torch.testing.assert_close(total, step(mine, grad))
    torch.testing.assert_close(parameter, mine)


def test_writing_into_tensors_within_is_done_as_written():
    def function(x, total):
        y = x.clone()
        y[0].add_(1)
        total.copy_(y)
        total.mul_(2)
        return y + total

    x, total = torch.randn(3, 4), torch.randn(3, 4)
    converted = from_fx(traced(function, x, total))
    mine = total.clone()
    torch.testing.assert_close(converted(x, total), function(x, mine))
    torch.testing.assert_close(total, mine)


class Counted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros(1))
        self.offset = torch.arange(3.0)

    def forward(self, x):
        self.calls.add_(1)
        return torch.nn.functional.layer_norm(self.linear(x), (3,)) + self.offset, self.calls * 2


def test_an_exported_program_holds_its_parameters_and_updates_its_buffers():
    module, x = Counted(), torch.randn(5, 4)
    program = torch.export.export(module, (x,))
    converted = from_fx(program)
    for call in (1, 2):
        made, twice = converted(x)
        assert float(twice) == 2 * call
        expected = torch.nn.functional.layer_norm(module.linear(x), (3,)) + module.offset
        torch.testing.assert_close(made, expected.detach())


def test_torch_computes_between_definitions_what_they_cannot_hold():
    def function(x):
        levels = ((x + 1) * 8).to(torch.uint32)
        places = torch.nonzero(x[0] > 0)
        return levels.to(torch.float32) * 2, places, x.exp()

    x = torch.rand(4, 8)
    converted = from_fx(traced(function, x, symbolic=True))
    for a, b in zip(converted(x), function(x), strict=True):
        torch.testing.assert_close(a, b)
    assert len(converted.definitions) == 2
    report = converted.report()
    reasons = {e.operator: e.reason for e in report.evaluated}
    assert "torch.uint32" in reasons["aten._to_copy.default"]
    assert not any(e.within for e in report.evaluated)
    assert json.loads(json.dumps(report.to_dict()))["definitions"] == 2
    assert "torch computes aten.nonzero.default (1x, between definitions)" in str(report)


def test_elements_seen_as_another_type_of_their_size_are_no_kernel_of_their_own():
    """Stochastic rounding to bfloat16."""

    def function(x, noise):
        bits = x.view(torch.int32)
        return ((bits + (noise & 0xFFFF)) & -65536).view(torch.float32).to(torch.bfloat16)

    x, noise = torch.randn(16, 32), torch.randint(0, 2**31 - 1, (16, 32)).int()
    converted = from_fx(traced(function, x, noise))
    assert torch.equal(converted(x, noise), function(x, noise))
    assert not converted.report().evaluated
    [definition] = converted.definitions
    assert len(definition.kernels_for([x, noise])) == 1


def test_elements_of_another_size_are_seen_by_torch():
    def function(x):
        return (x * 2).view(torch.int16) + 1

    x = torch.randn(4, 8)
    converted = from_fx(traced(function, x))
    assert torch.equal(converted(x), function(x))
    [evaluated] = converted.report().evaluated
    assert evaluated.operator == "aten.view.dtype" and "as DataType.Int16" in evaluated.reason


def test_what_has_no_operation_is_part_of_the_definition():
    def function(x, w):
        return torch.nn.functional.conv2d(x * 2, w, padding=1).relu()

    x, w = torch.randn(1, 2, 4, 4), torch.randn(3, 2, 3, 3)
    converted = from_fx(traced(function, x, w))
    torch.testing.assert_close(converted(x, w), function(x, w))
    (evaluated,) = converted.report().evaluated
    assert (evaluated.operator, evaluated.within) == ("aten.convolution.default", True)
    assert len(converted.definitions) == 1


def test_views_of_what_is_in_memory_are_no_kernels():
    """The heads of a projection are slices of one product, as a result and for the attention."""

    def function(x, w):
        query, key = (x @ w.t()).view(2, 4, 2, 8).permute(2, 0, 1, 3).unbind(0)
        return query.transpose(1, 2), torch.bmm(query, key.transpose(1, 2))

    x, w = torch.randn(8, 4), torch.randn(16, 4)
    converted = from_fx(traced(function, x, w))
    made, expected = converted(x, w), function(x, w)
    assert not kernels(converted)
    for a, b in zip(made, expected):
        torch.testing.assert_close(a, b)
        assert a.stride() == b.stride()


@pytest.mark.parametrize("function", [torch.Tensor.conj, lambda x: x.conj().imag])
def test_a_view_of_an_argument_with_other_values_is_computed(function):
    """The memory of a conjugate, and of the imaginary part of one, holds the values of the argument."""
    x = torch.randn(3, 4, dtype=torch.complex64)
    made, more = from_fx(traced(lambda x: (function(x), x + 1), x))(x)
    torch.testing.assert_close(made, function(x).resolve_conj().resolve_neg())
    torch.testing.assert_close(more, x + 1)


def test_views_of_arguments_are_no_kernels_unless_the_call_writes_there():
    def function(x, w):
        return x.relu(), w.t().t()[1:], x.add_(1).t()

    x, w = torch.randn(8, 4), torch.randn(16, 4)
    converted = from_fx(traced(function, x, w))
    expected = function(x.clone(), w)
    made = converted(x, w)
    for a, b in zip(made, expected):
        torch.testing.assert_close(a, b)
    assert made[1].data_ptr() == w[1:].data_ptr()
    assert len(kernels(converted)) == 1
    assert torch.equal(from_fx(traced(lambda w: w.t(), w))(w), w.t())


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_a_view_begins_where_its_operators_say(mode):
    """A graph traced from real tensors, as make_fx does unless told otherwise, notes no offsets."""

    def function(x):
        made = x.flip(0)
        return (
            x + 1,
            x[2:, 1:],
            x[:, -1],
            *x.unbind(1)[1:3],
            x.split([1, 3])[1].t(),
            made,
            made[2:].view(2, 2, 3),
        )

    x = torch.randn(4, 6)
    made = from_fx(make_fx(function, tracing_mode=mode)(x))(x)
    for a, b in zip(made, function(x)):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    if mode != "symbolic":
        assert made[1].data_ptr() == x[2:, 1:].data_ptr(), "a view of the argument"


def test_a_slice_of_one_element_is_repeated_along_a_symbolic_size():
    """To a definition, a slice of a symbolic size could be empty, or have any size up to its end."""

    def function(x):
        row = x[2:3].expand(x.shape[0], -1)
        return x - x[:, :1], x * x[:, -1:], row, x[:1].flip(0) + x.narrow(0, 1, 1), x[:1].squeeze(0)

    x = torch.randn(4, 6)
    converted = from_fx(traced(function, x, symbolic=True))
    for argument in (x, torch.randn(7, 5)):
        for a, b in zip(converted(argument), function(argument)):
            torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_results_share_memory_only_where_torchs_do():
    def function(x):
        return (
            x.repeat(3, 1),
            x.expand(3, 6).clone(),
            x.expand(3, 6) + 1,
            (x * 2).expand(3, 6),
            x.expand(3, 6),
        )

    x = torch.randn(1, 6)
    for a, b in zip(from_fx(traced(function, x))(x), function(x)):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
        assert a.stride() == b.stride()


def test_views_of_what_is_not_in_memory_have_torchs_order_of_dimensions():
    def function(x):
        return (x + 1).t(), x.flip(0).t(), (x.view(2, 2, 6) * 2).permute(2, 0, 1), (x - 1)[:, 1:3].t()

    x = torch.randn(4, 6)
    made, expected = from_fx(traced(function, x))(x), function(x)
    for a, b in zip(made, expected):
        torch.testing.assert_close(a, b)
    assert [a.stride() for a in made] == [*(b.stride() for b in expected[:3]), (1, 2)]


def test_inputs_in_another_memory_order_are_copied():
    x = torch.randn(4, 8)
    converted = from_fx(traced(lambda x: x.sum(0), x))
    torch.testing.assert_close(converted(x.t().contiguous().t()), x.sum(0))


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: 3, "a int is no graph"),
        (lambda: fx.GraphModule(torch.nn.Module(), fx.Graph()), "it has no output node"),
        (lambda: fx.symbolic_trace(torch.nn.Linear(2, 2)), "is no operator of ATen"),
        (lambda: fx.symbolic_trace(lambda x: x.relu()), "call_method relu is no operator of ATen"),
        (
            lambda: fx.symbolic_trace(lambda x: torch.ops.aten.relu.default(x)),
            "nothing is known of the sizes",
        ),
    ],
)
def test_a_graph_that_is_none_of_aten_operators_is_refused(make, message):
    with pytest.raises(GraphError, match=message):
        from_fx(make())


def test_a_graph_that_torch_cannot_trace_again_is_refused():
    """torch cannot make these updates into new tensors while sizes are symbols."""
    x = torch.randn(4, 6)
    graph = traced(lambda x: torch.nn.functional.cosine_similarity(x, x + 1), x, symbolic=True)
    with pytest.raises(GraphError, match=r"(?s)cannot trace it again without writes.*hint: functionalize"):
        from_fx(graph)


def test_numbers_that_a_graph_was_traced_with_are_arguments_too():
    x = torch.randn(4, 6)
    converted = from_fx(
        make_fx(lambda x, n, name: torch.nn.functional.gelu(x, approximate=name) * n)(x, 3, "tanh")
    )
    expected = torch.nn.functional.gelu(x, approximate="tanh") * 3
    torch.testing.assert_close(converted(x, 3, "tanh"), expected)


def test_random_numbers_are_drawn_anew():
    x = torch.ones(64, 64)
    converted = from_fx(traced(lambda x: torch.dropout(x, 0.25, True), x))
    first, second = converted(x), converted(x)
    assert not torch.equal(first, second)
    assert 0.2 < float((first == 0).float().mean()) < 0.3
    assert first.unique().tolist() == pytest.approx([0.0, 1 / 0.75])


def _copied(x, y):
    x.copy_(y)
    y.copy_(y + 1)
    return x * 2


def _sorted(x, y):
    x.copy_(torch.sort(y).values)
    return y


@pytest.mark.parametrize(
    "function, dtype", [(_copied, torch.float32), (_sorted, torch.int16)], ids=["of an input", "by torch"]
)
def test_what_is_written_without_being_computed_here_is_written(function, dtype):
    """An input that is copied into another, and what torch computes between definitions."""
    given = [
        torch.tensor([[3, 1, 2], [9, 8, 7]], dtype=dtype),
        torch.tensor([[6, 5, 4], [0, 2, 1]], dtype=dtype),
    ]
    expected = [t.clone() for t in given]
    converted = from_fx(traced(function, *[t.clone() for t in given]))
    torch.testing.assert_close(converted(*given), function(*expected))
    torch.testing.assert_close(given, expected)


def test_a_buffer_of_a_program_that_is_set_to_an_input_is_set():
    class Keeps(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("kept", torch.zeros(4))

        def forward(self, x):
            self.kept.copy_(x)
            return x + 1

    module = Keeps()
    x = torch.arange(4.0)
    program = torch.export.export(module, (x,))
    converted = from_fx(program)
    torch.testing.assert_close(converted(x), x + 1)
    torch.testing.assert_close(program.state_dict["kept"], x)


def test_an_operand_may_be_a_view_of_what_another_call_reads():
    """Both products read the reordered rows, which one kernel makes, whatever views are made of them."""

    def function(x, v, w):
        rows = x.permute(1, 0, 2).reshape(6, 8)
        return rows @ w, rows.t() @ v

    x, v, w = torch.randn(2, 3, 8), torch.randn(6, 5), torch.randn(8, 4)
    converted = from_fx(traced(function, x, v, w))
    for made, expected in zip(converted(x, v, w), function(x, v, w)):
        torch.testing.assert_close(made, expected)
    assert [kernel.scheduler for kernel in kernels(converted)] == ["pointwise"], "nothing is transposed"


def test_a_group_norm_is_one_definition_without_torch() -> None:
    """Its decomposition reshapes by strides."""
    x, weight = torch.randn(2, 6, 4, 4), torch.randn(6)

    def function(x, weight):
        return torch.nn.functional.group_norm(x, 3, weight, weight)

    graph = make_fx(function, decompositions(), tracing_mode="fake")(x, weight)
    converted = from_fx(graph)
    assert not converted.report().evaluated
    torch.testing.assert_close(converted(x, weight), function(x, weight))


def test_strides_that_reorder_are_left_to_torch() -> None:
    def function(x):
        return x.as_strided((4, 3), (1, 4)) + x.t()

    x = torch.randn(3, 4)
    converted = from_fx(traced(function, x))
    assert [e.operator for e in converted.report().evaluated] == ["aten.as_strided.default"]
    torch.testing.assert_close(converted(x), function(x))


def test_a_nearest_neighbour_is_found_by_the_stated_scale() -> None:
    """One that is not the ratio of the sizes shifts the neighbours."""

    def upsampled(scale):
        return lambda x: torch.ops.aten.upsample_nearest1d.vec(x, None, [scale]) * 2

    x = torch.randn(1, 2, 9)
    for scale in (2.0, 2.1, 1.5):
        converted = from_fx(traced(upsampled(scale), x))
        assert not converted.report().evaluated, scale
        torch.testing.assert_close(converted(x), upsampled(scale)(x))


def test_sizes_that_are_known_from_arguments_cut_no_definition():
    """As results, which AOTAutograd keeps for the backward pass, and of what the graph computes."""

    def function(x, n):
        rows = x @ x.mT
        more = torch.ops.aten.sym_size.int(rows, 1) * 2 + n
        return rows.exp(), more, torch.full((n, more), 1.5), x.shape[0] // 2, torch.zeros(n).sum()

    converted = from_fx(traced(function, torch.randn(2, 4, 5), 3, symbolic=True))
    assert len(converted.definitions) == 1 and not converted.report().evaluated
    for shape, n in (((2, 4, 5), 3), ((3, 2, 6), 4)):
        x = torch.randn(shape)
        made, expected = converted(x, n), function(x, n)
        assert made[1] == expected[1] and made[3] == expected[3]
        torch.testing.assert_close([made[0], made[2], made[4]], [expected[0], expected[2], expected[4]])


@pytest.mark.parametrize("training", [True, False])
def test_a_batch_norm_is_decomposed_while_autograd_traces(training) -> None:
    """AOTAutograd refuses a decomposition that ends in an operator which may update its arguments."""
    module = torch.nn.BatchNorm1d(3).train(training)
    x = torch.randn(4, 3)
    expected = copy.deepcopy(module)(x)

    def boxed(graph, inputs):
        assert not any("batch_norm" in str(node.target) for node in graph.graph.nodes)
        return make_boxed_func(from_fx(graph))

    backend = aot_autograd(fw_compiler=boxed, decompositions=decompositions())
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(module, backend=backend)(x), expected.detach())


INTS, BYTES = torch.tensor([[0, 1, 5], [-3, 2, 9]]), torch.tensor([[0, 1], [0, 0]], dtype=torch.uint8)


@pytest.mark.parametrize(
    "function, x",
    [
        (lambda x: x.clamp(0.5), INTS),
        (lambda x: x.clamp(max=2.5), INTS.int()),
        (lambda x: x.clamp(2, 3), INTS > 1),
        (lambda x: (torch.any(x, 1), torch.all(x)), BYTES),
        (lambda x: (torch.any(x, []), torch.all(x, dim=[], keepdim=True)), INTS),
        (lambda x: (x.sum(dtype=torch.int32), x.prod(1, dtype=torch.int16)), INTS),
        (lambda x: torch.linalg.vector_norm(x, 0), INTS.half()),
        (lambda x: x.masked_fill(x, 1), INTS > 1),
        (lambda x: x.masked_fill(x > 1, 2.7), INTS),
    ],
)
def test_types_are_those_of_torch(function, x):
    converted = from_fx(traced(function, x))
    made, expected = converted(x), function(x)
    several = isinstance(expected, tuple)
    for a, b in zip(made, expected) if several else [(made, expected)]:
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    assert not converted.report().evaluated


@pytest.mark.parametrize(
    "function, x, reason",
    [
        (
            lambda x: torch.add(x, x, alpha=2),
            INTS > 1,
            "Bool of rank 2 in torch, and its row .*Int of rank 2",
        ),
        (lambda x: x.nan_to_num(), INTS.to(torch.complex64), "there is no operation for it"),
    ],
)
def test_what_a_row_promotes_in_another_way_is_torchs(function, x, reason):
    converted = from_fx(traced(function, x))
    torch.testing.assert_close(converted(x), function(x))
    [evaluated] = converted.report().evaluated
    assert re.search(reason, evaluated.reason)


def test_a_converted_graph_is_neither_pickled_nor_copied() -> None:
    """torch's errors about fake tensors, and about its own operators, would say nothing of the cause."""
    x = torch.randn(3)
    converted = from_fx(traced(lambda x: x + 1, x))
    for take in (pickle.dumps, copy.deepcopy):
        with pytest.raises(GraphError, match="a converted graph cannot be pickled or copied"):
            take(converted)
    assert torch.equal(converted(x), x + 1)


def test_a_definition_of_the_whole_graph_has_its_outputs_in_the_order_of_the_results() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first = x * 2.0
        return first.sum(0), first

    x = torch.randn(3, 4)
    converted = from_fx(traced(function, x))
    [definition] = converted.definitions
    for made in (converted(x), definition.execute([x])):
        for found, expected in zip(made, function(x), strict=True):
            torch.testing.assert_close(found, expected)
