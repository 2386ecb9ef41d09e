"""What type checkers accept and refuse of the examples of the docs and of planted mistakes.

mypy runs once over all of them, and pyright where it is installed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import fusewright
from fusewright import FusionDefinition
from fusewright.frontend.stubs import registered_text
from fusewright.ir import Fusion, TensorView
from fusewright.ops.build_elementwise import apply_to_tensor
from fusewright.ops.registry import ScalarLike
from tests.docs.test_docs import ROOT, python_blocks

# The pages of users. Those on Fusewright's insides take nodes apart that they know the kinds of.
PAGES = [
    "README.md",
    "docs/tutorial.md",
    "docs/whole-graphs.md",
    "docs/dumps.md",
    "docs/write-a-scheduler.md",
    *(page.relative_to(ROOT).as_posix() for page in sorted((ROOT / "docs" / "tutorials").glob("*.md"))),
]

PREAMBLE = """\
from typing import Any

import fusewright
import torch
from fusewright import DataType, FusionDefinition, ParallelType, Scalar, Tensor, Vector
"""

# What the interface takes and returns, where its forms are many.
ACCEPTED = """
def operations(fd: FusionDefinition, x: Tensor, s: Scalar, v: Vector) -> None:
    sums: list[Tensor] = [
        fd.ops.sum(x),
        fd.ops.sum(x, 1),
        fd.ops.sum(x, [0, 1], True),
        fd.ops.sum(x, dim=1, keepdim=True, dtype=torch.float32),
        fd.ops.sum(x, DataType.Float),
    ]
    scaled: Tensor = 2 * x + s * x - x**2 / fd.ops.add(1.5, x) @ x
    number: Scalar = 2 * s + fd.ops.mul(s, 3)
    chosen: Tensor = fd.ops.where(x > 0, x, 0.0)
    values, indices = fd.ops.topk(fd.ops.cast(-x, float), 4)
    size: Scalar = x.size(0) + v[0] + x.shape().at(-1)
    same: bool = x == scaled
    equal: Tensor = x == 2.0
    product: Tensor = fd.ops.grouped_mm(x, x, indices)
    expanded = fd.ops.broadcast_in_dim(x, shape=[2, size, number], broadcast_dims=[1])
    fd.add_output(fd.ops.reshape(values, v), x)
    fd.add_output(fd.ops.cat([chosen, equal, product, expanded, *sums]), stride_order=[1, 0])
    fd.add_output(x, [0, 1])


def inputs(fd: FusionDefinition, given: torch.Tensor) -> None:
    fd.define_tensor([-1, -1])
    fd.define_tensor(shape=[-1, 1], contiguity=[None, True], dtype=DataType.Half, stride_order=[0, 1])
    fd.define_tensor(given.shape, given.stride(), static_sizes=True)
    fd.define_tensor(sizes=[2, 3], strides=[3, 1], dtype=torch.float16)
    fd.define_scalar(), fd.define_scalar(DataType.Int), fd.define_scalar(None, dtype=DataType.Int)
    fd.define_scalar(2.0), fd.define_scalar(value=1, dtype=float)
    fd.define_vector(3), fd.define_vector(size=3), fd.define_vector([4, fd.define_scalar(dtype=int)])


def written(fd: FusionDefinition, x: Tensor) -> None:
    fd.sched.split(arg=x, dim=0, factor=4)
    x.reorder({0: -1})
    cached: Tensor = fd.sched.cache_after(x)
    fd.sched.transform_like(tensor=x, selected_tensors=[cached])
    fd.sched.parallelize_like(x, -1, selected_parallel_types={ParallelType.block_x})
    fd.sched.inline_most(selected_tensors=fd.sched.tensors())
    params = fd.sched.compute_reduction_heuristics()
    assert params.block_dim_inner_reduction is not ParallelType.mma
    params.vectorize_inner_reduction = params.lparams.bdimx == 32
    params.lparams = fusewright.LaunchParams(bdimx=64)
    fd.sched.schedule(params)
    rows = fd.sched.compute_heuristics(fusewright.SchedulerType.inner_persistent)
    rows.project_persistent_buffers = fd.sched.can_schedule(fd, "pointwise", [])[0]
    fd.sched.schedule(fd, "inner_persistent", rows)
    x.set_device_mesh(fusewright.DeviceMesh([0]))


