"""Guard merging, unrolling, hoisting and the placing of shared memory, each by itself."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fusewright import FusionDefinition
from fusewright.core.dtype import DataType
from fusewright.kernel import ir as k
from fusewright.kernel.text import kernel_text
from fusewright.kernel.verify import verify
from fusewright.lower.passes import PASSES
from fusewright.lower.passes.guards import gather_guards
from fusewright.lower.passes.hoist import hoist_indices
from fusewright.lower.passes.shared import place_shared
from fusewright.lower.passes.unroll import MAX_UNROLL, unroll_register_loops
from fusewright.ops.reductions import SUM
from fusewright.ops.rounding import ROUNDED
from fusewright.sim import SimOptions, simulate
from fusewright.sym import as_int, bounds, const, evaluate, floordiv, land, lt, mod, symbol
from tests.kernel import builders as b
from tests.lower.statements import I, N, R, S, T, U, X, Y, copy, kernel, lines, loop

LOAD, STORE = copy(R, X.buffer, 0, T), copy(Y.buffer, R, T, 0)
SMALL, OTHER = lt(T, N), lt(T, 7)


# ---- guards


def test_neighbours_under_one_condition_share_it():
    body = (k.If(SMALL, (LOAD,)), k.If(SMALL, (STORE,)), k.If(OTHER, (STORE,)))
    result = gather_guards(kernel(*body)).body[-2:]
    assert [s.cond for s in result] == [SMALL, OTHER] and result[0].body == (LOAD, STORE)


def test_what_stands_between_keeps_guards_apart():
    body = (k.If(SMALL, (LOAD,)), k.Barrier(), k.If(SMALL, (STORE,)))
    assert lines(gather_guards(kernel(*body))) == lines(kernel(*body))


def test_nested_guards_merge_too():
    nested = k.If(SMALL, (k.If(OTHER, (LOAD,)), k.If(OTHER, (STORE,))))
    (outer,) = gather_guards(kernel(nested)).body[-1:]
    assert outer.cond is land(SMALL, OTHER) and outer.body == (LOAD, STORE)


def test_a_guard_leaves_the_loop_that_does_not_change_it():
    (moved,) = gather_guards(kernel(loop(4, k.If(SMALL, (LOAD,))))).body[-1:]
    assert isinstance(moved, k.If) and isinstance(moved.body[0], k.For)
    dependent = loop(4, k.If(lt(T + I, N), (LOAD,)))
    assert isinstance(gather_guards(kernel(dependent)).body[-1], k.For)


def test_a_guard_never_moves_around_a_collective():
    reduce = k.BlockReduce(SUM, (b.at(R),), (b.at(R, 1),), (b.BX,), k.TRUE, (S,))
    stays = loop(4, k.If(SMALL, (reduce,)))
    assert isinstance(gather_guards(kernel(stays)).body[-1], k.For)


# ---- unrolling


def _unrolled(*body: k.Stmt) -> list[bool]:
    result = unroll_register_loops(kernel(*body))
    return [s.unroll for s in k.walk(result.body) if isinstance(s, k.For)]


def test_loops_that_index_registers_unroll():
    assert _unrolled(loop(8, copy(R, X.buffer, I, I))) == [True]
    assert _unrolled(loop(8, copy(R, X.buffer, 0, I))) == [False]
    assert _unrolled(loop(8, copy(S, X.buffer, I, I))) == [False]


def test_an_outer_loop_unrolls_for_what_an_inner_one_indexes():
    j = symbol("j", lo=0)
    assert _unrolled(loop(2, loop(4, copy(R, X.buffer, 4 * I + j, j), index=j))) == [True, True]
    assert _unrolled(loop(2, loop(4, copy(R, X.buffer, j, I), index=j))) == [False, True]


def test_long_or_symbolic_loops_stay():
    assert _unrolled(loop(MAX_UNROLL + 1, copy(R, X.buffer, mod(I, 8), I))) == [False]
    assert _unrolled(loop(N, copy(R, X.buffer, mod(I, 8), I))) == [False]


# ---- hoisting


def _lets(result: k.Kernel) -> list[k.Let]:
    return [s for s in k.walk(result.body) if isinstance(s, k.Let)]


def test_divisions_used_twice_are_named_once():
    q = floordiv(T, 5)
    result = hoist_indices(kernel(copy(R, X.buffer, 0, q), copy(R, X.buffer, 1, q * 2)))
    (let,) = _lets(result)
    assert let.value is q and "T" not in str(let.symbol)
    assert [str(s.src.index).count("/") for s in result.body if isinstance(s, k.Copy)] == [0, 0]


def test_a_division_used_once_stays():
    assert not _lets(hoist_indices(kernel(copy(R, X.buffer, 0, floordiv(T, 5)))))


def test_names_stand_where_their_symbols_are_known():
    i_only, both = floordiv(I, 3), mod(I + T, 3)
    inner = (copy(R, X.buffer, 0, i_only), copy(R, X.buffer, 1, i_only + both), copy(R, X.buffer, 2, both))
    result = hoist_indices(kernel(loop(8, *inner)))
    assert not [s for s in result.body if isinstance(s, k.Let)]
    (loop_after,) = (s for s in result.body if isinstance(s, k.For))
    assert {s.value for s in loop_after.body if isinstance(s, k.Let)} == {i_only, both}


def test_a_name_ends_with_its_scope():
    q = floordiv(I, 3)
    body = (copy(R, X.buffer, 0, q), copy(R, X.buffer, 1, q))
    result = hoist_indices(kernel(loop(8, *body), loop(8, *body), STORE))
    verify(result, "hoist indices")
    assert len(_lets(result)) == 2


@pytest.mark.parametrize(
    ("most", "index_dtype", "named"),
    [(2**20, DataType.Int32, True), (2**9, DataType.Int32, False), (2**20, DataType.Int, False)],
)
@pytest.mark.parametrize("step", [65536, -65536], ids=["ascending", "descending"])
def test_a_remainder_that_would_be_a_difference_of_large_products_is_named(most, index_dtype, named, step):
    """In 32 bits, x * 65536 - q * (28 * 65536) overflows although the difference fits."""
    x = symbol("x", hi=most)
    index = floordiv(32 * x + T, 28) + mod(32 * x + T, 28) * step
    plain = dataclasses.replace(kernel(copy(R, X.buffer, 0, index)), index_dtype=index_dtype)
    quotient, *rest = _lets(hoist_indices(plain))
    assert quotient.value is floordiv(32 * x + T, 28)
    assert [let.value for let in rest] == ([32 * x + T - quotient.symbol * 28] if named else [])
    assert all(bounds(let.symbol) == (0, 27) for let in rest)


def test_remainders_that_are_multiplied_are_named_where_their_product_would_not_fit():
    """Each product of one remainder and the other's dividend would."""
    x, y = (32 * symbol(name, hi=2**14) + T for name in "xy")
    index = floordiv(x, 28) + floordiv(y, 28) + mod(x, 28) * mod(y, 28) * 64
    plain = dataclasses.replace(kernel(copy(R, X.buffer, 0, index)), index_dtype=DataType.Int32)
    assert [bounds(let.symbol)[1] == 27 for let in _lets(hoist_indices(plain))] == [False, True] * 2


