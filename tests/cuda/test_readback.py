"""The text of a kernel is the kernel: read back for every operation and operand, and no fault goes unseen."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fusewright import FusionDefinition
from fusewright.core.dtype import DataType
from fusewright.core.enums import CacheOp, ParallelType
from fusewright.core.errors import InternalError
from fusewright.core.op import ElementwiseOp
from fusewright.cuda.expressions import ExpressionPrinter
from fusewright.cuda.nvrtc import NvrtcOptions, compile_ptx
from fusewright.cuda.printer import CudaSource, print_kernel
from fusewright.kernel.ir import Alloc, Compute, Imm, Kernel, index_symbol
from fusewright.ops.elementwise import ELEMENTWISE
from fusewright.runtime import compiled_kernel
from fusewright.sym import Expr, as_expr, build, const, lt, symbol
from tests.compilation import SyntaxOnly, check_text
from tests.cuda.expression_kernels import COMPUTED, every_operand_kernel
from tests.cuda.test_printer import KERNELS
from tests.kernel import builders
from tests.readback.indices import Mismatch, check_index
from tests.readback.kernels import check_kernel
from tests.readback.operands import match
from tests.readback.syntax import parse_body, parse_expression, parse_form

# ---- kernels -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
def test_hand_written_kernels(name: str) -> None:
    kernel = KERNELS[name]()
    check_kernel(kernel, print_kernel(kernel))


@pytest.mark.parametrize("cache", CacheOp)
@pytest.mark.parametrize("dtype", [DataType.Float, DataType.Half, DataType.ComplexFloat])
def test_every_cache_hint(cache: CacheOp, dtype: DataType) -> None:
    kernel = builders.pointwise(dtype, width=2, cache=cache)
    check_kernel(kernel, print_kernel(kernel))


_NUMBERS = [d for d in DataType if d not in (DataType.Null, DataType.Float4_e2m1fn_x2)]


@pytest.mark.parametrize("source", _NUMBERS)
@pytest.mark.parametrize("index_dtype", [DataType.Int, DataType.Int32])
def test_every_conversion(source: DataType, index_dtype: DataType) -> None:
    for target in _NUMBERS:
        kernel = dataclasses.replace(builders.cast(source, target), index_dtype=index_dtype)
        check_kernel(kernel, print_kernel(kernel))


@pytest.mark.sampled(0.5, "dtype", "index_dtype")
@pytest.mark.parametrize("index_dtype", [DataType.Int, DataType.Int32])
@pytest.mark.parametrize("dtype", COMPUTED)
def test_every_operation_of_every_kind_of_operand(dtype: DataType, index_dtype: DataType) -> None:
    """Computed indices, constants at the type's limits, parameters of other types: in each place."""
    kernel = every_operand_kernel(dtype, index_dtype)
    check_kernel(kernel, print_kernel(kernel))
    check_text(print_kernel(every_operand_kernel(dtype, index_dtype, each=1)).text, SyntaxOnly("sm_80"))


