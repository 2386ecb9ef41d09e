"""C++ text of expressions: what is built is what C++'s grammar reads."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusewright.core import code
from fusewright.core.code import Code, binary, call, cast, chain, conditional, fill, member, subscript, unary
from tests.readback.syntax import Expression, parse_expression

# An expression as it is built, and the tree that must be read.
Built = tuple[Code, Expression]

_LEAVES: list[Built] = [
    (code.primary("a"), ("name", "a")),
    (code.primary("b"), ("name", "b")),
    (code.primary("7"), ("int", 7, "int")),
    (code.primary("0.5f"), ("float", 0.5, "float")),
    (Code("-5ll", code.UNARY), ("unary", "-", ("int", 5, "long long"))),
    (Code("-9 - 1", code.SUM), ("binary", "-", ("unary", "-", ("int", 9, "int")), ("int", 1, "int"))),
]
_BINARY = ["+", "-", "*", "/", "%", "<<", ">>", "<", "<=", ">", ">=", "==", "!=", "&", "^", "|", "&&", "||"]


def _grown(below: st.SearchStrategy[Built]) -> st.SearchStrategy[Built]:
    return st.one_of(
        st.tuples(st.sampled_from(_BINARY), below, below).map(
            lambda x: (binary(x[0], x[1][0], x[2][0]), ("binary", x[0], x[1][1], x[2][1]))
        ),
        st.tuples(st.sampled_from("-+!~&*"), below).map(
            lambda x: (unary(x[0], x[1][0]), ("unary", x[0], x[1][1]))
        ),
        st.tuples(st.sampled_from(["int", "long long", "fw::half"]), below).map(
            lambda x: (cast(x[0], x[1][0]), ("cast", x[0], x[1][1]))
        ),
        st.tuples(below, below, below).map(
            lambda x: (conditional(*(e for e, _ in x)), ("?:", *(tree for _, tree in x)))
        ),
        st.tuples(below, below).map(lambda x: (subscript(x[0][0], x[1][0]), ("[]", x[0][1], x[1][1]))),
        below.map(lambda x: (member(x[0], "re"), (".", x[1], "re"))),
        st.lists(below, max_size=3).map(
            lambda x: (call("f", *(e for e, _ in x)), ("call", "f", (), tuple(tree for _, tree in x)))
        ),
        st.tuples(below, below).map(
            lambda x: (
                fill("{0} * g({1}, -{0})", {"0": x[0][0], "1": x[1][0]}, {}),
                ("binary", "*", x[0][1], ("call", "g", (), (x[1][1], ("unary", "-", x[0][1])))),
            )
        ),
    )


@given(st.recursive(st.sampled_from(_LEAVES), _grown, max_leaves=12))
def test_text_reads_as_the_tree_that_it_was_built_as(built: Built) -> None:
    text, tree = built
    assert parse_expression(text) == tree


@pytest.mark.parametrize(
    ("built", "text"),
    [
        (binary("*", binary("+", "a", "b"), "c"), "(a + b) * c"),
        (binary("-", "a", binary("-", "b", "c")), "a - (b - c)"),
        (binary("+", binary("*", "a", "b"), "c"), "a * b + c"),
        (binary("-", "a", unary("-", "b")), "a - -b"),
        (unary("-", unary("-", "a")), "-(-a)"),
        (chain("||", [chain("&&", "ab"), "c"]), "(a && b) || c"),
        (cast("long long", binary("+", "a", "b")), "(long long)(a + b)"),
        (cast("float", binary("+", "a", "b")), "float(a + b)"),
        (member(cast("long long", "a"), "re"), "((long long)a).re"),
        (conditional(conditional("a", "b", "c"), "d", "e"), "(a ? b : c) ? d : e"),
        (conditional("a", "b", conditional("c", "d", "e")), "a ? b : c ? d : e"),
        (fill("{0} + f({1}, ({2}))", {"0": binary("+", "a", "b"), "1": binary("+", "c", "d"), "2": "e"}, {}),
         "(a + b) + f(c + d, (e))"),
        # Text that says nothing of its operators is no operand as it stands.
        (binary("*", "a + b", "c"), "(a + b) * c"),
        (fill("{0}", {"0": "a + b"}, {}), "(a + b)"),
        (fill("{T}(1) / {0}", {"0": "x"}, {"T": "float"}), "float(1) / x"),
    ],
)  # fmt: skip
def test_parentheses_by_need(built: Code, text: str) -> None:
    assert built == text


def test_code_is_text_and_survives_pickling() -> None:
    built = binary("+", "a", "b")
    copy = pickle.loads(pickle.dumps(built))
    assert (copy, copy.strength, f"{copy};") == ("a + b", built.strength, "a + b;")
