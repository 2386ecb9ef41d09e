"""What every test shares: targets, golden files, reproducible fuzzing and a kernel cache of its own.

Options:
    --target=sim|gpu|all    which targets the `target` fixture runs on (default all: those that are there)
    --thorough              all cases of what a run by default takes a fixed part of: tests marked `sampled`,
                            the cells of tests/matrix, mutants of kernels and the corpus of models
    --update-golden         rewrite the golden files, running only the tests that compare with one
    --replay                also paste every automatic schedule that a test prints, and compare the kernels
"""

from __future__ import annotations

import difflib
import gc
import logging
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
import torch

from fusewright.core.once import clear_shared_caches
from fusewright.cuda.printer import CudaSource, print_kernel
from fusewright.frontend.recorded.cache import FusionCache
from fusewright.kernel.ir import Kernel
from fusewright.runtime import compiled_kernel
from tests.compilation import BATCH, CompileCheck
from tests.readback.kernels import check_kernel
from tests.replays import ReplayCheck
from tests.sampling import sampled

GOLDEN_DIR = Path(__file__).parent / "golden"
CACHE_VARIABLE = "FUSEWRIGHT_CACHE_DIR"
# Names a directory that the workers of a session share.
SESSION_VARIABLE = "FUSEWRIGHT_TEST_SESSION"
# Of each so many printed kernels one is read back, and one compiled: with all of them, this took a seventh of
# the time.
CHECKED_EACH = 2
_session_variables_key = pytest.StashKey[list[str]]()

