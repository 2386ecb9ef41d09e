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
    launch_overhead,
    sanitize,
    sizes,
    throughput,
    tuning,
    ways,
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Fusewright against torch.")
    what = parser.add_subparsers(dest="what", metavar="WHAT")
    throughput.add_arguments(
        what.add_parser(
            "operations", help="GPU time of fused operations beside torch eager, torch.compile and a copy"
        )
    )
    host.add_arguments(
        what.add_parser("host", help="host time of a repeated call, and where a first call's time goes")
    )
    accuracy.add_arguments(
        what.add_parser("accuracy", help="errors of every operation in ulp, beside torch's own")
    )
    code_size.add_arguments(
        what.add_parser("code-size", help="instructions per element of some operations; needs no GPU")
    )
    compile.add_arguments(
        what.add_parser("compile", help="kernels and Python's time for large graphs; needs no GPU")
    )
    fusions.add_arguments(
        what.add_parser("fusions", help="a catalogue of torch functions beside torch.compile, slowest first")
    )
    graphs.add_arguments(
        what.add_parser(
            "graphs", help="blocks of models, both passes, and optimizer steps beside torch.compile"
        )
    )
    cost.add_arguments(
        what.add_parser("cost", help="estimates of segments and the partition's decisions beside GPU times")
    )
    tuning.add_arguments(
        what.add_parser("tuning", help="how near searches for params come to the best of a sample")
    )
    compare.add_arguments(
        what.add_parser("compare", help="two JSON files of `operations` beside each other, by ratio")
    )
    sanitize.add_arguments(
        what.add_parser("sanitize", help="kernels of many schedules under compute-sanitizer")
    )
    sizes.add_arguments(
        what.add_parser("sizes", help="speed over row lengths and row counts, and where it falls off")
    )
    ways.add_arguments(what.add_parser("ways", help="times of the ways to write one computation"))
    what.add_parser("launch", help="host time of a bare kernel launch, by binding")
    parsed = parser.parse_args(arguments)
    if parsed.what == "launch":
        launch_overhead.main()
        return 0
    if parsed.what == "accuracy":
        return accuracy.run(parsed)
    if parsed.what == "code-size":
        return code_size.run(parsed)
    if parsed.what == "compare":
        return compare.run(parsed)
    if parsed.what == "compile":
        return compile.run(parsed)
    if parsed.what == "cost":
        return cost.run(parsed)
    if parsed.what == "fusions":
        return fusions.run(parsed)
    if parsed.what == "graphs":
        return graphs.run(parsed)
    if parsed.what == "host":
        return host.run(parsed)
    if parsed.what == "sanitize":
        return sanitize.run(parsed)
    if parsed.what == "operations":
        return throughput.run(parsed)
    if parsed.what == "tuning":
        return tuning.run(parsed)
    if parsed.what == "sizes":
        return sizes.run(parsed)
    if parsed.what == "ways":
        return ways.run(parsed)
    quick = throughput.run(parser.parse_args(["operations", "--quick"]))
    return host.run(parser.parse_args(["host"])) or quick


if __name__ == "__main__":
    sys.exit(main())
