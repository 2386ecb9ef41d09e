"""The dump folder of each argument: the named folder, or a dump of the tests of a revision."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
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
# The name under which the recorder is importable there.
RECORDER = "fusewright_codediff_recorder"
# A revision without this module writes no dump folders.
WRITER = Path("src/fusewright/core/dump_folder.py")
# The tests of a revision run as if nothing ran around them.
_NOT_INHERITED = ("PYTEST_", "FUSEWRIGHT_TEST_SESSION", "FUSEWRIGHT_DUMP")
OUTCOME = "tests.json"
CHUNK_BYTES = 4096


@dataclass(frozen=True)
class Dump:
    """A folder of kernels. name: as the user wrote it, and the revision's id. notes: on how it was made."""

    path: Path
    name: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """What OLD or NEW means: one of a dump folder, a checkout, and the id of a commit."""

    argument: str
    dumped: Path | None = None
    checkout: Path | None = None
    commit: str = ""

    def dump(self, folder: Path, tests: Sequence[str]) -> Dump:
        """The kernels.

        Args:
            folder: where those of tests are dumped; it must not exist.
            tests: what runs in a checkout or revision, as arguments of pytest.

        Raises:
            DumpError: the tests cannot be run.
        """
        if self.dumped is not None:
            return Dump(self.dumped, self.argument)
        if self.checkout is not None:
            return _recorded(self.checkout, self.argument, folder, tests)
        with _worktree(self.commit) as checkout:
            return _recorded(checkout, f"{self.argument} ({self.commit[:8]})", folder, tests)


def source_of(argument: str) -> Source:
    """What the user means: a folder, or a revision of the repository that the working directory is in.

    Raises:
        DumpError: it is neither.
    """
    path = Path(argument)
    if is_dump_folder(path):
        return Source(argument, dumped=path)
    if not path.is_dir():
        return Source(argument, commit=_commit(argument))
    if (path / "src" / "fusewright").is_dir():
        return Source(argument, checkout=path.resolve())
    raise DumpError(
        f"{argument} is neither a dump folder nor a checkout of Fusewright",
        expected="a folder with index.jsonl, or with src/fusewright",
        given="a folder without",
        hint="FUSEWRIGHT_DUMP_DIR=FOLDER makes a program dump its kernels",
    )


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
    if not (checkout / WRITER).exists():
        raise DumpError(f"{name} cannot dump its kernels", expected=f"a revision with {WRITER}", given=name)
    present = [test for test in tests if (checkout / test.partition("::")[0]).exists()]
    if not present:
        raise DumpError(f"{name} has none of these tests", given=", ".join(tests))
    if importlib.util.find_spec("pytest") is None:
        raise DumpError("pytest is not installed, which runs the tests of a revision")
    print(f"codediff: running {' '.join(present)} of {name}", file=sys.stderr, flush=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="fusewright-codediff-") as plugins:
        shutil.copyfile(Path(__file__).with_name("recorder.py"), Path(plugins, f"{RECORDER}.py"))
        command = [sys.executable, "-m", "pytest", *_options(present), "-p", RECORDER, *present]
        status = _run(command, checkout, _environment(checkout, Path(plugins), folder))
    outcome = folder / OUTCOME
    if status > 1 or not outcome.exists() or not is_dump_folder(folder):
        problem = "pytest failed" if status > 1 else "no kernel was dumped"
        raise DumpError(f"{name}: {problem} (exit status {status}; its output is above)")
    return Dump(folder, name, _notes(name, outcome, set(tests) - set(present)))


def _run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> int:
    """The exit status. What it prints, which is its progress, goes to standard error as it comes."""
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
    ) as process:
        assert process.stdout is not None
        while chunk := process.stdout.read(CHUNK_BYTES):
            print(chunk.decode(errors="replace"), end="", file=sys.stderr, flush=True)
    return process.returncode


def _options(tests: Sequence[str]) -> list[str]:
    options = ["-q", "-rN", "--tb=no", "--no-header", "--target=sim", "-p", "no:cacheprovider"]
    if importlib.util.find_spec("xdist") is not None and not all("::" in test for test in tests):
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