def test_hoisting_changes_no_value():
    index = mod(T, 4) * 8 + floordiv(T, 4)
    add = k.Compute(b.ADD, b.at(Y.buffer, T), (b.at(R), b.at(X.buffer, index)), X.buffer.dtype)
    plain = kernel(copy(R, X.buffer, 0, index), add, allocs=(R,))
    x = torch.arange(1024.0)
    outputs = []
    for each in (plain, hoist_indices(plain)):
        y = torch.zeros(1024)
        simulate(each, [x, y, 5], options=SimOptions(outputs=False))
        outputs.append(y[:32])
    assert _lets(hoist_indices(plain)) and torch.equal(*outputs)
    assert outputs[0].tolist() == [2.0 * evaluate(index, {T: t}) for t in range(32)]


# ---- shared memory


def test_shared_buffers_stand_side_by_side_aligned():
    odd = k.Buffer("odd", DataType.Half, k.Space.SHARED, const(3))
    sized = k.Buffer("sized", DataType.Float, k.Space.SHARED, N)
    result = place_shared(kernel(copy(S, X.buffer, T, T), copy(R, S, 0, T), allocs=(odd, sized, S, R)))
    placed = {s.buffer.name: s.buffer.offset for s in result.body if isinstance(s, k.Alloc)}
    env = {N: 5}
    assert evaluate(placed["odd"], env) == 0 and evaluate(placed["sized"], env) == 16
    assert evaluate(placed["S"], env) == 16 + 32  # 20 bytes rounded up
    assert evaluate(result.shared_bytes, env) == 48 + 4 * 32
    used = {r.buffer for s in result.body if isinstance(s, k.Copy) for r in (s.dst, s.src)}
    assert placed["S"] in {buffer.offset for buffer in used if buffer.space is k.Space.SHARED}
    assert placed["R"] is None


def test_shared_buffers_are_aligned_as_they_ask():
    matrix = k.Buffer("matrix", DataType.Half, k.Space.SHARED, const(64), 128)
    result = place_shared(kernel(LOAD, allocs=(S, matrix, U, R)))
    placed = {s.buffer.name: s.buffer.offset for s in result.body if isinstance(s, k.Alloc)}
    odd = dataclasses.replace(S, size=const(3))
    assert [as_int(placed[name]) for name in ("S", "matrix", "U")] == [0, 128, 256]
    result = place_shared(kernel(LOAD, allocs=(odd, matrix, R)))
    assert [as_int(s.buffer.offset) for s in result.body[:2]] == [0, 128]
    assert as_int(result.shared_bytes) == 256


def test_no_shared_memory_no_arena():
    assert as_int(place_shared(kernel(LOAD, allocs=(R,))).shared_bytes) == 0


