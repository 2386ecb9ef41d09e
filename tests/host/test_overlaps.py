"""Inputs that share memory with one that a result is written into: reads come before writes."""

from __future__ import annotations

import itertools
import random
from operator import mul

import pytest
import torch

from fusewright import FusionDefinition
from fusewright.core.errors import InputError
from fusewright.host.program.ir import KeepApart
from fusewright.host.program.overlaps import overlaps_itself, share_memory
from tests.host.fusions import Definition
from tests.integration.test_work_of_calls import function_calls


def in_place(other: str = "same") -> FusionDefinition:
    """a += b, or += the transposed b, or += the sums of b along its last dimension"""
    with FusionDefinition() as fd:
        a, b = (fd.define_tensor([-1, -1], contiguity=[False, False]) for _ in range(2))
        read = {
            "same": lambda: b,
            "turned": lambda: fd.ops.permute(b, [1, 0]),
            "summed": lambda: fd.ops.sum(b, 1, True),
        }[other]()
        fd.add_output(a + read, alias_input=a)
    return fd


#: name -> two views of a square; of those that are apart no element is in both
VIEWS = {
    "next row": (lambda y: (y[1:, :-1], y[:-1, :-1])),
    "row before": (lambda y: (y[:-1, 1:], y[1:, 1:])),
    "next element": (lambda y: (y[1:, 1:], y[1:, :-1])),
    "equal": (lambda y: (y, y)),
    "transposed": (lambda y: (y, y.t())),
    "repeated": (lambda y: (y, y[3:4].expand(len(y), -1))),
    "halves": (lambda y: (y[:, :32], y[:, 32:])),
    "every other": (lambda y: (y[:, ::2], y[:, 1::2])),
}
APART = {"halves", "every other"}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("other", ["same", "turned", "summed"])
def test_reads_come_before_writes(name: str, other: str, target: torch.device) -> None:
    fd = in_place(other)
    whole = torch.arange(64.0 * 64, device=target).reshape(64, 64)
    for _ in range(2):
        y = whole.clone()
        a, b = VIEWS[name](y)
        if other == "turned" and a.shape != b.t().shape:
            pytest.skip("not the sizes of the definition")
        new = a + {"same": b, "turned": b.t(), "summed": b.sum(1, True)}[other]
        expected = y.clone()
        VIEWS[name](expected)[0].copy_(new)
        fd.execute([a, b])
        assert torch.equal(y, expected)


@pytest.mark.parametrize("name", VIEWS)
def test_what_shares_memory(name: str) -> None:
    a, b = VIEWS[name](torch.empty(64, 64))
    assert share_memory(a, b) == share_memory(b, a) == (name not in APART)


def test_any_views_share_memory_where_some_byte_is_in_both() -> None:
    draw = random.Random(1)
    found = set()
    for _ in range(300):
        pair, bytes_ = [], []
        for _ in range(2):
            dtype = draw.choice([torch.uint8, torch.int16, torch.float32])
            shape = [draw.randrange(0, 4) if draw.random() < 0.1 else draw.randrange(1, 5) for _ in range(2)]
            strides = [draw.randrange(8) for _ in shape]
            pair.append((dtype, shape, strides, draw.randrange(20)))
        storage = torch.empty(400, dtype=torch.uint8)
        tensors = [storage.view(d).as_strided(shape, strides, o) for d, shape, strides, o in pair]
        for tensor in tensors:
            size, start = tensor.element_size(), tensor.storage_offset()
            places = itertools.product(*map(range, tensor.shape))
            at = [start + sum(i * s for i, s in zip(place, tensor.stride())) for place in places]
            bytes_.append({size * p + k for p in at for k in range(size)})
        assert share_memory(*tensors) == bool(bytes_[0] & bytes_[1])
        found.add(share_memory(*tensors))
    assert found == {True, False}


def test_tensors_whose_elements_lie_on_each_other() -> None:
    draw, found = random.Random(2), set()
    for _ in range(400):
        shape = [draw.randrange(0, 5) for _ in range(draw.randrange(1, 4))]
        strides = [draw.randrange(12) for _ in shape]
        tensor = torch.empty(200).as_strided(shape, strides)
        places = [sum(map(mul, place, strides)) for place in itertools.product(*map(range, shape))]
        assert overlaps_itself(tensor) == (len(set(places)) < len(places)), (shape, strides)
        found.add(overlaps_itself(tensor))
    assert found == {True, False}


def test_windows_are_no_place_for_a_result() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        fd.add_output(x * 2.0, alias_input=x)
    with pytest.raises(InputError, match=r"place but got one of strides \(1, 1\), several of whose"):
        fd.execute([torch.ones(5).as_strided((3, 3), (1, 1))])
    apart = torch.ones(8).as_strided((2, 3), (3, 2))  # between each other, each in a place of its own
    fd.execute([apart])
    assert torch.equal(apart, torch.full((2, 3), 2.0))


def test_two_outputs_into_the_same_memory() -> None:
    with FusionDefinition() as fd:
        a, b = (fd.define_tensor([-1], contiguity=True) for _ in range(2))
        fd.add_output(a + 1.0, alias_input=a)
        fd.add_output(b * 2.0, alias_input=b)
    y = torch.ones(100)
    for first, second in ((y, y), (y[1:], y[:-1])):
        with pytest.raises(InputError, match=r"Inputs 0, T0, and 1, T1, share memory") as caught:
            fd.execute([first, second])
        assert "clone()" in str(caught.value) and torch.equal(y, torch.ones(100))
    fd.execute([y[:50], y[50:]])
    assert torch.equal(y, torch.full((100,), 2.0))


@pytest.mark.parametrize("written", [False, True])
def test_only_calls_with_outputs_in_place_ask_for_it(written: bool) -> None:
    d = Definition()
    a, b = d.tensor(), d.tensor()
    d.output(d.add(a, b), alias_input=a if written else None)
    program = d.executor().compile([torch.ones(8, 8), torch.ones(8, 8)])
    assert any(isinstance(op, KeepApart) for op in program.program.operations) == written


def test_addresses_are_looked_at_once() -> None:
    fd = in_place()
    x, y, z = (torch.ones(8, 8) for _ in range(3))
    fd.execute([x, y])
    new = function_calls(lambda: fd.execute([x, z]))
    again = function_calls(lambda: fd.execute([x, z]))
    assert again < new
