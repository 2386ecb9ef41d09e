"""Barriers between threads that exchange data through shared memory, and none that is not needed."""

from __future__ import annotations

import dataclasses

import pytest

from fusewright.kernel import ir as k
from fusewright.kernel.verify import verify
from fusewright.lower.passes.barriers import insert_barriers
from fusewright.sym import land, lt, symbol
from tests.lower.statements import I, J, N, R, S, T, U, X, Y, copy, kernel, lines, loop

WRITE_S, WRITE_U = copy(S, X.buffer, T, T), copy(U, X.buffer, T, T)
READ_S, READ_U = copy(R, S, 0, 31 - T), copy(R, U, 1, 31 - T)


def shape(*body: k.Stmt) -> str:
    """What stands where afterwards: S and s write and read S (U, u), | is a barrier, loops are braces."""
    names = {WRITE_S: "S", READ_S: "s", WRITE_U: "U", READ_U: "u"}

    def text(stmts) -> str:
        found = []
        for stmt in stmts:
            if isinstance(stmt, k.Barrier):
                found.append("|")
            elif isinstance(stmt, (k.For, k.If)):
                found.append("{" + text(stmt.body) + "}")
            elif not isinstance(stmt, k.Alloc):
                found.append(names.get(stmt, "."))
        return "".join(found)

    return text(insert_barriers(kernel(*body)).body)


OTHER = copy(Y.buffer, R, T, 0)


