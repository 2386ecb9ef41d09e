"""What `bench tuning` found, as tables: for the terminal, as JSON, and for the documentation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any

from bench.report import environment, markdown_table
from bench.tuning_trials import CONFIGURATIONS, FIRST, PLAIN_CONFIGURATIONS, Found
from fusewright.tune.journal import FAILED, Status
from fusewright.tune.tuner import Tuned

AFTER_FIRST, AFTER_ALL, PLAIN = (f"after {FIRST}", f"after {CONFIGURATIONS}", f"plain {PLAIN_CONFIGURATIONS}")
#: Who chose params, in the order of the table.
CHOSEN = ("formula", AFTER_FIRST, AFTER_ALL, PLAIN, "policy")
#: By what ratios are taken of: the best of the sample, of all that was measured, and the formula's params.
RATIOS = (
    *((who, mark) for mark in ("sample", "all") for who in CHOSEN),
    ("sample", "all"),
    ("policy", "formula"),
)
# Of the problems, those that the documentation shows.
SHOWN_EACH = 5


def copy_seconds(found: Found) -> float | None:
    if found.again is not None:
        return found.again.copy_seconds
    return None if found.tuned is None else found.tuned.copy_seconds


def times(found: Found) -> dict[str, float]:
    """By who chose params, their time: in turns with the others', where that was measured."""
    measured = found.measured if found.again is None else found.again.seconds
    return {who: measured[params] for who, params in found.chosen().items() if params in measured}


def tried_of(tuned: Tuned | None) -> int:
    return 0 if tuned is None else tuned.tried


def ratios(found: Iterable[Found], who: str, mark: str) -> dict[str, float]:
    """By problem, how many times as long what `who` chose takes as what `mark` did."""
    known = {each.problem.name: times(each) for each in found}
    return {name: own[who] / own[mark] for name, own in known.items() if who in own and mark in own}


def mean(values: Iterable[float]) -> float:
    """Geometric."""
    logs = list(map(math.log, values))
    return math.exp(sum(logs) / len(logs))


def sampled(found: Found) -> dict[str, int]:
    """What became of the sample."""
    known = {trial.params: trial for trial in found.known}
    tried = [known[params] for params in found.sample if params in known]
    return {
        "points": len(found.sample),
        "tried": len(tried),
        "ran": sum(trial.seconds is not None for trial in tried),
        "refused": sum(trial.status is Status.REJECTED for trial in tried),
        "untried": len(found.sample) - len(tried),
        "untried_by_model": len(found.refused - known.keys()),
    }


def _seconds(found: Found) -> str:
    return "-" if found.seconds is None else f"{found.seconds:.1f}"


def _kind(found: Found) -> str:
    """What searches are alike."""
    facts = found.problem.facts
    reduction = None if facts is None else facts.reduction
    if reduction is not None and found.problem.scheduler == "reduction":
        return "sums"
    return found.problem.scheduler


# ---- for the terminal


def print_found(found: Sequence[Found]) -> None:
    """Of each problem the times, in microseconds; then what they are in multiples of the best."""
    heads = " ".join(f"{who:>8}" for who in (*CHOSEN, "sample", "all", "copy"))
    print(f"{'problem':30} {'scheduler':22} {heads} | {'search s':>8} tried plain sampled   ran refused")
    for each in found:
        for trial in each.known:
            if trial.status in FAILED:
                print(f"  {trial.status.value}: {trial.detail[:150]!r} {trial.params}")
        own, of = times(each), sampled(each)
        cells = [own.get(who) for who in (*CHOSEN, "sample", "all")] + [copy_seconds(each)]
        shown = " ".join(f"{'-' if cell is None else f'{cell * 1e6:.2f}':>8}" for cell in cells)
        tried, plain = tried_of(each.tuned), tried_of(each.from_plain)
        print(
            f"{each.problem.name:30} {each.problem.scheduler:22} {shown} | {_seconds(each):>8} "
            f"{tried:5} {plain:5} {of['tried']:3}/{of['points']:3} {of['ran']:5} {of['refused']:7}"
        )
    for who, mark in RATIOS:
        known = ratios(found, who, mark)
        if known:
            print(f"{who:9} / {mark:8}{_of(known)}")
    print(_said_of_samples(found))
    print(_said_of_searches(found), flush=True)


