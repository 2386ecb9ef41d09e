"""A sample of random programs under the tools of compute-sanitizer, on a GPU.

    python -m tests.fuzz.sanitize --programs 170 --seed 5

Each tool runs the same programs, in several processes side by side. What a tool reports of kernels is
printed, and the status is 1 if one reported anything or a program failed. Errors that CUDA's functions
return are not reported: at its start, the driver asks for functions that it may lack. Fusewright checks its
own calls.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
# compute-sanitizer's own status where a tool reported something, told apart from the fuzzer's.
REPORTED = 86


@dataclass(frozen=True)
class Result:
    """What one process found: programs and kernels that ran, and what the tool or the fuzzer reported."""

    programs: int
    kernels: int
    report: str


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.sanitize", description=__doc__.split("\n")[0])
    parser.add_argument("--programs", type=int, default=170, help="how many, for each tool (default 170)")
    parser.add_argument("--seed", type=int, default=0, help="which (default 0)")
    parser.add_argument("--tools", default=",".join(TOOLS), help="default: all four")
    parser.add_argument("--processes", type=int, default=4, help="for each tool (default 4)")
    parser.add_argument("--minutes", type=float, default=5.0, help="stop after this time (default 5)")
    options = parser.parse_args(arguments)
    if shutil.which("compute-sanitizer") is None:
        parser.error("compute-sanitizer is not on the path; it comes with the CUDA toolkit")
    tools = options.tools.split(",")
    share = -(-options.programs // options.processes)
    jobs = [(tool, 1000 * options.seed + part) for tool in tools for part in range(options.processes)]
    with ThreadPoolExecutor(len(jobs)) as pool:
        results = list(pool.map(lambda job: run(*job, share, options.minutes), jobs))
    failed = False
    for tool in tools:
        own = [result for (name, _), result in zip(jobs, results) if name == tool]
        reports = [result.report for result in own if result.report]
        programs, kernels = sum(r.programs for r in own), sum(r.kernels for r in own)
        outcome = "REPORTED" if reports else "clean"
        print(f"{tool:10} {programs:5} programs {kernels:6} kernels: {outcome}")
        for report in reports:
            print(report)
        failed |= bool(reports) or not programs
    return int(failed)


def run(tool: str, seed: int, programs: int, minutes: float) -> Result:
    """`programs` programs of `seed` under one tool."""
    with tempfile.TemporaryDirectory() as folder:
        log, summary = Path(folder, "log"), Path(folder, "summary.json")
        command = ["compute-sanitizer", "--tool", tool, "--target-processes", "all", "--log-file", str(log)]
        if tool == "memcheck":  # no other tool has the option
            command += ["--report-api-errors", "no"]
        command += ["--error-exitcode", str(REPORTED), sys.executable, "-m", "tests.fuzz"]
        command += ["--programs", str(programs), "--seed", str(seed), "--target", "gpu", "--workers", "1"]
        command += ["--minutes", str(minutes), "--shrink", "0", "--json", str(summary)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        found = json.loads(summary.read_text()) if summary.exists() else {}
        said = log.read_text() if log.exists() else ""
        report = f"seed {seed}, status {done.returncode}\n{said[-3000:]}\n{done.stdout[-3000:]}"
        report = report if done.returncode else ""
        return Result(found.get("programs", 0), found.get("kernels", 0), report)


if __name__ == "__main__":
    sys.exit(main())
