"""Recording and the cache of definitions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fusewright import DataType, FusionCache, FusionDefinition
from fusewright.core.errors import ArgumentTypeError, DefinitionError, DtypeError, ShapeError
from fusewright.frontend.recorded import states
from fusewright.frontend.recorded.records import Literal
from fusewright.ir import Fusion


def softmax(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1, -1], contiguity=True)
    shifted = fd.ops.exp(x - fd.ops.max(x, [1], keepdim=True))
    fd.add_output(shifted / fd.ops.sum(shifted, [1], keepdim=True))


def scaled_by(number: complex) -> Callable[[FusionDefinition], None]:
    def write(fd: FusionDefinition) -> None:
        fd.add_output(fd.define_tensor([-1]) * number)

    return write


def defined(write: Callable[[FusionDefinition], object]) -> FusionDefinition:
    with FusionDefinition() as fd:
        write(fd)
    return fd


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Fusion]:
    """Every fusion that is built from now on."""
    fusions: list[Fusion] = []

    class Counted(Fusion):
        def __init__(self) -> None:
            super().__init__()
            fusions.append(self)

    monkeypatch.setattr(states, "Fusion", Counted)
    return fusions


def test_a_definition_seen_before_builds_nothing(cache: FusionCache, built: list[Fusion]) -> None:
    first, second = defined(softmax), defined(softmax)
    assert len(built) == 1
    assert first.id() == second.id() == 0
    assert cache.num_fusions() == 1
    assert "0 -> 1 hits" in cache.stats()
    assert "Cache Lookups: 2 Cache Hits: 1 Hit Rate: 50.0%" in cache.stats()


def test_handles_of_a_known_definition_know_what_they_are(built: list[Fusion]) -> None:
    def write(fd: FusionDefinition) -> list[object]:
        x = fd.define_tensor([-1, 2], dtype=DataType.Half)
        var, mean = fd.ops.var_mean(x * 1.0, [1])
        sizes = fd.ops.shape(x)
        fd.add_output(var + mean)
        return [x.ndim, x.dtype, var.ndim, var.dtype, len(sizes), sizes[1].dtype, [s.index for s in sizes]]

    with FusionDefinition() as fd:
        new = write(fd)
    with FusionDefinition() as fd:
        known = write(fd)
    assert new == known == [2, DataType.Half, 1, DataType.Float, 2, DataType.Int, [7, 8]]
    assert len(built) == 1


def test_a_definition_that_turns_off_a_known_one_is_built_whole(built: list[Fusion]) -> None:
    defined(softmax)

    def longer(fd: FusionDefinition) -> None:
        softmax(fd)
        fd.add_output(fd.define_tensor([-1]) * 2.0)

    fd = defined(longer)
    assert len(built) == 2
    assert (fd.id(), len(fd._complete().fusion.inputs), len(fd._complete().fusion.outputs)) == (1, 2, 2)


def test_a_prefix_of_a_known_definition_is_one_of_its_own(built: list[Fusion]) -> None:
    def two(fd: FusionDefinition) -> None:
        x = fd.define_tensor([-1])
        fd.add_output(x * 2.0)
        fd.add_output(x * 3.0)

    assert [defined(write).id() for write in (two, scaled_by(2.0), scaled_by(2.0))] == [0, 1, 1]
    assert len(built) == 2


@pytest.mark.parametrize(
    "numbers", [(1, 1.0), (1, True), (1.0, 1 + 0j), (0.0, -0.0)], ids=lambda n: f"{n[0]} and {n[1]}"
)
def test_literals_that_compare_equal_are_different_definitions(numbers: tuple[complex, complex]) -> None:
    assert [defined(scaled_by(n)).id() for n in numbers] == [0, 1]


def test_nan_is_the_same_literal_every_time() -> None:
    assert [defined(scaled_by(float("nan"))).id() for _ in range(2)] == [0, 0]


# ---- errors ------------------------------------------------------------------------------------------------


def _wrong(last: object = -1) -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        y = x * 2.0
        fd.ops.sum(y, [last])  # the line that is wrong
        fd.add_output(y)
    return fd


def test_a_failed_definition_is_kept_with_its_error(cache: FusionCache, built: list[Fusion]) -> None:
    caught = []
    for _ in range(2):
        with pytest.raises(ShapeError) as info:
            _wrong(2)
        caught.append(info.value)
    first, second = caught
    assert len(built) == 1, "the second is not built"
    assert first is not second
    assert (type(first), str(first), first.facts) == (type(second), str(second), second.facts)
    for error in caught:
        assert error.location is not None
        assert "the line that is wrong" in error.location.text
    assert cache.num_fusions() == 0
    assert [_wrong(1).id(), _wrong(1).id()] == [0, 0], "the same up to there, and right"
    assert len(built) == 2


def test_failed_definitions_are_forgotten_one_by_one(
    cache: FusionCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fusewright.frontend.recorded.cache.MAX_FAILURES", 2)
    for dim in (7, 8, 9, 9):
        with pytest.raises(ShapeError):
            _wrong(dim)
    assert [records[-1].args[1] for records in cache._failures] == [
        (Literal(int, 8),),
        (Literal(int, 9),),
    ]
    _wrong(1)
    for dim in (10, 11):
        with pytest.raises(ShapeError):
            _wrong(dim)
    definition = next(iter(cache._definitions.values()))
    cache._drop(definition)
    for records in list(cache._failures):
        cache._forget_failure(records)
    assert not cache.root.children


def test_a_definition_goes_on_after_an_error_that_was_caught() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([3])
        y = fd.define_tensor([4])
        with pytest.raises(ShapeError):
            x + y
        with pytest.raises(DtypeError):
            fd.ops.bitwise_and(x, y)
        fd.add_output(x * 2.0)
    fusion = fd._complete().fusion
    assert [node.label for node in fusion.nodes] == ["mul"]
    assert fd.outputs() == [2]


def test_nothing_is_added_to_a_complete_definition() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        fd.add_output(x * 2.0)
    for add in (
        lambda: fd.ops.exp(x),
        lambda: fd.define_tensor([1]),
        lambda: fd.add_output(x),
        lambda: x + 1,
    ):
        with pytest.raises(DefinitionError, match="Attempting to add to a completed definition!"):
            add()
    with pytest.raises(DefinitionError), fd:
        pass


def test_nothing_is_added_outside_a_definition() -> None:
    fd = FusionDefinition()
    with pytest.raises(DefinitionError, match="has not begun"):
        fd.define_tensor([-1])


def test_scheduling_before_the_definition_is_complete() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        with pytest.raises(
            DefinitionError, match="Attempting to use a SchedOperators Op prior to definition!"
        ):
            fd.sched.split(x, 0, 2)
    with pytest.raises(DefinitionError, match="outside of a schedule"):
        fd.sched.tensors()


def test_missing_definitions() -> None:
    with pytest.raises(NotImplementedError):
        FusionDefinition().execute([])


def test_operations_that_are_not_there_say_so() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        assert not hasattr(fd.ops, "no_such_op")
        with pytest.raises(DefinitionError, match="is not available"):
            fd.ops.no_such_op(x)


def test_handles_belong_to_one_definition() -> None:
    with FusionDefinition() as one:
        x = one.define_tensor([-1])
    with FusionDefinition() as other, pytest.raises(DefinitionError, match="belongs to another definition"):
        other.ops.exp(x)


def test_arguments_of_no_kind_are_type_errors() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        for call in (lambda: fd.ops.add(x, object()), lambda: fd.ops.add(x, "1"), lambda: x + None):
            with pytest.raises(ArgumentTypeError, match=r"add\(\): incompatible function arguments"):
                call()
        with pytest.raises(ArgumentTypeError, match=r"got \(Tensor, torch.Tensor\)"):
            fd.ops.add(x, torch.ones(1))
        with pytest.raises(ArgumentTypeError, match="shape must be list of ints, not list of float"):
            fd.define_tensor([1.5])
        with pytest.raises(ArgumentTypeError, match=r"define_tensor\(\).*\n(.*\n)?.*'strides'"):
            fd.define_tensor(sizes=[2, 3])


def test_a_definition_has_a_longest_length() -> None:
    with FusionDefinition(max_length=3) as fd:
        x = fd.define_tensor([-1]) * 2.0
        fd.add_output(x)
        with pytest.raises(DefinitionError, match="has exceeded"):
            fd.add_output(x)


def test_a_full_cache_that_evicts_nothing_refuses_but_keeps_serving() -> None:
    FusionCache.reset()
    FusionCache.get(max_fusions=1, evict=False)
    defined(softmax)
    with pytest.raises(RuntimeError, match="exceeded"):
        defined(scaled_by(2.0))
    assert defined(softmax).id() == 0


# ---- state indices -----------------------------------------------------------------------------------------


def test_inline_shapes_take_state_indices() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        wide = fd.ops.broadcast_in_dim(x, [2, 3, 4], [2])
        n = fd.ops.size(x, 0)
        other = fd.ops.broadcast_in_dim(x, [2, n], [1])
        fd.add_output(wide)
        fd.add_output(other)
    assert (x.index, wide.index, n.index, other.index) == (0, 5, 6, 9)
    assert (fd.inputs(), fd.outputs(), fd.extents()) == ([0], [5, 9], [-1])


def test_vectors_of_inputs() -> None:
    with FusionDefinition() as fd:
        v = fd.define_vector(2)
        fd.add_output(fd.ops.full(v, 1.0, DataType.Float))
    assert v.index == 2
    assert fd.inputs() == [0, 1]


# ---- files, ids, threads -----------------------------------------------------------------------------------


def test_definitions_survive_a_file(tmp_path: Path, built: list[Fusion]) -> None:
    def write(fd: FusionDefinition) -> None:
        x = fd.define_tensor([-1, 1], dtype=DataType.ComplexFloat)
        y = fd.ops.add(x, complex(float("nan"), -0.0)) * 0.1
        fd.add_output(fd.ops.sum(fd.ops.cast(y, DataType.Bool), [0], dtype=DataType.Int32), stride_order=[0])

    defined(softmax)
    defined(write)
    file = str(tmp_path / "definitions.json")
    FusionCache.get().serialize(file)
    FusionCache.reset()
    assert FusionCache.get().num_fusions() == 0
    FusionCache.get().deserialize(file)
    count = len(built)
    assert defined(write).id() == 1
    assert FusionCache.get().num_fusions() == 2
    assert len(built) == count


def test_a_bad_file_is_refused_whole(tmp_path: Path, cache: FusionCache) -> None:
    for text in ("", "{}", '{"format": 1, "definitions": [[["launch_missiles", []]]]}'):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(DefinitionError, match="no serialized definitions"):
            cache.deserialize(str(tmp_path / "bad.json"))
    assert cache.num_fusions() == 0


def test_a_cached_definition_by_its_id() -> None:
    fd = defined(softmax)
    assert repr(FusionDefinition(fd.id())) == repr(fd)
    with pytest.raises(DefinitionError, match="no cached definition with id 7"):
        FusionDefinition(7)


def test_threads_that_define_the_same_share_one_fusion(cache: FusionCache) -> None:
    started = threading.Barrier(8)
    found: list[FusionDefinition] = []

    def work(number: int) -> None:
        started.wait()
        for i in range(20):
            found.append(defined(softmax))
            defined(scaled_by(float(i)))
            defined(scaled_by(float(1000 * number + i)))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(fd._complete()) for fd in found}) == 1
    assert cache.num_fusions() == 1 + 20 + 8 * 20
    assert sorted(cache._definitions) == list(range(cache.num_fusions()))


def test_what_a_definition_is_made_with_is_checked() -> None:
    for wrong in ({"id": "a"}, {"max_length": "a"}, {"max_length": None}, {"options": 3}):
        (name,) = wrong
        with pytest.raises(ArgumentTypeError, match=rf"FusionDefinition\(\).*{name}: "):
            FusionDefinition(**wrong)  # type: ignore[arg-type]
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([-1]))
        with pytest.raises(DtypeError, match=r"one of torch.*, but got torch\.uint32"):
            fd.from_pytorch(torch.ones(3, dtype=torch.uint32))


def test_the_only_part_of_a_split_is_printed_as_one_of_a_list():
    with FusionDefinition() as fd:
        (part,) = fd.ops.chunk(fd.define_tensor([4, 8]), 1)
        fd.add_output(fd.ops.neg(part))
    namespace = {"FusionDefinition": FusionDefinition, "DataType": DataType}
    exec(repr(fd), namespace)
    with FusionDefinition() as again:
        namespace[f"nvfuser_fusion_id{fd.id()}"](again)
    assert again.id() == fd.id()