def _of(known: Mapping[str, float]) -> str:
    worst = max(known, key=known.__getitem__)
    return f": geometric mean {mean(known.values()):.4f}, worst {known[worst]:.3f} ({worst}), of {len(known)}"


def _said_of_samples(found: Sequence[Found]) -> str:
    counts = [sampled(each) for each in found]
    total = {name: sum(count[name] for count in counts) for name in (counts[0] if counts else ())}
    complete = sum(count["untried"] == count["untried_by_model"] for count in counts)
    said = f"samples: {total}; of {complete} problems all was tried but what the model refuses"
    refused = [ratio for each in found if (ratio := _of_refused(each)) is not None]
    if not refused:
        return said
    least = f"{min(refused):.2f} of the best of all"
    return f"{said}; the best of what it refuses: {least}, of {len(refused)} problems"


def _of_refused(found: Found) -> float | None:
    """In multiples of the best time, that of the best point which the model refuses. None: none ran."""
    measured = found.measured
    times = [measured[params] for params in found.refused if params in measured]
    return min(times) / min(measured.values()) if times else None


def _said_of_searches(found: Sequence[Found]) -> str:
    seconds: dict[str, list[float]] = {}
    for each in found:
        if each.seconds is not None:
            seconds.setdefault(_kind(each), []).append(each.seconds)
    parts = [
        f"{kind} {min(own):.1f} to {max(own):.1f} s (mean {sum(own) / len(own):.1f}, {len(own)})"
        for kind, own in sorted(seconds.items())
    ]
    return f"searches took: {'; '.join(parts) or 'none'}"


# ---- as JSON


def as_dict(found: Sequence[Found]) -> dict[str, Any]:
    """All that the table says. Times are seconds."""
    return {
        "environment": {**environment(), "date": str(date.today())},
        "ratios": [
            {
                "of": who,
                "to": mark,
                "mean": mean(known.values()),
                "worst": max(known.values()),
                "worst_problem": max(known, key=known.__getitem__),
                "problems": len(known),
            }
            for who, mark in RATIOS
            if (known := ratios(found, who, mark))
        ],
        "problems": [
            {
                "name": each.problem.name,
                "scheduler": each.problem.scheduler,
                "times": times(each),
                "copy": copy_seconds(each),
                "search_seconds": each.seconds,
                "tried": tried_of(each.tuned),
                "tried_from_plain": tried_of(each.from_plain),
                "stop": "" if each.tuned is None else each.tuned.stop,
                "sample": sampled(each),
            }
            for each in found
        ],
    }


# ---- for the documentation


def print_for_documentation(found: Sequence[Found]) -> None:
    """The tables of docs/tuning.md, as markdown."""
    print("\nFor docs/tuning.md:\n")
    rows = []
    for title, who in (
        ("the formula's params", "formula"),
        (f"after {FIRST} configurations", AFTER_FIRST),
        (f"after {CONFIGURATIONS}", AFTER_ALL),
        (f"after {PLAIN_CONFIGURATIONS}, with plain params as the only seed", PLAIN),
        ("the policy of older tables", "policy"),
    ):
        sample, best = ratios(found, who, "sample"), ratios(found, who, "all")
        rows.append((title, len(best), _cell(sample), _cell(best)))
    print(markdown_table(("", "problems", "of the best of the sample", "of the best of all"), rows))
    print(f"\n{_said_of_searches(found)}\n{_said_of_samples(found)}\n")
    header = ("problem", "search s", "configurations", "formula us", "winner us", "copy us", "best of all us")
    shown = [each for each in found if each.tuned is not None][::SHOWN_EACH]
    print(markdown_table(header, [_row(each) for each in shown]), flush=True)


def _cell(known: Mapping[str, float]) -> str:
    return f"{mean(known.values()):.3f} ({max(known.values()):.2f})" if known else "-"


def _row(found: Found) -> list[str]:
    own = times(found)
    cells = [own.get("formula"), own.get(AFTER_ALL), copy_seconds(found), own.get("all")]
    shown = ["-" if cell is None else f"{cell * 1e6:.1f}" for cell in cells]
    return [found.problem.name, _seconds(found), str(tried_of(found.tuned)), *shown]
