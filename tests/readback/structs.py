"""The structs of reduction states that printed kernels define, read back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from fusewright.core.dtype import DataType
from fusewright.core.op import ReductionOp
from tests.readback.indices import Mismatch
from tests.readback.operands import Names, check_constant, match
from tests.readback.syntax import Expression, SyntaxFault, parse_body, parse_form


@dataclass(frozen=True)
class Struct:
    """One definition.

    Attributes:
        name: of the struct.
        fields: the names of its states.
        types: their types.
        lines: the whole text.
    """

    name: str
    fields: tuple[str, ...]
    types: tuple[str, ...]
    lines: tuple[str, ...]

    def check(self, op: ReductionOp, dtype: DataType, names: Names, clustered: bool = False) -> None:
        """Mismatch unless it carries the states of `op` over inputs of `dtype`."""
        types = tuple(names.type(state) for state in op.state_dtypes(dtype))
        if self.types != types:
            raise Mismatch(f"{self.name} has states of {self.types}, not {types}")
        problem = _problem(self, op, dtype, names.index_dtype, clustered)
        if problem is not None:
            raise Mismatch(f"{self.name}: {problem}")


def parse_structs(lines: Sequence[str]) -> dict[str, Struct]:
    """The structs, by name."""
    found: dict[str, Struct] = {}
    rest = [line for line in lines if line.strip()]
    while rest:
        head = re.fullmatch(r"struct (\w+) {", rest[0])
        if head is None or "};" not in rest:
            raise SyntaxFault(f"no struct: {rest[0]}")
        end = rest.index("};")
        members = [re.fullmatch(r"  ([\w: <>]+) (\w+);", line) for line in rest[1:end]]
        fields = []
        for member in members:
            if member is None:
                break
            fields.append((member[1], member[2]))
        if not fields:
            raise SyntaxFault(f"no states in {head[1]}")
        types, names = zip(*fields)
        found[head[1]] = Struct(head[1], names, types, tuple(rest[: end + 1]))
        rest = rest[end + 1 :]
    return found


@lru_cache(maxsize=1024)
def _problem(
    struct: Struct, op: ReductionOp, dtype: DataType, index_dtype: DataType, clustered: bool
) -> str | None:
    try:
        _check(struct, op, dtype, Names(index_dtype), clustered)
    except (Mismatch, SyntaxFault) as problem:
        return str(problem)
    return None


def _check(struct: Struct, op: ReductionOp, dtype: DataType, names: Names, clustered: bool = False) -> None:
    name, fields = struct.name, struct.fields
    rest = list(struct.lines[1 + len(fields) : -1])

    def line(pattern: str) -> re.Match[str]:
        text = rest.pop(0).strip() if rest else "the end"
        found = re.fullmatch(pattern.replace("NAME", name), text)
        if found is None:
            raise Mismatch(f"expected {pattern}, found {text}")
        return found

    def each(form: str) -> str:
        return re.escape(", ".join(form.format(f=field) for field in fields))

    symmetric = "true" if len(fields) == 1 else "false"
    line(f"static constexpr bool symmetric = {symmetric};")
    identities = _operands(line(r"static __device__ NAME identity\(\) { return ({.*}); }")[1])
    for e, value, state in zip(identities, op.identity(dtype), op.state_dtypes(dtype), strict=True):
        check_constant(names, e, value, state, state)
    line(r"static __device__ NAME combine\(NAME a, NAME b\) {")
    _check_combine(rest.pop(0).strip(), fields, op, dtype)
    line("return a;")
    line("}")
    line(r"__device__ NAME shuffle_xor\(int mask\) const {")
    line(f"return {{{each('fw::shuffle_xor({f}, mask)')}}};")
    line("}")
    line(r"__device__ NAME shuffle\(int lane\) const {")
    line(f"return {{{each('fw::shuffle({f}, lane)')}}};")
    line("}")
    if dtype in op.over_warp:
        [field] = fields
        line(re.escape(f"__device__ void over_warp() {{ {field} = fw::{op.over_warp[dtype]}({field}); }}"))
    line("struct Memory {")
    for type_, field in zip(struct.types, fields):
        line(re.escape(f"{type_}* {field};"))
    line(rf"__device__ NAME load\(long long i\) const {{ return {{{each('{f}[i]')}}}; }}")
    stores = re.escape(" ".join(f"{field}[i] = state.{field};" for field in fields))
    line(rf"__device__ void store\(long long i, NAME state\) const {{ {stores} }}")
    if clustered or rest != ["  };"]:
        sends = re.escape(" ".join(f"fw::send({field}, i, state.{field}, rank, turn);" for field in fields))
        line(rf"__device__ void send\(int i, NAME state, int rank, int turn\) const {{ {sends} }}")
        line(rf"__device__ NAME received\(int i\) const {{ return {{{each('fw::received({f}, i)')}}}; }}")
        line("};")
        sizes = " + ".join(f"fw::sent_bytes<{type_}>" for type_ in struct.types)
        line(re.escape(f"static constexpr int SENT_BYTES = {sizes};"))
    else:
        line("};")
    if rest:
        raise Mismatch(f"more than a struct of states has: {rest[0]}")


def _operands(braces: str) -> tuple[Expression, ...]:
    [statement] = parse_body([f"x = states{braces};"])
    operands: tuple[Expression, ...] = statement.parts[1][2]
    return operands


def _check_combine(line: str, fields: Sequence[str], op: ReductionOp, dtype: DataType) -> None:
    [statement] = parse_body([line])
    form = parse_form(op.combining(dtype).cuda, (("T", dtype.cuda),))
    if statement.kind not in ("assign", "call"):
        raise Mismatch(f"no combination of states: {line}")
    e = ("assign", *statement.parts) if statement.kind == "assign" else statement.parts[0]

    def field_of(side: str, field: str, e: Expression) -> None:
        if e != (".", ("name", side), field):
            raise Mismatch(f"{e} instead of {side}.{field}")

    operands = {
        f"{side}{i}": lambda e, side=side, field=field: field_of(side, field, e)  # type: ignore[misc]
        for side in "ab"
        for i, field in enumerate(fields)
    }
    match(form, e, operands)
