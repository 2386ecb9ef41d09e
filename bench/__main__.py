"""`python -m bench [WHAT]`: one measurement; without a name, the quick operations and the host's."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bench import (
    accuracy,
    code_size,
    compare,
    compile,
    cost,
    fusions,
    graphs,
    host,
    plans,
    sanitize,
    sizes,
    throughput,
    tuning,
    ways,
)

# Name, module with `add_arguments(parser)` and `run(parsed) -> exit status`, what it measures.
MEASUREMENTS = (
    ("operations", throughput, "GPU time of fused operations beside torch eager, torch.compile and a copy"),
    ("host", host, "host time of a repeated call, and where a first call's time goes"),
    ("accuracy", accuracy, "errors of every operation in ulp, beside torch's own"),
    ("code-size", code_size, "instructions per element of some operations; needs no GPU"),
    ("compile", compile, "kernels and Python's time for large graphs; needs no GPU"),
    ("fusions", fusions, "a catalogue of torch functions beside torch.compile, slowest first"),
    ("plans", plans, "kernels of fusions: faults, and what a change does to them; needs no GPU"),
    ("graphs", graphs, "blocks of models, both passes, and optimizer steps beside torch.compile"),
    ("cost", cost, "estimates of segments and the partition's decisions beside GPU times"),
    ("tuning", tuning, "how near searches for params come to the best of a sample"),
    ("compare", compare, "two JSON files of `operations` beside each other, by ratio"),
    ("sanitize", sanitize, "kernels of many schedules under compute-sanitizer"),
    ("sizes", sizes, "speed over row lengths and row counts, and where it falls off"),
    ("ways", ways, "times of the ways to write one computation"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Fusewright against torch.")
    what = parser.add_subparsers(metavar="WHAT")
    for name, module, measures in MEASUREMENTS:
        own = what.add_parser(name, help=measures)
        module.add_arguments(own)
        own.set_defaults(run=module.run)
    given = sys.argv[1:] if arguments is None else arguments
    status = 0
    for call in [given] if given else [["operations", "--quick"], ["host"]]:
        parsed = parser.parse_args(call)
        status = parsed.run(parsed) or status
    return status


if __name__ == "__main__":
    sys.exit(main())
