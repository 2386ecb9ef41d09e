"""How the kernels of two dumps differ, as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fusewright.cli.codediff.diff import unified_diff
from fusewright.cli.codediff.dumped import DumpedKernel
from fusewright.cli.codediff.matching import Pair, matched
from fusewright.cli.codediff.measures import Code, Measurer
from fusewright.cli.codediff.renaming import is_renamed
from fusewright.core.once import cached_property

#: What can be said of a pair, the most telling first. `text only`: the machine code is the same.
#: `renamed only`: the texts differ in names of variables and in comments; neither is compiled, nor shown.
STATUSES = ("changed", "text only", "added", "removed", "renamed only", "same")
UNSHOWN = ("renamed only", "same")


@dataclass(frozen=True)
class Row:
    """One use of a kernel in both dumps.

    Attributes:
        status: one of `STATUSES`. differences: what differs, as "launch: ... -> ...".
        old, new: None where the dump has no such kernel. old_code, new_code: None where nothing was compiled.
    """

    status: str
    differences: tuple[str, ...]
    old: DumpedKernel | None
    new: DumpedKernel | None
    old_code: Code | None = None
    new_code: Code | None = None

    @property
    def kernel(self) -> DumpedKernel:
        """The new one where there is one."""
        found = self.new or self.old
        assert found is not None
        return found

    @cached_property
    def diff(self) -> tuple[str, ...]:
        """Of the texts, without the names of kernels; empty if one is missing or they agree."""
        if self.old is None or self.new is None:
            return ()
        return unified_diff(self.old.text, self.new.text)

    @property
    def growth(self) -> float:
        """The larger of the factors by which instructions and registers changed, from 0."""
        if self.old_code is None or self.new_code is None:
            return 0.0
        pairs = [
            (self.old_code.instructions, self.new_code.instructions),
            (self.old_code.registers, self.new_code.registers),
        ]
        return max(max(pair) / max(min(pair), 1) - 1 for pair in pairs)

    def to_dict(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "test": self.kernel.use.test,
            "differences": list(self.differences),
            "growth": self.growth,
            "old": _side(self.old, self.old_code),
            "new": _side(self.new, self.new_code),
        }


@dataclass(frozen=True)
class Group:
    """Rows of one status that changed in the same way, those that grew or shrank most first."""

    rows: tuple[Row, ...]

    @property
    def status(self) -> str:
        return self.rows[0].status

    @property
    def diff(self) -> tuple[str, ...]:
        """The first row's."""
        return self.rows[0].diff

    def to_dict(self) -> dict[str, Any]:
        kernels = [row.to_dict() for row in self.rows]
        return {"status": self.status, "diff": list(self.diff), "kernels": kernels}


@dataclass(frozen=True)
class Comparison:
    """old, new: what was compared, as the user named it. notes: what limits the comparison."""

    old: str
    new: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    @property
    def counts(self) -> Mapping[str, int]:
        """Rows by status, in the order of `STATUSES`."""
        found = Counter(row.status for row in self.rows)
        return {status: found[status] for status in STATUSES}

    @property
    def differs(self) -> bool:
        return any(row.status != "same" for row in self.rows)

    @property
    def language(self) -> str:
        """What instructions are counted in; "" if nothing was compiled."""
        codes = [code for row in self.rows for code in (row.old_code, row.new_code) if code is not None]
        return next((code.language for code in codes if code.language), "")

    @cached_property
    def groups(self) -> Sequence[Group]:
        """All rows that are neither the same nor renamed, by status and by what changed, the largest changes
        first.
        """
        found: dict[object, list[Row]] = {}
        for row in self.rows:
            if row.status not in UNSHOWN:
                found.setdefault((row.status, _what_changed(row)), []).append(row)
        groups = [Group(tuple(sorted(rows, key=lambda r: -r.growth))) for rows in found.values()]
        return sorted(groups, key=lambda g: (STATUSES.index(g.status), -g.rows[0].growth, -len(g.rows)))

    def of_status(self, status: str) -> Sequence[Row]:
        return [row for row in self.rows if row.status == status]

    def to_dict(self) -> dict[str, Any]:
        return {
            "old": self.old,
            "new": self.new,
            "notes": list(self.notes),
            "counts": dict(self.counts),
            "instructions": self.language,
            "groups": [group.to_dict() for group in self.groups],
            "renamed": [
                {"old": _side(row.old), "new": _side(row.new)} for row in self.of_status("renamed only")
            ],
            "same": [_side(row.new) for row in self.of_status("same")],
        }


def compare(
    old: Sequence[DumpedKernel],
    new: Sequence[DumpedKernel],
    names: tuple[str, str],
    notes: Sequence[str] = (),
    progress: Callable[[int, int], None] = lambda done, count: None,
) -> Comparison:
    """Pairs the kernels and compiles those that are neither the same nor renamed."""
    rows = [_compared(pair) for pair in matched(old, new)]
    measurer = Measurer()
    shown = [row for row in rows if row.status not in UNSHOWN]
    measurer.measure([k for row in shown for k in (row.old, row.new) if k is not None], progress)
    measured = [_measured(row, measurer) if row.status not in UNSHOWN else row for row in rows]
    return Comparison(*names, tuple(measured), tuple(notes))


def _compared(pair: Pair) -> Row:
    """What the texts and the uses say."""
    old, new = pair.old, pair.new
    if old is None or new is None:
        return Row("added" if old is None else "removed", (), old, new)
    differences = _differences(old, new)
    status = "changed" if differences else "same"
    if differences == ("text",) and is_renamed(old.text, new.text):
        status = "renamed only"
    return Row(status, differences, old, new)


def _measured(row: Row, measurer: Measurer) -> Row:
    old_code = None if row.old is None else measurer.of(row.old)
    new_code = None if row.new is None else measurer.of(row.new)
    status = row.status
    if row.differences == ("text",) and old_code and new_code and old_code.image == new_code.image != b"":
        status = "text only"
    return replace(row, status=status, old_code=old_code, new_code=new_code)


def _differences(old: DumpedKernel, new: DumpedKernel) -> tuple[str, ...]:
    sides = [
        ("scheduler", old.use.scheduler, new.use.scheduler),
        ("launch", old.use.launch, new.use.launch),
        *(
            (name, old.use.options.get(name), new.use.options.get(name))
            for name in dict.fromkeys([*old.use.options, *new.use.options])
        ),
    ]
    found = [f"{name}: {shown(a)} -> {shown(b)}" for name, a, b in sides if a != b]
    if old.digest != new.digest:
        found.append("text")
    return tuple(found)


def shown(value: object) -> str:
    """A launch, or an option."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {entry}" for name, entry in value.items())
    return str(value)


def _what_changed(row: Row) -> object:
    """Equal for rows that one explanation serves: the changed lines, else what else differs."""
    if row.old is None or row.new is None:
        return row.kernel.digest
    if "text" not in row.differences:
        return row.differences
    return tuple(line for line in row.diff if line[:1] in "+-")


def _side(kernel: DumpedKernel | None, code: Code | None = None) -> dict[str, Any] | None:
    if kernel is None:
        return None
    use = kernel.use
    side: dict[str, Any] = {
        "base": use.base, "kernel": use.kernel, "scheduler": use.scheduler, "launch": use.launch
    }  # fmt: skip
    if code is not None:
        side |= {name: getattr(code, name) for name in ("registers", "spilled", "shared", "instructions")}
        side["problem"] = code.problem
    return side