def test_the_passes_in_order_accept_and_make_wellformed_kernels():
    body = (copy(S, X.buffer, T, T), loop(2, copy(R, S, I, 31 - T)), copy(Y.buffer, R, T, 1))
    result = kernel(*body, allocs=(S, R))
    for name, run in PASSES:
        result = run(result)
        verify(result, name)
    x, y = torch.arange(1024.0), torch.zeros(1024)
    simulate(result, [x, y, 5], options=SimOptions(outputs=False))
    assert y[:32].tolist() == list(reversed(range(32))) and "barrier" in "".join(lines(result)).lower()
    assert U not in [s.buffer for s in result.body if isinstance(s, k.Alloc)]


def test_no_pass_relies_on_another_to_run_before_it():
    """Guarded work of several nodes in a loop, with divisions to name, in every order of the passes.

    Orders of the same passes that make the same kernel go on as one; a pass that finds nothing to do is tried
    again after the next one that does.
    """
    q = floordiv(31 - T, 4) * 4 + mod(31 - T, 4)
    first, second = k.If(SMALL, (copy(S, X.buffer, T, T + 32 * I),)), k.If(SMALL, (copy(R, S, I, q),))
    stores = loop(2, k.If(SMALL, (copy(Y.buffer, R, 2 * T + I, I),)))
    passes = dict(PASSES)
    left, made = [((), kernel(loop(2, first, second), stores, allocs=(S, R)))], []
    while left:
        different = {}
        for order, before in left:
            idle = True
            for name in [name for name in passes if name not in order]:
                result = passes[name](before)
                if result is before:
                    continue
                idle = False
                verify(result, " -> ".join((*order, name)))
                different[frozenset((*order, name)), kernel_text(result)] = (*order, name), result
            if idle:
                made.append((order, before))
        left = list(different.values())
    assert len({name for order, _ in made for name in order}) >= 4
    for order, result in made:
        x, y = torch.arange(1024.0), torch.zeros(1024)
        simulate(result, [x, y, 32], options=SimOptions(outputs=False))
        assert y[:64].tolist() == [31.0 - t + 32 * i for t in range(32) for i in range(2)], order


def test_a_pass_that_has_nothing_to_do_returns_its_kernel():
    twice = copy(Y.buffer, X.buffer, floordiv(T, 5), floordiv(T, 5))
    exchange = loop(2, k.If(lt(T, N - I), (copy(S, X.buffer, T, T),)), copy(R, S, I, 31 - T))
    result = kernel(twice, exchange, k.If(SMALL, (STORE,)), k.If(SMALL, (LOAD,)), allocs=(S, R))
    idle = {
        "join reductions",
        "join grid reductions",
        "keep invariant vectors",
        "load repeated vectors once",
        "join exclusive loads",
        "copy asynchronously",
        "order reductions",
        "approximate",
        "fill rings",
        "fill with neutral elements",
        "bring loads forward",
        "issue loads",
        "join pieces",
        "read repeated registers",
        "narrow comparisons",
        "separate edges",
        "separate iterations",
        "separate whole chunks",
        "hoist invariants",
        "hoist vector invariants",
        "store before loops",
        "round in registers",
        "combine packed runs",
        "convert in pairs",
        "hold rows",
        "load quotients once",
        "load what is chosen once",
        "narrow integers",
        "convert small numbers",
        "combine in order",
        "share equal loads",
        "share windows",
    }
    for name, run in PASSES[:-1]:  # the last gives shared memory its place anew
        changed = run(result)
        assert (changed is result) == (name in idle) and run(changed) is changed, name
        result = changed
    in_registers = kernel(LOAD, STORE, allocs=(R,))
    assert all(run(in_registers) is in_registers for _, run in PASSES)


# ---- rounding


def test_a_value_that_is_rounded_and_widened_stays_a_float():
    """Graphs of torch round after each operator; what is stored is converted."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([40, 8], dtype=DataType.BFloat16, contiguity=[True, True])
        rounded = fd.ops.cast(fd.ops.exp(x), DataType.BFloat16)
        for out in (fd.ops.sin(rounded), rounded):
            fd.add_output(fd.ops.cast(fd.ops.cast(out * 3.0, DataType.BFloat16) + 1.0, DataType.BFloat16))
    given = torch.randn(40, 8).bfloat16()
    made = fd.execute([given])
    (kernel,) = fd._finished().executor.last_program.kernels
    found = [s for s in k.walk(kernel.kernel.body) if isinstance(s, k.Compute)]
    narrow = [s for s in found if s.dst.buffer.dtype is DataType.BFloat16]
    assert sum(s.op is ROUNDED[DataType.BFloat16] for s in found) >= 3
    assert all(s.dst.buffer.size is not const(1) for s in narrow)
    e = given.exp()
    torch.testing.assert_close(made, [e.sin() * 3 + 1, e * 3 + 1], rtol=1e-2, atol=1e-2)