# No deadline: the first example of a test pays for NVRTC, and the machine's cores are shared.
_PATIENT = hypothesis.settings(
    deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], print_blob=True
)
# ci: the same examples on every run. fuzz: new ones each time, chosen by HYPOTHESIS_PROFILE=fuzz.
hypothesis.settings.register_profile("ci", _PATIENT, derandomize=True)
hypothesis.settings.register_profile("fuzz", _PATIENT)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fusewright")
    group.addoption("--update-golden", action="store_true", help="rewrite the golden files in tests/golden")
    group.addoption("--replay", action="store_true", help="paste every automatic schedule that a test makes")
    group.addoption(
        "--thorough", action="store_true", help="run all cases of tests that run a part of them by default"
    )
    group.addoption(
        "--target",
        choices=("sim", "gpu", "all"),
        default="all",
        help="where numerical tests run (default: all)",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--target") == "gpu" and not torch.cuda.is_available():
        raise pytest.UsageError("--target=gpu: torch sees no GPU here")
    # Every 700 objects, as by default, collections take a seventh of the time in which tests are collected.
    gc.set_threshold(200_000, 20, 50)
    if "PYTEST_XDIST_WORKER" in os.environ:
        torch.set_num_threads(1)  # the workers already fill the cores
        return
    # Set before any test module is imported; xdist's workers inherit it. Its cache is the session's own, so
    # that no test is served a kernel of an earlier one.
    directory = tempfile.mkdtemp(prefix="fusewright-tests-")
    added = {SESSION_VARIABLE: directory, CACHE_VARIABLE: os.path.join(directory, "cache")}
    config.stash[_session_variables_key] = [name for name in added if name not in os.environ]
    os.environ.update({name: added[name] for name in config.stash[_session_variables_key]})


def pytest_unconfigure(config: pytest.Config) -> None:
    added = config.stash.get(_session_variables_key, [])
    if SESSION_VARIABLE in added:
        shutil.rmtree(os.environ[SESSION_VARIABLE], ignore_errors=True)
    for name in added:
        del os.environ[name]


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is imported by now stays, and is millions of objects: the garbage collector need not look at them.

    With fewer collections besides (`pytest_configure`), the tests take a tenth less time.
    """
    gc.collect()
    gc.freeze()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" in metafunc.fixturenames:
        wanted = metafunc.config.getoption("--target")
        targets = ["sim"] if wanted != "gpu" else []
        if wanted != "sim" and torch.cuda.is_available():
            targets.append("cuda")
        metafunc.parametrize("target", targets, indirect=True)


@pytest.hookimpl(trylast=True)  # after -k and -m, so that a part of what they select runs
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        skip = pytest.mark.skip(reason="needs a GPU")
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(skip)
    if config.getoption("--update-golden"):
        golden = [item for item in items if "golden" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=[item for item in items if item not in golden])
        items[:] = golden
    elif not (config.getoption("--thorough") or torch.cuda.is_available()):
        left_out = set(items).difference(sampled(items))
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(autouse=True)
def same_random_numbers(request: pytest.FixtureRequest) -> None:
    """Each test draws the same inputs in every run and on every worker."""
    seed = zlib.crc32(request.node.nodeid.encode())
    torch.default_generator.manual_seed(seed)
    # `torch.manual_seed` also keeps the seed, and the stack, for each kind of device that is missing: 1 ms.
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)


@pytest.fixture(autouse=True)
def own_kernels() -> None:
    """No test is served what another one made in this process, nor has the collector go over it."""
    FusionCache.reset()
    clear_shared_caches()


@pytest.fixture(scope="session")
def compile_check(request: pytest.FixtureRequest) -> Iterator[CompileCheck]:
    """Collects every kernel that `KernelCompiler` prints in this session; compiles the last at its end.

    Some are read back at once, with `--thorough` all: their text must mean what the simulator runs.
    """
    each = 1 if request.config.getoption("--thorough") else CHECKED_EACH

    def claim(name: str) -> bool:
        """Whether no worker of this session has what is named so yet."""
        try:
            (Path(os.environ[SESSION_VARIABLE]) / name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    check = CompileCheck(claim, each)

    def printed(kernel: Kernel) -> CudaSource:
        source = print_kernel(kernel)
        check.add(source)
        if zlib.crc32(source.text.encode()) % each:
            return source
        try:
            check_kernel(kernel, source)
        except AssertionError as problem:
            check.misread = check.misread or problem
        return source

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_kernel, "print_kernel", printed)
        yield check
    check.compile()


@pytest.fixture(autouse=True)
def every_kernel_compiles(request: pytest.FixtureRequest, compile_check: CompileCheck) -> Iterator[None]:
    """Kernels of tests compile; checked many at a time, at the end of some test.

    Their text means what their IR says, which is checked at the end of the test that they come from.
    """
    compile_check.test = request.node.nodeid
    yield
    compile_check.raise_misread()
    compile_check.compile(least=BATCH)


@pytest.fixture(scope="session")
def replay_check(request: pytest.FixtureRequest) -> Iterator[ReplayCheck | None]:
    """What `--replay` asks for."""
    if not request.config.getoption("--replay"):
        yield None
        return
    check = ReplayCheck()
    with check.attached():
        yield check


@pytest.fixture(autouse=True)
def every_schedule_replays(replay_check: ReplayCheck | None) -> Iterator[None]:
    """With `--replay`: the printed schedules of a test's automatic kernels make these kernels."""
    yield
    if replay_check is not None:
        replay_check.raise_differing()


@pytest.fixture(autouse=True)
def no_internal_faults(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test in which a fault was logged and worked around, unless it is marked `faults`."""
    records: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    handler = Keep(logging.ERROR)
    logger = logging.getLogger("fusewright")
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)
    if records and request.node.get_closest_marker("faults") is None:
        pytest.fail("\n".join(record.getMessage() for record in records), pytrace=False)


@pytest.fixture
def thorough(request: pytest.FixtureRequest) -> bool:
    """Whether to run all cases: `--thorough`."""
    return bool(request.config.getoption("--thorough"))


@pytest.fixture
def target(request: pytest.FixtureRequest) -> torch.device:
    """The device of a numerical test's tensors: the CPU, where the simulator runs the kernels, or the GPU.

    A test that takes this fixture runs once on each; its body must not ask which one it is.
    """
    return torch.device("cpu" if request.param == "sim" else "cuda")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str | Path, str], None]:
    """`golden(name, text)`: `text` must equal the file tests/golden/<name>.txt, or the file of that path.

    `name` may hold slashes. A mismatch fails with a unified diff; `--update-golden` writes the file instead.
    """
    update = bool(request.config.getoption("--update-golden"))

    def compare(name: str | Path, text: str) -> None:
        path = name if isinstance(name, Path) else GOLDEN_DIR / f"{name}.txt"
        text = text.rstrip("\n") + "\n"
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"no golden file {name}.txt: write it with `./dev golden` and read it", pytrace=False)
        expected = path.read_text(encoding="utf-8")
        if text != expected:
            diff = difflib.unified_diff(
                expected.splitlines(), text.splitlines(), f"golden/{name}.txt", "this run", lineterm=""
            )
            hint = "if the change is intended: `./dev golden`, then review its diff"
            pytest.fail("\n".join([*diff, hint]), pytrace=False)

    return compare
