"""A dump folder for each argument: the folder that it names, or what the tests of a revision dump."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fusewright.cli.codediff.dumped import is_dump_folder
from fusewright.core.errors import DumpError

# What runs in a revision unless the user names tests: every operation of the benchmark, and definitions of
# all kinds from end to end.
DEFAULT_TESTS = ("tests/bench/test_operations.py", "tests/integration", "tests/schedulers")
ALL_TESTS = ("tests",)
# More workers than this add start-up time: each imports torch.
MAX_WORKERS = 8
# The names under which the recorder, and what it adds to older revisions, are importable there.
RECORDER = "fusewright_codediff_recorder"
_HERE = Path(__file__).parent
_COPIED = {
    f"{RECORDER}.py": _HERE / "recorder.py",
    "dump_folder.py": _HERE.parents[1] / "core" / "dump_folder.py",
    "kernel_dumps.py": _HERE.parents[1] / "host" / "kernel_dumps.py",
}
# The tests of a revision run as if nothing ran around them.
_NOT_INHERITED = ("PYTEST_", "FUSEWRIGHT_TEST_SESSION", "FUSEWRIGHT_DUMP")
OUTCOME = "tests.json"


@dataclass(frozen=True)
class Dump:
    """A folder of kernels. name: as the user wrote it, and the revision's id. notes: on how it was made."""

    path: Path
    name: str
    notes: tuple[str, ...] = ()


def dump_of(argument: str, folder: Path, tests: Sequence[str]) -> Dump:
    """What the user means by OLD or NEW.

    Args:
        argument: a dump folder, a checkout of Fusewright, or a revision of the repository that the working
            directory is in.
        folder: where a revision's kernels are dumped; it must not exist.
        tests: what runs there, as arguments of pytest.

    Raises:
        DumpError: the argument is none of these, or its tests cannot be run.
    """
    path = Path(argument)
    if is_dump_folder(path):
        return Dump(path, argument)
    if path.is_dir():
        if (path / "src" / "fusewright").is_dir():
            return _recorded(path.resolve(), argument, folder, tests)
        raise DumpError(
            f"{argument} is neither a dump folder nor a checkout of Fusewright",
            expected="a folder with index.jsonl, or with src/fusewright",
            given="a folder without",
            hint="FUSEWRIGHT_DUMP_DIR=FOLDER makes a program dump its kernels",
        )
    commit = _commit(argument)
    with _worktree(commit) as checkout:
        return _recorded(checkout, f"{argument} ({commit[:8]})", folder, tests)


def _commit(revision: str) -> str:
    """The id of a revision."""
    found = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if found.returncode:
        where = "" if _git("rev-parse", "--git-dir").returncode == 0 else "; the working directory is in none"
        raise DumpError(
            f"{revision}: no such folder, and no such revision",
            expected=f"a dump folder, a checkout, or a revision of the repository{where}",
            given=revision,
        )
    return found.stdout.strip()


@contextmanager
def _worktree(commit: str) -> Iterator[Path]:
    """The files of a commit, in a worktree that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="fusewright-codediff-") as parent:
        path = Path(parent, "checkout")
        added = _git("worktree", "add", "--detach", "--quiet", str(path), commit)
        if added.returncode:
            raise DumpError(f"{commit[:8]} cannot be checked out: {added.stderr.strip()}")
        try:
            yield path
        finally:
            _git("worktree", "remove", "--force", str(path))


def _recorded(checkout: Path, name: str, folder: Path, tests: Sequence[str]) -> Dump:
    """Runs tests of a checkout without a GPU, and has them dump the text of each kernel."""
    present = [test for test in tests if (checkout / test.partition("::")[0]).exists()]
    if not present:
        raise DumpError(f"{name} has none of these tests", given=", ".join(tests))
    for module, package in (("pytest", "pytest"), ("torch", "torch")):
        if importlib.util.find_spec(module) is None:
            raise DumpError(f"{package} is not installed, which runs the tests of a revision")
    print(f"codediff: running {' '.join(present)} of {name}", file=sys.stderr, flush=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="fusewright-codediff-") as plugins:
        for file, source in _COPIED.items():
            shutil.copyfile(source, Path(plugins, file))
        command = [sys.executable, "-m", "pytest", *_options(len(present)), "-p", RECORDER, *present]
        # Progress goes where it disturbs no output; it is pytest's own.
        run = subprocess.run(
            command,
            cwd=checkout,
            env=_environment(checkout, Path(plugins), folder),
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            check=False,
        )
    outcome = folder / OUTCOME
    if run.returncode > 1 or not outcome.exists() or not is_dump_folder(folder):
        problem = "pytest failed" if run.returncode > 1 else "no kernel was dumped"
        raise DumpError(f"{name}: {problem} (exit status {run.returncode}; its output is above)")
    return Dump(folder, name, _notes(name, outcome, set(tests) - set(present)))


def _options(paths: int) -> list[str]:
    options = ["-q", "-rN", "--tb=no", "--no-header", "--target=sim", "-p", "no:cacheprovider"]
    if importlib.util.find_spec("xdist") is not None:
        # The tests of a file stay together: what they share is then compiled in the same one each time.
        options += ["-n", str(min(os.cpu_count() or 1, MAX_WORKERS)), "--dist", "loadfile"]
    return options


def _environment(checkout: Path, plugins: Path, folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
    paths = [str(checkout / "src"), str(plugins), *filter(None, kept.get("PYTHONPATH", "").split(os.pathsep))]
    return kept | {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONHASHSEED": "0",
        "CUDA_VISIBLE_DEVICES": "",
        "FUSEWRIGHT_DUMP_DIR": str(folder.resolve()),
        "FUSEWRIGHT_DUMP": "cuda",
    }


def _notes(name: str, outcome: Path, missing: set[str]) -> tuple[str, ...]:
    failed = json.loads(outcome.read_text(encoding="utf-8"))["failed"]
    notes = [f"{name} has no {test}" for test in sorted(missing)]
    if failed:
        notes.append(
            f"{name}: {len(failed)} tests failed, and what they compile later is missing: {failed[0]}"
            + (", ..." if len(failed) > 1 else "")
        )
    return tuple(notes)


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise DumpError("git is not on PATH, which checks revisions out") from None