@pytest.mark.parametrize(
    "body, wanted",
    [
        ((WRITE_S, READ_S), "S|s"),
        ((READ_S, WRITE_S), "s|S"),
        ((WRITE_S, WRITE_S), "S|S"),
        ((READ_S, READ_S), "ss"),
        ((WRITE_S, WRITE_U, READ_S, READ_U), "SU|su"),
        ((WRITE_S, READ_S, WRITE_U, READ_U), "S|sU|u"),
        ((WRITE_S, OTHER, READ_S), "S.|s"),
        ((WRITE_S, k.Barrier(), READ_S), "S|s"),
        ((OTHER, OTHER), ".."),
        ((k.If(T, (WRITE_S,)), k.If(T, (READ_S,))), "{S}|{s}"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_straight_line(body, wanted):
    assert shape(*body) == wanted


@pytest.mark.parametrize(
    "body, wanted",
    [
        ((loop(4, WRITE_S, READ_S),), "{S|s|}"),  # the next iteration's write waits for this one's reads
        ((loop(4, READ_S, WRITE_S),), "{s|S|}"),
        ((loop(4, WRITE_S, READ_S, WRITE_U, READ_U),), "{S|sU|u}"),  # the second barrier serves both
        ((loop(4, READ_S),), "{s}"),
        ((WRITE_S, loop(4, READ_S)), "S|{s}"),
        ((WRITE_S, loop(4, READ_S), WRITE_S), "S|{s}|S"),
        ((loop(4, WRITE_S), READ_S), "{S|}s"),
        ((loop(4, loop(4, READ_S), WRITE_S),), "{{s}|S|}"),
        ((loop(4, WRITE_S, loop(4, READ_S)),), "{S|{s}|}"),
        ((loop(4, OTHER),), "{.}"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_loops(body, wanted):
    assert shape(*body) == wanted


GUARD, INNER = lt(T, N), lt(T, 7)


@pytest.mark.parametrize(
    "body, wanted",
    [
        ((k.If(GUARD, (WRITE_S, OTHER)),), "{S.}"),
        ((k.If(GUARD, (WRITE_S, READ_S)),), "{S}|{s}"),
        ((k.If(GUARD, (WRITE_S, OTHER, READ_S)), WRITE_S), "{S}{.}|{s}|S"),
        ((k.If(GUARD, (loop(4, WRITE_S, READ_S), OTHER)),), "{{S}|{s}|}{.}"),
        ((loop(4, k.If(GUARD, (WRITE_S, READ_S))),), "{{S}|{s}|}"),
        ((k.If(GUARD, (k.If(INNER, (WRITE_S,)), READ_S)),), "{S}|{s}"),
        ((k.If(GUARD, (k.If(INNER, (WRITE_S, READ_S)), READ_U)),), "{S}|{s}{u}"),
        ((WRITE_S, k.If(GUARD, (READ_S, WRITE_U, READ_U))), "S|{s}{U}|{u}"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_threads_that_part_ways_meet_at_barriers(body, wanted):
    """Merged guards hold the work of several nodes, between which all threads have to arrive."""
    assert shape(*body) == wanted
    verify(insert_barriers(kernel(*body, OTHER)), "barriers")


def test_a_nested_condition_keeps_what_is_around_it():
    body = insert_barriers(kernel(k.If(GUARD, (k.If(INNER, (WRITE_S,)), READ_S)))).body[-3:]
    assert [s.cond for s in body if isinstance(s, k.If)] == [land(GUARD, INNER), GUARD]


def test_names_under_a_condition_stay_known():
    name = symbol("n0", lo=0)
    reads = copy(R, S, 0, name)
    result = insert_barriers(kernel(OTHER, k.If(GUARD, (WRITE_S, k.Let(name, 31 - T), reads))))
    verify(result, "barriers")
    assert [type(s).__name__ for s in result.body[-4:]] == ["If", "Let", "Barrier", "If"]


@pytest.mark.parametrize(
    "index, needed",
    [
        (32 * I + T, False),
        (31 * I + T, True),  # iteration 1's thread 0 meets iteration 0's thread 31
        (4 * T + I, True),  # apart as well, which is not looked for
        (32 * (I % 2) + T, True),
    ],
    ids=str,
)
def test_iterations_that_write_apart(index, needed):
    write = copy(U, X.buffer, index, T)
    body = insert_barriers(kernel(loop(4, write), READ_U)).body
    (inner,) = (s for s in body if isinstance(s, k.For))
    assert any(isinstance(s, k.Barrier) for s in inner.body) is needed
    # What the loop reads itself is not apart from the next iteration's writes.
    body = insert_barriers(kernel(loop(4, write, READ_U))).body
    (inner,) = (s for s in body if isinstance(s, k.For))
    assert [isinstance(s, k.Barrier) for s in inner.body] == [False, True, False, True]


def test_iterations_of_a_loop_around_are_compared_where_it_ends():
    """Each iteration of the inner loop writes 32 elements apart, and so does the outer loop's of both."""
    inner = loop(2, copy(U, X.buffer, 64 * I + 32 * J + T, T), index=J)
    body = insert_barriers(kernel(loop(4, inner), READ_U)).body
    assert not any(isinstance(s, k.Barrier) for outer in body for s in k.walk(k.children(outer)))
    again = insert_barriers(kernel(loop(4, loop(2, copy(U, X.buffer, 32 * I + 32 * J + T, T), index=J)))).body
    assert any(isinstance(s, k.Barrier) for outer in again for s in k.walk(k.children(outer)))


def test_a_barrier_in_a_loop_that_may_not_run_orders_nothing_after_it():
    inner = (WRITE_U, READ_U)
    assert shape(WRITE_S, loop(4, *inner), READ_S) == "S{U|u|}s"
    assert shape(WRITE_S, loop(N, *inner), READ_S) == "S{U|u|}|s"


def test_what_each_thread_keeps_for_itself_needs_none():
    own = dataclasses.replace(S, private=True)
    body = insert_barriers(kernel(copy(own, X.buffer, T, T), copy(R, own, 0, T), allocs=(own, R))).body
    assert not any(isinstance(s, k.Barrier) for s in body)


def test_registers_and_global_memory_need_none():
    text = lines(insert_barriers(kernel(copy(R, X.buffer, 0, T), copy(Y.buffer, R, T, 0))))
    assert len(text) == 2


ROW, PAIR, ODD = symbol("row", lo=0, hi=3), symbol("pair", lo=0, hi=2), symbol("odd", lo=0, hi=1)


@pytest.mark.parametrize(
    ("index", "cond", "needed"),
    [
        (ROW * 5 + PAIR * 2 + ODD, lt(PAIR * 2 + ODD, 5), False),
        (ROW * 5 + PAIR * 2 + ODD, lt(PAIR * 2 + ODD, 6), True),  # the sixth of a row is the next one's first
        (ROW * 6 + PAIR * 2 + ODD, lt(PAIR, N), False),
        (ROW * 5 + ODD, lt(ODD, 5), True),  # the same in each iteration
        (PAIR % 2 * 64 + PAIR // 2 * 4 + T // 4 * 8 + T % 4, lt(ODD, 2), False),
        (PAIR % 2 * 64 + PAIR // 2 * 4 + T // 4 * 4 + T % 4, lt(ODD, 2), True),  # a row has two halves
        (PAIR // 2 * 4 + T // 4 * 8 + T % 4, lt(ODD, 2), True),  # the same in the first two
        ((PAIR + T) // 2 * 64 + T, lt(ODD, 2), True),  # of several threads and iterations
    ],
    ids=[
        "rows of 5",
        "rows that meet",
        "rows of 6",
        "no place of the iteration",
        "quotient and rest",
        "rows of quotients that meet",
        "quotient alone",
        "quotient of a sum",
    ],
)
def test_iterations_write_apart_where_indices_are_digits(index, cond, needed):
    write = k.If(cond, (copy(U, X.buffer, index, T),))
    body = insert_barriers(kernel(loop(3, write, index=PAIR), READ_U)).body
    (inner,) = (s for s in body if isinstance(s, k.For))
    assert any(isinstance(s, k.Barrier) for s in k.walk(inner.body)) is needed