class Scheduled(FusionDefinition):
    def definition(self) -> None:
        self.add_output(self.ops.relu(self.define_tensor([-1])))

    def schedule(self) -> None:
        self.sched.schedule(fusewright.SchedulerType.pointwise)


def assigned(fd: FusionDefinition) -> list[torch.Tensor]:
    fd.schedule = lambda: fd.sched.inline_most()
    return fd.execute([torch.ones(4)], device="cpu")
"""

# A wrong line, and what of it mypy's message names.
MISTAKES = [
    ("fd.ops.addd(x, x)", 'has no attribute "addd"'),
    ("x.exp()", '"Tensor" has no attribute "exp"'),
    ("fd.sched.splitt(x, 0, 4)", 'has no attribute "splitt"'),
    ("fd.define_tensor(shp=[4])", '"define_tensor"'),
    ("fd.define_tensr([4])", '"define_tensr"'),
    ("fd.define_scalar('1')", '"define_scalar"'),
    ("fd.ops.add(x)", '"add"'),
    ("fd.ops.add(x, '1')", '"add"'),
    ("fd.ops.sum(x, dims=0.5)", '"sum"'),
    ("fd.ops.sum(x, axis=0)", '"sum"'),
    ("fd.ops.cast(x, 'float')", '"cast"'),
    ("fd.ops.reshape(x, [x, 2])", '"Tensor"; expected "int | Scalar"'),
    ("fd.ops.cat(x)", '"cat" of "OperatorMethods" has incompatible type "Tensor"'),
    ("fd.ops.uniform(0.0, 1.0, [4], s)", 'Too many positional arguments for "uniform"'),
    ("fd.ops.where(x > 0.0, x)", '"where"'),
    ("mean, variance = fd.ops.sum(x)", '"Tensor" object is not iterable'),
    ("fd.ops.var_mean(x) + x", '"__add__" of "tuple"'),
    ("number: Scalar = fd.ops.add(x, s)", 'expression has type "Tensor", variable has type "Scalar"'),
    ("x[0]", '"Tensor" is not indexable'),
    ("float(x)", 'Argument 1 to "float" has incompatible type "Tensor"'),
    ("x @ 2.0", 'Unsupported operand types for @ ("Tensor" and "float")'),
    ("fd.add_output(s)", '"add_output"'),
    ("fd.sched.parallelize(x, 0, 'block_x')", '"parallelize"'),
    ("x.split(0, 4, inner=True)", 'Unexpected keyword argument "inner" for overloaded function "split"'),
    ("fd.sched.compute_pointwise_heuristics().vector_factor = 2", 'no attribute "vector_factor"'),
    ("fd.sched.compute_reduction_heuristics().lparams.bdimx = '64'", 'variable has type "int"'),
    ("fd.sched.compute_heuristics('transpose').tile_sise", 'no attribute "tile_sise"'),
    ("fd.execute([x], devise='cpu')", 'Unexpected keyword argument "devise" for "execute"'),
    ("fd.schedule = 3", 'variable has type "Callable[[], None]"'),
    ("fusewright.PointwiseParms", 'Module has no attribute "PointwiseParms"'),
    ("DataType.Flaot", 'has no attribute "Flaot"'),
]


def scaled(fusion: Fusion, arg: TensorView, scale: ScalarLike = 2.0) -> TensorView:
    """scale * arg."""
    return apply_to_tensor(fusion, "mul", scale, arg)


# A program with an operation of its own; the comments are needed, as mypy checks.
USE_OF_REGISTERED = """

