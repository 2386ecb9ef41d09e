"""`FusionState`: state indices of inputs, outputs and extents, and the map from values to them."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from fusewright import DataType, FusionDefinition
from fusewright.core.errors import DefinitionError
from fusewright.frontend.recorded import states
from fusewright.ir import Scalar
from fusewright.ops import ScalarVector


def test_extents_count_down_over_the_dimensions_of_all_inputs() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 1, 8], contiguity=[True, None, True])
        factor = fd.define_scalar()
        y = fd.define_tensor([-1, -1, 8], contiguity=[True, None, True])  # the second is expanded
        fd.add_output(x * factor + y)
    state = fd.fusion_state
    assert state.inputs == (x.index, factor.index, y.index) == (0, 1, 2)
    assert state.extents == (-1, -2, -3, -4, -5, -6)
    assert [str(size) for size in state.sizes] == ["i0", "1", "8", "i0", "i6", "8"]
    (out,) = state.outputs
    values = [state.values[i] for i in (0, 1, 2, out)]
    assert [state.index[v] for v in values if v is not None] == [0, 1, 2, out]
    # One symbol is two sizes, which are equal: it is known as the first.
    assert [state.index[state.sizes[i]] for i in (0, 3, 4)] == [-1, -1, -5]
    assert [state.value(i) for i in (-4, -5)] == [state.sizes[3], state.sizes[4]]


def test_a_scalar_that_is_an_extent_has_its_index() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 1, 8], contiguity=[True, None, True])
        y = fd.define_tensor([-1, -1, 8], contiguity=[True, None, True])
        scalars = [fd.ops.size(x, 1), fd.ops.size(y, 1), fd.ops.size(y, 2)]
        sizes = fd.ops.shape(y)
        number = fd.define_scalar(8)
        fd.add_output(fd.ops.full([*scalars, number], 0.0, DataType.Float))
    state = fd.fusion_state

    def indices(*handles: int) -> list[int]:
        found = []
        for handle in handles:
            value = state.values[handle]
            assert isinstance(value, Scalar)
            found.append(state.index[value])
        return found

    assert indices(*(s.index for s in scalars)) == [-2, -5, -6]
    assert indices(number.index) == [number.index], "a number that is no size of an input"
    entries = state.values[sizes.index]
    assert isinstance(entries, ScalarVector)
    assert [state.index[entry] for entry in entries] == [-4, -5, -6]


def test_an_input_scalar_that_is_an_extent_is_still_an_input() -> None:
    with FusionDefinition() as fd:
        n = fd.define_scalar(None, DataType.Int)
        x = fd.define_tensor([-1])
        fd.add_output(x + fd.ops.full([n], 1.0, DataType.Float))
    assert fd.inputs() == [n.index, x.index] == [0, 1]
    value = fd.fusion_state.values[n.index]
    assert isinstance(value, Scalar) and fd.fusion_state.index[value] == -1


def test_packed_inputs_have_a_state() -> None:
    with FusionDefinition() as fd:
        scale = fd.define_scalar()
        x = fd.define_tensor([-1, 4], dtype=DataType.Float4_e2m1fn_x2)
        fd.add_output(fd.ops.cast(x, DataType.Float) * scale)
    assert (fd.inputs(), fd.extents()) == ([scale.index, x.index], [-1, -2])


def test_an_equal_definition_restores_the_state_and_builds_nothing() -> None:
    def write() -> FusionDefinition:
        with FusionDefinition() as fd:
            fd.add_output(fd.define_tensor([-1, -1]) * 2.0)
        return fd

    first = write()
    with patch.object(states, "Fusion", side_effect=AssertionError("built anew")):
        second = write()
    assert second.fusion_state is first.fusion_state
    assert (second.inputs(), second.outputs(), second.extents()) == ([0], [1], [-1, -2])


def test_an_incomplete_definition_has_no_state() -> None:
    with FusionDefinition() as fd, pytest.raises(DefinitionError, match="still being written"):
        fd.inputs()


def test_outputs_that_an_operation_adds_have_no_state() -> None:
    """Running statistics, and a weight whose rows are limited: `add_output` was given neither."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1, -1], True)
        mean, var = fd.define_tensor([-1], True), fd.define_tensor([-1], True)
        normalized = fd.ops.batch_norm(x, None, None, mean, var, 0.1, 1e-5, True)
        first = normalized[0] if isinstance(normalized, tuple) else normalized
        fd.add_output(first)
    assert fd.outputs() == [first.index]
    with FusionDefinition() as fd:
        i, w = fd.define_tensor([-1], True, DataType.Int), fd.define_tensor([-1, -1], True)
        rows = fd.ops.embedding_fwd(i, w, None, 1.0)
        fd.add_output(rows)
    assert fd.outputs() == [rows.index]
