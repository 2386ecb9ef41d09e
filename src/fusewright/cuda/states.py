"""The struct that carries a reduction's states through the collective snippets.

block_reduce.cuh and similar snippets are templates over such a struct. It defines how two partial results
combine, the neutral element, how states move between the lanes of a warp, and their layout in memory.
"""

from __future__ import annotations

import re

from fusewright.core.code import member
from fusewright.core.dtype import DataType
from fusewright.core.once import cached_property
from fusewright.core.op import ReductionOp
from fusewright.cuda.spelling import identifier, literal, type_name

# The snippets of what reduces over a warp by one instruction.
_OVER_WARP = {
    "warp_maximum": "warp_extremum",
    "warp_minimum": "warp_extremum",
    "warp_sum": "warp_sum",
    "warp_any": "warp_vote",
    "warp_all": "warp_vote",
}


class StateStruct:
    """The C++ struct for the states of `op` over inputs of `dtype`.

    Attributes:
        name: the name of the struct, unique to `op` and `dtype`.
        fields: one per state.
        over_warp: the function that reduces a value over a warp by one instruction, or "".
        clustered: whether the blocks of a cluster send the states to each other.
    """

    def __init__(self, op: ReductionOp, dtype: DataType, index_dtype: DataType, clustered: bool) -> None:
        self.op, self.dtype, self.index_dtype = op, dtype, index_dtype
        self.clustered = clustered
        self.name = re.sub(r"\W+", "_", f"{op.name}_{dtype.name}").lower()
        self.fields = [identifier(state) for state in op.states]
        self.dtypes = op.state_dtypes(dtype)
        self.over_warp = op.over_warp.get(dtype, "")

    @property
    def snippets(self) -> tuple[str, ...]:
        """What its text builds on."""
        clusters = ("cluster_reduce",) if self.clustered else ()
        return ("warp_reduce", *clusters, *((_OVER_WARP[self.over_warp],) if self.over_warp else ()))

    @cached_property
    def identities(self) -> list[str]:
        """The text of each state's identity."""
        values = self.op.identity(self.dtype)
        return [literal(value, dtype, self.index_dtype) for value, dtype in zip(values, self.dtypes)]

    @property
    def text(self) -> str:
        """The definition."""
        name, fields = self.name, self.fields
        types = [type_name(dtype, self.index_dtype) for dtype in self.dtypes]

        def each(form: str) -> str:
            return ", ".join(form.format(f=field) for field in fields)

        combine = self.op.combining(self.dtype).render(
            [member("a", field) for field in fields], [member("b", field) for field in fields], self.dtype
        )
        stores = " ".join(f"{field}[i] = state.{field};" for field in fields)
        in_warp = f"{fields[0]} = fw::{self.over_warp}({fields[0]});"
        over_warp = [f"  __device__ void over_warp() {{ {in_warp} }}"] if self.over_warp else []
        lines = [
            f"struct {name} {{",
            *(f"  {kind} {field};" for kind, field in zip(types, fields)),
            # The combination of several states is a formula whose rounding depends on the order.
            f"  static constexpr bool symmetric = {'true' if len(fields) == 1 else 'false'};",
            f"  static __device__ {name} identity() {{ return {{{', '.join(self.identities)}}}; }}",
            f"  static __device__ {name} combine({name} a, {name} b) {{",
            f"    {combine};",
            "    return a;",
            "  }",
            f"  __device__ {name} shuffle_xor(int mask) const {{",
            f"    return {{{each('fw::shuffle_xor({f}, mask)')}}};",
            "  }",
            f"  __device__ {name} shuffle(int lane) const {{",
            f"    return {{{each('fw::shuffle({f}, lane)')}}};",
            "  }",
            *over_warp,
            "  struct Memory {",
            *(f"    {kind}* {field};" for kind, field in zip(types, fields)),
            f"    __device__ {name} load(long long i) const {{ return {{{each('{f}[i]')}}}; }}",
            f"    __device__ void store(long long i, {name} state) const {{ {stores} }}",
        ]
        if self.clustered:
            sends = " ".join(f"fw::send({field}, i, state.{field}, rank, turn);" for field in fields)
            received = each("fw::received({f}, i)")
            lines += [
                f"    __device__ void send(int i, {name} state, int rank, int turn) const {{ {sends} }}",
                f"    __device__ {name} received(int i) const {{ return {{{received}}}; }}",
            ]
        lines.append("  };")
        if self.clustered:
            sizes = " + ".join(f"fw::sent_bytes<{kind}>" for kind in types)
            lines.append(f"  static constexpr int SENT_BYTES = {sizes};")
        return "\n".join([*lines, "};", ""])
