"""`fd.ops.aten`: operators of torch within a definition."""

import pytest
import torch

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import DefinitionError, LibraryError, RankError, ShapeError


def convolution(fd, x, w, channels, size, order=()):
    arguments = [x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1]
    shape = [fd.ops.size(x, 0), channels, size, size]
    orders = [order] if order else []
    return fd.ops.aten("convolution.default", arguments, [shape], [DataType.Float], orders)


def test_an_operator_of_torch_takes_part_in_a_definition(target):
    with FusionDefinition() as fd:
        x, w = fd.define_tensor([-1, 3, 8, 8]), fd.define_tensor([4, 3, 3, 3])
        fd.add_output(fd.ops.relu(convolution(fd, x + 1.0, w, 4, 8)))
    a, b = torch.randn(2, 3, 8, 8, device=target), torch.randn(4, 3, 3, 3, device=target)
    (made,) = fd.validate([a, b])
    torch.testing.assert_close(made, torch.relu(torch.conv2d(a + 1, b, padding=1)))
    again = {"FusionDefinition": FusionDefinition, "DataType": DataType}
    exec(repr(fd), again)  # the printed definition is the same one
    with FusionDefinition() as other:
        again[f"nvfuser_fusion_id{fd.id()}"](other)
    assert other.id() == fd.id()


@pytest.mark.parametrize("dtype", [DataType.BFloat16, DataType.Half])
def test_a_definition_with_an_operator_on_reduced_floats_is_validated(target, dtype):
    """Its reference gives the type that is stated, as the operator does."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([1, 2, 8, 8], dtype=dtype)
        arguments = [fd.ops.cast(x * 2.0, dtype), [3, 3], [1, 1], [0, 0], False, True, None]
        pooled = fd.ops.aten("avg_pool2d.default", arguments, [[1, 2, 6, 6]], [dtype])
        fd.add_output(fd.ops.exp(pooled))
    fd.validate([torch.randn(1, 2, 8, 8, device=target).to(dtype.torch)])


def test_its_result_lies_in_the_order_that_is_stated():
    """So does what is computed from it element by element, as in torch."""
    with FusionDefinition() as fd:
        x, w = fd.define_tensor([2, 3, 8, 8]), fd.define_tensor([4, 3, 3, 3])
        y = convolution(fd, x, w, 4, 8, order=[3, 0, 2, 1])
        fd.add_output(y)
        fd.add_output(fd.ops.relu(y))
    made = fd.execute([torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)])
    assert [m.stride() for m in made] == [(256, 1, 32, 4)] * 2


def test_results_that_are_no_tensors_are_left_out():
    mask = [True, False, False]
    with FusionDefinition() as fd:
        x, w = fd.define_tensor([2, 3, 8, 8]), fd.define_tensor([4, 3, 3, 3])
        arguments = [convolution(fd, x, w, 4, 8), x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, mask]
        dtypes = [DataType.Float, DataType.Null, DataType.Null]
        grad, *none = fd.ops.aten("convolution_backward.default", arguments, [[2, 3, 8, 8], [], []], dtypes)
        fd.add_output(grad)
    assert none == [None, None]
    fd.validate([torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)])


@pytest.mark.parametrize(
    "name, message",
    [
        ("add_.Tensor", "it writes into its arguments"),
        ("view.default", "its result is a view"),
        ("split_copy.Tensor", "its results are not a fixed number of tensors"),
        ("addmm.nope", "ATen has no operator 'addmm.nope'"),
        ("__class__.x", "ATen has no operator"),
    ],
)
def test_what_a_definition_cannot_hold_is_refused(name, message):
    with FusionDefinition() as fd:
        x = fd.define_tensor([2, 3])
        with pytest.raises(DefinitionError, match=message):
            fd.ops.aten(name, [x], [[2, 3]], [DataType.Float])
        with pytest.raises(DefinitionError, match="has 1 result"):
            fd.ops.aten("exp.default", [x], [], [])
        with pytest.raises(RankError):
            fd.ops.aten("exp.default", [x], [[2, 3]], [DataType.Float], [[0]])
        with pytest.raises(ShapeError):
            fd.ops.aten("exp.default", [x], [[2, -3]], [DataType.Float])
        fd.add_output(fd.ops.aten("exp.default", [x], [[2, 4]], [DataType.Float]))
    with pytest.raises(
        LibraryError, match=r"states torch.float32 \[2, 4\], and it gave torch.float32 \[2, 3\]"
    ):
        fd.execute([torch.randn(2, 3)])


def test_an_argument_that_torch_hands_back_is_copied():
    with FusionDefinition() as fd:
        x = fd.define_tensor([4])
        dtypes = [DataType.Float, DataType.Bool]
        same, kept = fd.ops.aten("native_dropout.default", [x, 0.0, False], [[4], [4]], dtypes)
        fd.add_output(same)
        fd.add_output(kept)
    given = torch.randn(4)
    made, _ = fd.execute([given])
    assert torch.equal(made, given) and made.data_ptr() != given.data_ptr()