def _kernels(
    define: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> list[tuple[Kernel, CudaSource]]:
    """The kernels that running a definition without inputs prints."""
    found: list[tuple[Kernel, CudaSource]] = []
    inner = compiled_kernel.print_kernel

    def printed(kernel: Kernel) -> CudaSource:
        source = inner(kernel)
        found.append((kernel, source))
        return source

    monkeypatch.setattr(compiled_kernel, "print_kernel", printed)
    with FusionDefinition() as fd:
        define(fd)
    fd.execute([], device="cpu")
    return found


def test_an_index_that_is_a_value_is_a_factor_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def define(fd: Any) -> None:
        length, start, step = (fd.define_scalar(n, dtype=DataType.Int) for n in (1000, 1, 2**40))
        fd.add_output(fd.ops.iota(length, start, step, DataType.Int))

    [(kernel, source)] = _kernels(define, monkeypatch)
    check_kernel(kernel, source)
    factor = re.search(r"fw::wrapping_mul\(\(long long\)(\([^()]* \+ [^()]*\)), \d+ll\)", source.kernel)
    assert factor is not None, source.kernel
    bare = source.kernel.replace(factor[1], factor[1][1:-1])
    with pytest.raises(AssertionError, match="the text is not the kernel"):
        check_kernel(kernel, dataclasses.replace(source, kernel=bare))


def test_integers_wrap_around_for_the_compiler_too() -> None:
    """Of signed integers that may not overflow, it knows that x + 1 > x."""
    n, n_param = builders.size("n0")
    i = index_symbol(ParallelType.block_x, const(32))
    x = builders.tensor("x", DataType.Int, n)
    y = builders.tensor("y", DataType.Bool, n, output=True)
    one, total = Imm(1, DataType.Int), builders.local("total", DataType.Int)
    body = [
        Alloc(total),
        Compute(builders.ADD, builders.at(total), (builders.at(x.buffer, i), one), DataType.Int),
        Compute(
            builders.GT,
            builders.at(y.buffer, i),
            (builders.at(total), builders.at(x.buffer, i)),
            DataType.Int,
        ),
    ]
    source = print_kernel(builders.kernel("k", [x, y, n_param], body, [1], [32]))
    assert "setp" in compile_ptx(source.text, NvrtcOptions("sm_80"))


# ---- expressions -------------------------------------------------------------------------------------------

_ROWS = [
    (op, dtype)
    for op in ELEMENTWISE.values()
    for dtype in (DataType.Bool, DataType.Int, DataType.Float, DataType.ComplexFloat)
    if dtype.category in op.supports
]


def _form(op: ElementwiseOp, dtype: DataType) -> Any:
    return parse_form(op.spelling(dtype).cuda, (("T", dtype.cuda),))


@pytest.mark.sampled(0.4, "outer", "dtype")
@pytest.mark.parametrize(("outer", "dtype"), _ROWS, ids=[f"{op.name}-{d.name}" for op, d in _ROWS])
def test_every_spelling_in_every_place_of_another(outer: ElementwiseOp, dtype: DataType) -> None:
    for inner, other in _ROWS:
        within = inner.spelling(other).render([f"x{i}" for i in range(inner.arity)], other)
        for place in range(outer.arity):
            operands = [f"y{i}" for i in range(outer.arity)]
            text = outer.spelling(dtype).render([*operands[:place], within, *operands[place + 1 :]], dtype)

            def names(prefix: str, arity: int) -> dict[str, Callable[[Any], None]]:
                def is_name(wanted: str, e: Any) -> None:
                    assert e == ("name", wanted)

                return {str(i): lambda e, i=i: is_name(f"{prefix}{i}", e) for i in range(arity)}  # type: ignore[misc]

            matchers = names("y", outer.arity)
            matchers[str(place)] = lambda e, inner=inner, other=other: match(  # type: ignore[misc]
                _form(inner, other), e, names("x", inner.arity)
            )
            match(_form(outer, dtype), parse_expression(text), matchers)


# Ranges to the ends of the index type, and small ones whose values coincide.
def _symbols(bits: int) -> list[Expr]:
    most = 2 ** (bits - 1) - 1
    return [
        symbol("i", hi=most),
        symbol("j", lo=-most - 1, hi=most),
        symbol("n", lo=1, hi=50),
        symbol("m", lo=-20, hi=20),
        symbol("k", hi=7),
    ]


def _random_expression(rng: random.Random, bits: int, depth: int) -> Expr:
    if depth == 0:
        edges = [0, 1, -1, 7, 2**31 - 1, -(2**31), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1, 2 ** (bits - 2)]
        return rng.choice([*_symbols(bits), *_symbols(bits), as_expr(rng.choice(edges))])
    kind = rng.choice(
        [
            "add",
            "add",
            "mul",
            "mul",
            "scale",
            "floordiv",
            "mod",
            "min",
            "max",
            "xor",
            "lt",
            "le",
            "eq",
            "not",
            "and",
            "or",
        ]
    )
    below = [_random_expression(rng, bits, rng.randrange(depth)) for _ in range(2)]
    if kind == "scale":
        return below[0] * rng.randint(-5, 5)
    if kind in ("floordiv", "mod"):
        return build(kind, [below[0], rng.choice([const(3), const(-2), const(8), _symbols(bits)[2]])])
    if kind in ("and", "or"):
        return build(kind, [lt(below[0], below[1]), lt(_random_expression(rng, bits, 1), 5)])
    if kind == "not":
        return build("not", [build("eq", below)])
    return build(kind, below)


@pytest.mark.parametrize("dtype", [DataType.Int32, DataType.Int])
def test_random_expressions(dtype: DataType) -> None:
    rng, bits, checked = random.Random(7), 64 if dtype is DataType.Int else 32, 0
    variables = {name: (dtype.cuda, name) for name in "ijnmk"}
    for _ in range(600):
        e = _random_expression(rng, bits, 5)
        try:
            printed = ExpressionPrinter(dtype, lambda s: s.name, lambda snippet: None).typed(e)
        except InternalError as error:
            assert "does not fit" in str(error)
            continue
        try:
            check_index(parse_expression(printed.code), e, variables, bits == 64, printed.dtype.cuda)
            checked += 1
        except Mismatch as problem:
            # Of an expression with a part that the index type never holds, nothing is promised.
            assert str(problem).startswith("no sample"), f"{printed.code}: {problem}"
    assert checked > 400


# ---- faults ------------------------------------------------------------------------------------------------

_OTHER = {
    "+": "-",
    "-": "+",
    "*": "+",
    "/": "%",
    "%": "/",
    "<": "<=",
    "<=": "<",
    "==": "<=",
    "!=": "==",
    "&&": "||",
    "||": "&&",
}


def _faults(line: str) -> Iterator[str]:
    """The line with one thing changed: parentheses, an operator, a cast, a literal or a name."""
    for opened in re.finditer(r"(?<![\w>])\(", line):
        depth = 0
        for position in range(opened.start(), len(line)):
            depth += {"(": 1, ")": -1}.get(line[position], 0)
            if depth == 0:
                yield line[: opened.start()] + line[opened.end() : position] + line[position + 1 :]
                break
    for found in re.finditer(r" (\+|-|\*|/|%|<|<=|==|!=|&&|\|\|) ", line):
        yield f"{line[: found.start(1)]}{_OTHER[found[1]]}{line[found.end(1) :]}"
    for found in re.finditer(r"\((long long|int|float)\)(?=[\w(])|\b(int|float|bool|fw::\w+)(?=\()", line):
        if not re.match(r"\(*[^()]* (<|==) ", line[found.end() :]):  # a truth value is a number anyway
            yield line[: found.start()] + line[found.end() :]
    for found in re.finditer(r"(?<![\w.])(\d+)(?=[;)\],. *]|ll|f)", line):
        yield f"{line[: found.start()]}{int(found[1]) + 1}{line[found.end() :]}"
    for found in re.finditer(r"(?<=\d)(ll|f)\b", line):
        if "complex" not in line:  # whose parts convert
            yield line[: found.start()] + line[found.end() :]
    for found in re.finditer(r"\bblockIdx_x\b(?!\s*=)", line):
        yield f"{line[: found.start()]}threadIdx_x{line[found.end() :]}"
    for found in re.finditer(r" - | -(?=[\w(])|!(?!=)", line):
        yield f"{line[: found.start()]} {line[found.end() :]}"


def _same(a: str, b: str) -> bool:
    try:
        trees = [
            [(s.kind, s.parts) for s in parse_body([t, "}"] if t.endswith("{") else [t])] for t in (a, b)
        ]
    except Exception:
        return False
    return trees[0] == trees[1]


def _faulty_kernels() -> list[tuple[str, Kernel]]:
    made = [(name, build()) for name, build in KERNELS.items()]
    made += [(f"every_operand_{d.name}", every_operand_kernel(d, DataType.Int32, _FEW, 2)) for d in _SOME]
    return made


_FEW = [ELEMENTWISE[name] for name in ("add", "mul", "where", "relu", "sign", "bitwise_or")]
_SOME = [DataType.Int, DataType.Float, DataType.Bool]


@pytest.mark.parametrize(("name", "kernel"), _faulty_kernels(), ids=[n for n, _ in _faulty_kernels()])
def test_a_fault_in_the_text_is_found(name: str, kernel: Kernel) -> None:
    source = print_kernel(kernel)
    check_kernel(kernel, source)
    lines = source.kernel.splitlines()
    start = next(i for i, line in enumerate(lines) if line.endswith(") {") and not line.startswith("  }"))
    tried, missed = 0, []
    for number in range(start + 1, len(lines)):
        if lines[number].startswith("//"):
            continue
        for fault in {*_faults(lines[number]), ""}:
            if fault == lines[number] or (not fault and lines[number].strip() in "{}"):
                continue
            if fault and _same(lines[number].strip(), fault.strip()):
                continue
            text = "\n".join([*lines[:number], *([fault] if fault else []), *lines[number + 1 :], ""])
            tried += 1
            try:
                check_kernel(kernel, dataclasses.replace(source, kernel=text))
            except AssertionError:
                continue
            missed.append(f"{lines[number].strip()}  ->  {fault.strip()}")
    assert tried > 10
    assert not missed, "\n".join(missed)
