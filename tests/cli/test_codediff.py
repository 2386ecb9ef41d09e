"""`fusewright codediff` on small dump folders, and on the revisions of a small repository."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from fusewright.cli.codediff import measures, revisions
from fusewright.cli.codediff.dumped import DumpedKernel, read_folder
from fusewright.cli.codediff.measures import Code
from fusewright.cli.codediff.renaming import is_renamed
from fusewright.cli.main import main
from fusewright.core.dump_folder import INDEX, DumpFolder, KernelUse

LONG = 'extern "C" __global__ void {}(float* x, int n) {{\n  {}\n}}\n'
ROOT = Path(__file__).parents[2]
OPTIONS = {"arch": "sm_90a", "max_registers": None, "gone": True}
VOID_ELEMENTS = {"meta", "br", "hr"}


def kernel(scheduler: str, digest: str, body: str) -> tuple[str, str, str]:
    """(scheduler, name, text)"""
    name = f"fusewright_{scheduler}_{digest:0>8}"
    return scheduler, name, LONG.format(name, body)


ONE = "x[threadIdx.x] = 1.0f;"
SUM = "for (int i = 0; i < n; ++i) {\n    x[threadIdx.x] += x[i];\n  }"


def dump(
    path: Path,
    fusions: dict[str, list[tuple[str, str, str]]],
    block: int = 32,
    test: str = "",
    **options: object,
) -> None:
    """A folder with a fusion for each definition, whose kernels are its segments."""
    folder = DumpFolder(path)
    for definition, kernels in fusions.items():
        number = folder.add_fusion(definition)
        for segment, (scheduler, name, text) in enumerate(kernels):
            launch = {"grid": [1, 1, 1], "block": [block, 1, 1], "shared": 0}
            use = KernelUse(
                name, scheduler, number, 0, 0, segment, test, definition, {**OPTIONS, **options}, launch
            )
            folder.add_kernel(use, {"cuda": text.encode()})


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """(exit status, what was printed), with the folder's path left out."""

    def run(*arguments: str | Path) -> tuple[int, str]:
        capsys.readouterr()
        status = main(["codediff", *map(str, arguments)])
        printed = capsys.readouterr()
        return status, (printed.err if status == 2 else printed.out).replace(f"{tmp_path}/", "")

    return run


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Other names, a changed loop in two fusions, another name of a variable, a text that means the same, and
    one kernel in place of two.
    """
    old, new = tmp_path / "old", tmp_path / "new"
    dump(
        old,
        {
            "same": [kernel("pointwise", "1", ONE)],
            "first": [kernel("reduction", "2", SUM)],
            "second": [kernel("reduction", "2", SUM)],
            "renamed": [kernel("pointwise", "3", "float T1 = 2.0f; x[n] = T1;  // T1 = fd.ops.add(T0)")],
            "alike": [kernel("pointwise", "a", "x[n] = 2.0f;")],
            "split": [kernel("pointwise", "1", ONE), kernel("reduction", "2", SUM)],
        },
    )
    changed = "#pragma unroll 8\n  " + SUM
    dump(
        new,
        {
            "inserted": [kernel("transpose", "9", "x[n] = x[0];")],
            "first": [kernel("reduction", "5", changed)],
            "second": [kernel("inner_persistent", "6", changed)],
            "renamed": [kernel("pointwise", "7", "float T4 = 2.0f; x[n] = T4;")],
            "alike": [kernel("pointwise", "b", "x[n] = (2.0f);")],
            "split": [kernel("pointwise", "1", ONE)],
            "same": [kernel("pointwise", "4", ONE)],
        },
    )
    return old, new


def test_text(
    folders: tuple[Path, Path],
    run: Any,
    golden: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def compiled(dumped: DumpedKernel) -> Code:
        """What no version of the compiler changes."""
        text = dumped.text.replace("(2.0f)", "2.0f")
        return Code(len(text) // 8, 0, 16, text.count(" "), "PTX", text.encode())

    monkeypatch.setattr(measures, "_compiled", compiled)
    status, text = run(*folders)
    assert status == 1
    golden("cli/codediff", text)


def test_json(folders: tuple[Path, Path], run: Any) -> None:
    status, text = run(*folders, "--json")
    found = json.loads(text)
    assert status == 1
    counts = {"changed": 2, "text only": 1, "added": 1, "removed": 1, "renamed only": 1, "same": 2}
    assert found["counts"] == counts
    assert [pair["new"]["base"] for pair in found["renamed"]] == ["fusewright_pointwise_f3_c0_r0_g0"]
    assert "registers" not in found["renamed"][0]["old"]  # not compiled
    changed = found["groups"][0]
    assert [k["new"]["base"] for k in changed["kernels"]] == [
        "fusewright_reduction_f1_c0_r0_g0", "fusewright_inner_persistent_f2_c0_r0_g0"
    ]  # fmt: skip
    assert "+  #pragma unroll 8" in changed["diff"]
    assert changed["kernels"][1]["differences"] == ["scheduler: reduction -> inner_persistent", "text"]
    sides = changed["kernels"][0]
    # Which of them has more depends on the language: nvdisasm's, where it is on PATH, or PTX.
    assert 0 < sides["old"]["instructions"] != sides["new"]["instructions"] > 0
    assert sides["old"]["registers"] > 0 == sides["old"]["spilled"]


@pytest.mark.parametrize(
    "old, new, same",
    [
        (
            "float a = 1.0f; float b = 2.0f; *x = a - b;",
            "float T1 = 1.0f; float T2 = 2.0f; *x = T1 - T2;",
            True,
        ),
        ("float a = 1.0f; float b = 2.0f; *x = a - b;", "float b = 1.0f; float a = 2.0f; *x = b - a;", True),
        ("float a = 1.0f; // of T1\n *x = a;", "float a = 1.0f; *x = a; /* of T2 */", True),
        ("float a = 1.0f; float b = 2.0f; *x = a - b;", "float a = 1.0f; float b = 2.0f; *x = b - a;", False),
        ("float a = 1.0f; float b = 2.0f; *x = a - b;", "float a = 1.0f; float b = 2.0f; *x = a - a;", False),
        ("float a = threadIdx.x; *x = a;", "float a = blockIdx.x; *x = a;", False),
        ("float a = 2.0f * LOW; *x = a;", "float a = 2.0f * HIGH; *x = a;", False),
        ("int a = 1; *x = sinf(a);", "int a = 1; *x = cosf(a);", False),
        ("int a = 1; *x = a;", "short a = 1; *x = a;", False),
        ("P a = *x; *x = a.low;", "P a = *x; *x = a.high;", False),
        ('int a; asm("mov %0, 1;" : "=r"(a));', 'int b; asm("mov %0, 1;" : "=r"(b));', True),
        ('int a; asm("mov %0, 1;" : "=r"(a));', 'int a; asm("mov %0, 2;" : "=r"(a));', False),
    ],
)
def test_renamed(old: str, new: str, same: bool) -> None:
    """Names of variables may differ, those of anything else may not; other functions have their own."""
    helper = "__device__ float once(float b) {\n  return b;\n}\n"
    texts = [f"{helper}__global__ void k(float* x) {{\n  {body}\n}}\n" for body in (old, new)]
    assert is_renamed(*texts) is is_renamed(*reversed(texts)) is same


class _Balance(HTMLParser):
    """Which elements are open; everything that is not text of the page itself fails."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not {"src", "srcset"} & dict(attrs).keys() and tag not in ("link", "script")
        assert (dict(attrs).get("href") or "#").startswith("#")
        self.seen.append(tag)
        if tag not in VOID_ELEMENTS:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_page(folders: tuple[Path, Path], run: Any, tmp_path: Path) -> None:
    assert run(*folders, "--html", tmp_path / "page.html")[0] == 1
    page = _Balance()
    page.feed((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert page.open == [] and {"table", "details", "pre"} <= set(page.seen)
    assert "for (int i = 0; i < n; ++i) {" in page.text  # which HTML would take for a tag
    assert "fusewright_transpose_f0_c0_r0_g0" in page.text
    assert "2 kernels are the same" in page.text


def test_same_kernels_of_other_names(tmp_path: Path, run: Any) -> None:
    dump(tmp_path / "a", {"d": [kernel("pointwise", "1", ONE)], "e": [kernel("pointwise", "2", ONE)]})
    # Printed in another way, and met in another order.
    dump(tmp_path / "b", {"e'": [kernel("pointwise", "3", ONE)], "d": [kernel("pointwise", "4", ONE)]})
    status, text = run(tmp_path / "a", tmp_path / "b")
    assert (status, text) == (
        0,
        "a -> b\n2 kernels: 0 changed, 0 text only, 0 added, 0 removed, 0 renamed only, 2 same\n",
    )


@pytest.mark.parametrize(
    ("change", "difference"),
    [({"block": 64}, "launch: grid [1, 1, 1], block [32, 1, 1]"), ({"fma": False}, "fma: None -> False")],
)
def test_same_text_used_in_another_way(
    tmp_path: Path, run: Any, change: dict[str, Any], difference: str
) -> None:
    dump(tmp_path / "a", {"d": [kernel("pointwise", "1", ONE)]})
    dump(tmp_path / "b", {"d": [kernel("pointwise", "1", ONE)]}, **change)
    status, text = run(tmp_path / "a", tmp_path / "b")
    assert status == 1 and difference in text


def test_what_does_not_compile_is_compared_as_text(tmp_path: Path, run: Any) -> None:
    dump(tmp_path / "a", {"d": [kernel("pointwise", "1", ONE)]})
    dump(tmp_path / "b", {"d": [kernel("pointwise", "1", "y = 1;")]})
    status, text = run(tmp_path / "a", tmp_path / "b")
    assert status == 1
    assert "new: NVRTC" in text and "-> -" in text and "+  y = 1;" in text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "index.jsonl:2 is no line of an index"),
        ('{"format": 1}', "KeyError: 'kernel'"),
        ('{"format": 2}', "of another version of Fusewright"),
        ("[]", "index.jsonl:2 is no line of an index"),
    ],
)
def test_a_damaged_index_is_named(tmp_path: Path, run: Any, line: str, message: str) -> None:
    dump(tmp_path / "a", {"d": [kernel("pointwise", "1", ONE)]})
    with (tmp_path / "a" / INDEX).open("a") as index:
        index.write(line + "\n")
    status, error = run(tmp_path / "a", tmp_path / "a")
    assert status == 2 and message in error


