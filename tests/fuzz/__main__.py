"""`./dev fuzz`: draws random programs and runs them in the simulator or on the GPU.

    ./dev fuzz --programs 30000 --seed 7 --journal fuzz.jsonl

Run again, it goes on where the journal ends. The exit status is 1 if there is a finding.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.campaign import JournalError, Settings, Summary, campaign
from tests.fuzz.flavours import draw
from tests.fuzz.programs import from_json, to_script
from tests.fuzz.running import run


def main() -> int:
    options = _parser().parse_args()
    device = "cuda" if options.target == "gpu" else "cpu"
    if options.show is not None:
        _show(options.seed, options.show, device)
        return 0
    settings = Settings(
        options.programs,
        options.seed,
        device,
        options.workers,
        options.minutes,
        options.shrink,
        options.journal,
    )
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fusewright-fuzz-") as cache:
        os.environ.setdefault("FUSEWRIGHT_CACHE_DIR", cache)
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        try:
            summary = campaign(settings)
        except JournalError as error:
            print(f"fuzz: {error}", file=sys.stderr)
            return 2
    _print(summary, settings, time.monotonic() - start)
    if options.json is not None:
        options.json.write_text(json.dumps(_as_json(summary), indent=1) + "\n", encoding="utf-8")
    if options.findings is not None:
        write_findings(summary, options.findings, options.seed, device)
    return 1 if summary.found else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./dev fuzz", description="Random programs against torch.")
    parser.add_argument("--programs", type=int, default=1000, help="how many (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="which (default 0)")
    parser.add_argument(
        "--target", choices=("sim", "gpu"), default="sim", help="where they run (default sim)"
    )
    parser.add_argument(
        "--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes (default: one a core)"
    )
    parser.add_argument("--minutes", type=float, help="stop after this time")
    parser.add_argument("--journal", type=Path, help="keep results there, and go on where it ends")
    parser.add_argument("--json", type=Path, help="write the summary there")
    parser.add_argument("--findings", type=Path, help="write the smallest program of each class there")
    parser.add_argument(
        "--shrink", type=float, default=20.0, help="seconds for making a finding smaller (default 20)"
    )
    parser.add_argument("--show", type=int, help="print this program as a script, and run it alone")
    return parser


def _show(seed: int, number: int, device: str) -> None:
    flavour, program = draw(seed, number)
    print(f"# program {number} of seed {seed}: {flavour}\n{to_script(program, device)}")
    outcome = run(program, device)
    print(f"# {outcome.executions} executions, {outcome.kernels} kernels")
    if outcome.finding is not None:
        print(f"# {outcome.finding.group}\n# " + outcome.finding.message.replace("\n", "\n# "))


def _print(summary: Summary, settings: Settings, seconds: float) -> None:
    print(
        f"{summary.programs:,} programs, {summary.executions:,} executions, {summary.kernels:,} kernels "
        f"on {settings.device}, seed {settings.seed}, {seconds:.0f} s"
    )
    refused = sum(summary.refused.values())
    print(f"{refused} refused rightly" + "".join(f"\n  {n} {why}" for why, n in summary.refused.items()))
    print(f"{summary.found} findings of {len(summary.findings)} classes")
    for group, record, count in summary.smallest():
        print(f"  {count:4} {group}")
        print(f"       ./dev fuzz --seed {settings.seed} --show {record['number']}")


def _as_json(summary: Summary) -> dict[str, object]:
    return {
        "programs": summary.programs,
        "executions": summary.executions,
        "kernels": summary.kernels,
        "refused": summary.refused,
        "flavours": summary.flavours,
        "findings": [
            {"class": group, "count": count, **record} for group, record, count in summary.smallest()
        ],
    }


def write_findings(summary: Summary, folder: Path, seed: int, device: str) -> None:
    """One script for each class of findings, the most frequent first."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, (group, record, count) in enumerate(summary.smallest()):
        title = re.sub(r"[^a-z0-9]+", "-", group.lower()).strip("-")[:60]
        message = record["finding"]["message"].strip().replace("\n", "\n# ")
        body = ""
        if record["finding"]["kind"] != "generator fault":
            is_kept = "program" in record
            program = from_json(record["program"]) if is_kept else draw(seed, record["number"])[1]
            body = to_script(program, device)
        (folder / f"{i:02}-{title}.py").write_text(
            f"# {group}\n# {count} of {summary.programs} programs; this one is a smaller form of number "
            f"{record['number']}, flavour {record['flavour']}\n#\n# {message}\n\n{body}",
            encoding="utf-8",
        )


if __name__ == "__main__":
    sys.exit(main())
