"""Calls of a kind that was bound before: bound as `Binder` does, or left to it."""

import pytest
import torch

from fusewright.core.dtype import DataType
from fusewright.core.errors import InputError, RankError, ShapeError
from fusewright.host.inputs.binding import Binder
from fusewright.host.inputs.signature import compile_key_function
from fusewright.host.reuse.rebinding import Rebinding
from tests.host.fusions import Definition


class Bound:
    """Both ways to bind calls of a definition."""

    def __init__(self, definition: Definition) -> None:
        definition.fusion.unify_extents()
        self.binder = Binder(definition.fusion)
        self._rebinding = Rebinding(definition.fusion, self.binder)
        self._key = compile_key_function(definition.fusion, self.binder.size_scalars.inputs)
        self._kinds = {}

    def first(self, *inputs):
        split = self._split(inputs)
        if split is not None:
            self._kinds[split[0]] = self.binder.bind(inputs, None)

    def _split(self, inputs):
        """Kinds that are told apart by magnitudes only are one here."""
        split = self._rebinding.split(self._key(inputs))
        if split is None:
            return None
        kind, numbers = split
        return kind[: len(kind) - len(self._rebinding.ranges(numbers))], numbers

    def again(self, *inputs):
        """What is found faster; equal to what the binder finds."""
        split = self._split(inputs)
        if split is None or split[0] not in self._kinds:
            return None
        found = self._rebinding.bound(self._kinds[split[0]], split[1])
        assert vars(found) == vars(self.binder.bind(inputs, None))
        return found


def rows(contiguity=True, **kwargs):
    d = Definition()
    x = d.tensor((-1, -1), contiguity, **kwargs)
    d.output(d.neg(x))
    return Bound(d)


def test_other_sizes():
    bound = rows()
    bound.first(torch.empty(4, 8))
    assert bound.again(torch.empty(7, 3)).shapes == ((7, 3),)
    assert bound.again(torch.empty(7, 3, dtype=torch.double)) is None
    assert bound.again(torch.empty(22)[1:].view(7, 3)) is None, "at another address"
    assert bound.again(torch.empty(3, 7).t()) is None, "not contiguous, which is an error"


@pytest.mark.parametrize("shape", [(1, 8), (8, 1), (0, 8), (8, 0)])
def test_sizes_of_0_and_1_are_left_to_the_binder(shape):
    bound = rows(contiguity=False)
    bound.first(torch.empty(4, 8))
    assert bound.again(torch.empty(shape)) is None
    bound.first(torch.empty(shape))
    assert bound.again(torch.empty(shape)) is None


def test_any_strides():
    bound = rows(contiguity=False)
    bound.first(torch.empty(4, 8))
    for tensor in (torch.empty(9, 6)[::2, ::3], torch.empty(6, 9).t(), torch.empty(5).expand(4, 5)):
        assert bound.again(tensor) is not None
    assert bound.again(torch.empty(6, 9).t()).spans == (54,)


def test_dimensions_of_constant_sizes():
    d = Definition()
    x = d.tensor((-1, 1, 6), [True, None, True])
    d.output(d.neg(x))
    bound = Bound(d)
    bound.first(torch.empty(4, 1, 6))
    assert bound.again(torch.empty(9, 1, 6)).shapes == ((9, 1, 6),)
    with pytest.raises(ShapeError):
        assert bound.again(torch.empty(9, 1, 7)) is None
        bound.binder.bind([torch.empty(9, 1, 7)], None)


def test_sizes_that_are_equal():
    d = Definition()
    d.output(d.add(d.tensor(), d.tensor()))
    bound = Bound(d)
    bound.first(torch.empty(4, 8), torch.empty(4, 8))
    assert bound.again(torch.empty(5, 6), torch.empty(5, 6)) is not None
    assert bound.again(torch.empty(5, 6), torch.empty(5, 7)) is None


def test_another_rank():
    bound = rows()
    bound.first(torch.empty(4, 8))
    assert bound.again(torch.empty(8)) is None
    with pytest.raises(RankError):
        bound.binder.bind([torch.empty(8)], None)


def test_scalars_are_checked():
    d = Definition()
    x, s = d.tensor((-1,)), d.scalar(DataType.Float)
    d.output(d.mul(x, s))
    executor = d.executor()
    for size in (4, 5, 6, 7):
        executor.execute([torch.ones(size), 2.0])
    with pytest.raises(InputError, match=r"Scalar value 1e\+60 is not compatible"):
        executor.execute([torch.ones(6), 1e60])
    with pytest.raises(InputError, match=r"Scalar value 1e\+60 is not compatible"):
        executor.execute([torch.ones(6, 1)[:, 0].expand(6), 1e60])


def test_execute_refuses_what_a_kind_does_not_tell():
    """Errors of calls whose kind is known are those of any other call."""
    d = Definition()
    d.output(d.neg(d.tensor((-1, -1), True)))
    executor = d.executor()
    for rows_ in (4, 5, 6):
        executor.execute([torch.ones(rows_, 8)])
    with pytest.raises(RankError, match="Expected input 0"):
        executor.execute([torch.ones(8)])
    with pytest.raises(Exception, match="contiguity"):
        executor.execute([torch.ones(8, 9).t()])
    small = torch.ones(9, 8)
    small.untyped_storage().resize_(16)
    with pytest.raises(InputError, match="a storage of 16 bytes, where its elements end at byte 288"):
        executor.execute([small])
    [out] = executor.execute([torch.ones(9, 8)])
    assert torch.equal(out, -torch.ones(9, 8))