def test_what_cannot_be_compared(
    tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch, folders: tuple[Path, Path]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "early" / "src" / "fusewright").mkdir(parents=True)
    for arguments, message in (
        (("nowhere", "old"), "nowhere: no such folder, and no such revision"),
        (("--", "-x", "old"), "-x: no such folder, and no such revision"),
        (("old", "empty"), "neither a dump folder nor a checkout"),
        (("early", "old"), "early cannot dump its kernels"),
        (("old", "new", "--html", "no/page.html"), "--html: no/page.html cannot be written"),
        (("old", "new", "--keep", "."), "--keep: old exists"),
    ):
        status, error = run(*arguments)
        assert status == 2 and message in error, error
    (tmp_path / "old" / "fusewright_pointwise_f0_c0_r0_g0.cu").unlink()
    status, error = run("old", "new")
    assert status == 2 and "f0_c0_r0_g0.cu cannot be read" in error


# ---- revisions ---------------------------------------------------------------------------------------------


def test_revisions_are_checked_out_and_removed(
    tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How tests run there is left out: they take seconds to start."""
    repository = tmp_path / "repository"

    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=n", "-c", "user.email=e@example.org")
        command = ["git", *identity, *arguments]
        return subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True).stdout

    repository.mkdir()
    git("init", "--quiet")
    for body in (ONE, SUM):
        (repository / "body").write_text(body)
        git("add", "body")
        git("commit", "--quiet", "-m", "a kernel")

    def recorded(checkout: Path, name: str, folder: Path, tests: object) -> revisions.Dump:
        body = (checkout / "body").read_text()
        dump(folder, {"d": [kernel("pointwise", "1", body)]}, test="tests/test_a.py::test")
        return revisions.Dump(folder, name, ("noted",))

    monkeypatch.setattr(revisions, "_recorded", recorded)
    monkeypatch.chdir(repository)
    status, text = run("HEAD~1", "HEAD", "--stat")
    assert status == 1
    assert "tests/test_a.py::test: fusewright_pointwise_f0_c0_r0_g0" in text
    assert f"HEAD ({git('rev-parse', 'HEAD')[:8]})" in text and "note: noted" in text
    assert len(git("worktree", "list").splitlines()) == 1
    assert run("HEAD", "HEAD")[0] == 0
    status, error = run("HEAD", "nowhere")
    assert status == 2 and "no such revision" in error


def test_tests_of_a_checkout_dump_their_kernels(run: Any, tmp_path: Path) -> None:
    test = "tests/bench/test_operations.py::test_operation_is_right[sim-add_mul-6x64]"
    dump(tmp_path / "new", {"d": [kernel("pointwise", "1", ONE)]}, test=test)
    status, text = run(ROOT, tmp_path / "new", "--tests", test, "--keep", tmp_path / "kept")
    assert status == 1 and "1 changed" in text
    [dumped] = read_folder(tmp_path / "kept" / "old")
    assert dumped.use.test == test and dumped.use.base == "fusewright_pointwise_f0_c0_r0_g0"
    assert "__global__" in dumped.text