def use(fd: Definition) -> None:
    x = fd.define_tensor([-1])
    fd.add_output(fd.ops.exp(fd.ops.scaled(x, scale=3.0)))
    fd.ops.scaledd(x)  # type: ignore[attr-defined]
    fd.ops.scaled("x")  # type: ignore[arg-type]
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of programs: what is accepted, what is not, and the pages."""
    folder = tmp_path_factory.mktemp("types")
    (folder / "accepted.py").write_text(PREAMBLE + ACCEPTED)
    with fusewright.registered_op(scaled):
        (folder / "registered.py").write_text(registered_text() + USE_OF_REGISTERED)
    heads = (f"def m{i}(fd: FusionDefinition, x: Tensor, s: Scalar) -> None:" for i in range(len(MISTAKES)))
    wrong = "".join(f"{head} {code}\n" for head, (code, _) in zip(heads, MISTAKES))
    (folder / "mistakes.py").write_text(PREAMBLE + wrong)
    for page in PAGES:
        lines: list[str] = []
        for block in python_blocks((ROOT / page).read_text(encoding="utf-8")):
            lines += [""] * (block.line - 1 - len(lines)) + block.text.splitlines()
        (folder / f"{re.sub(r'[^a-z]', '_', page.lower())}.py").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def messages(programs: Path) -> dict[str, dict[int, str]]:
    """What mypy says of each file, by line.

    One run for all tests, with the settings and the cache of the project's own, so that it is short.
    """
    pytest.importorskip("mypy")
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", str(programs)],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": ""},
        capture_output=True,
        text=True,
    )
    assert result.returncode in (0, 1), result.stderr + result.stdout
    found: dict[str, dict[int, str]] = {path.name: {} for path in programs.glob("*.py")}
    for line in result.stdout.splitlines():
        matched = re.fullmatch(r"(.*\.py):(\d+): error: (.*)", line)
        if matched is not None:
            found[Path(matched[1]).name].setdefault(int(matched[2]), matched[3])
    return found


def test_examples_and_all_forms_are_accepted(messages: dict[str, dict[int, str]]) -> None:
    assert {name: said for name, said in messages.items() if said and name != "mistakes.py"} == {}
    assert len(messages) == len(PAGES) + 3


def test_what_is_accepted_runs() -> None:
    names: dict[str, Any] = {"__name__": "accepted"}
    exec(PREAMBLE + ACCEPTED, names)
    given = torch.ones(2, 3)
    with FusionDefinition() as fd:
        names["inputs"](fd, given)
        x, y = (fd.define_tensor([-1, -1], dtype=given.dtype) for _ in range(2))
        fd.add_output(x * y)
    assert len(fd.fusion_ir().split("Outputs")[0].splitlines()) > 12
    assert torch.equal(names["Scheduled"]().execute([given[0] - 2])[0], torch.zeros(3))


def test_mistakes_are_refused(messages: dict[str, dict[int, str]]) -> None:
    first = PREAMBLE.count("\n") + 1
    said = [messages["mistakes.py"].get(first + i, "nothing") for i in range(len(MISTAKES))]
    missed = [(code, message) for (code, text), message in zip(MISTAKES, said) if text not in message]
    assert missed == []


def test_pyright(programs: Path) -> None:
    """The checker of many editors, which reads the same declarations in another way."""
    pytest.importorskip("pyright")
    config = {
        "extraPaths": [str(ROOT / "src")],
        "reportPrivateImportUsage": False,  # of torch, in a page
        "enableTypeIgnoreComments": True,  # what mypy refuses in registered.py
    }
    (programs / "pyrightconfig.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    result = subprocess.run([*command, "-p", str(programs)], capture_output=True, text=True)
    assert result.returncode in (0, 1), result.stderr + result.stdout
    found = [d for d in json.loads(result.stdout)["generalDiagnostics"] if d["severity"] == "error"]
    places = [(Path(d["file"]).name, d["range"]["start"]["line"] - PREAMBLE.count("\n")) for d in found]
    assert [d for d, (name, _) in zip(found, places) if name != "mistakes.py"] == []
    refused = {line for _, line in places}
    assert [code for i, (code, _) in enumerate(MISTAKES) if i not in refused] == []
