"""The driver wrapper, against a stub libcuda that prints what it is asked (so it runs without a GPU)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fusewright.core.errors import DriverError
from fusewright.cuda import driver
from fusewright.cuda.driver import ArgLayout, PackedArgs

STUB = Path(__file__).with_name("stub_driver.c")
PRELUDE = """
from fusewright.core.errors import DriverError
from fusewright.cuda.driver import ArgLayout, Launcher, Library, PackedArgs
kernel = Library(b"image").kernel("k", 0)
"""


@pytest.fixture(scope="session")
def stub_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs a C compiler to build the stub driver")
    directory = tmp_path_factory.mktemp("stub")
    library = directory / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(STUB)], check=True)
    return directory


def run(stub_directory: Path, script: str, **environment: str) -> list[str]:
    """Run a script on the stub driver; the lines it and the stub print."""
    env = {**os.environ, **environment, "LD_LIBRARY_PATH": str(stub_directory), "PYTHONUNBUFFERED": "1"}
    env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    # One stream of output in order: the stub prints through C, so both sides flush at exit only.
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + script], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_launch_passes_configuration_and_arguments(stub_directory: Path) -> None:
    script = """
arguments = PackedArgs(ArgLayout(("?", "P", "i", "d", "F", "16s")))
launcher = Launcher(kernel, (3, 2, 1), (128, 1, 1), 1024, arguments)
launcher(0x55, [True, 0x1000, -2, 1.5, 1 + 2j, bytes(range(16))])
launcher(0x55, [False, 0x2000, 3, 1.5, 0j, bytes(16)])
"""
    lines = run(stub_directory, script, STUB_SIZES="1,8,4,8,8,16")
    first, second = (line for line in lines if line.startswith("launch"))
    head, _, arguments = first.partition(" args ")
    assert head == "launch 0x30 grid 3 2 1 block 128 1 1 shared 1024 stream 0x55"
    assert arguments.split() == [
        "0:01",
        "0:0010000000000000",
        "0:feffffff",
        "0:000000000000f83f",
        "0:0000803f00000040",
        "0:000102030405060708090a0b0c0d0e0f",
    ]
    assert second.split(" args ")[1].split()[:3] == ["0:00", "0:0020000000000000", "0:03000000"]


def test_the_name_of_a_device_ends_where_it_ends(stub_directory: Path) -> None:
    script = "from fusewright.cuda import driver; print('name', repr(driver.device_name(0)))"
    assert "name 'NVIDIA Stub'" in run(stub_directory, script, STUB_QUIET="1")


def test_more_shared_memory_than_the_default_is_asked_for_once(stub_directory: Path) -> None:
    script = """
for shared in (47 * 1024, 48 * 1024, 100_000, 90_000):  # the stub's kernel has 1024 static bytes
    Launcher(kernel, (1, 1, 1), (32, 1, 1), shared, PackedArgs(ArgLayout(())))
"""
    lines = run(stub_directory, script)
    assert [line for line in lines if line.startswith("cuFunc")] == [
        "cuFuncSetAttribute 8 49152",
        "cuFuncSetAttribute 8 100000",
    ]


def test_cluster_and_cooperative_launches_carry_attributes(stub_directory: Path) -> None:
    script = """
arguments = PackedArgs(ArgLayout(("P",)))
Launcher(kernel, (32, 1, 1), (64, 1, 1), 0, arguments, cooperative=True, cluster=(16, 1, 1))(7, [9])
"""
    lines = run(stub_directory, script, STUB_SIZES="8")
    assert "cuFuncSetAttribute 14 1" in lines  # non-portable cluster size
    launch = "extended grid 32 block 64 stream 0x7 attribute 2 = 1 0 attribute 4 = 16 1 args"
    assert f"{launch} 0:0900000000000000" in lines


def test_the_driver_says_how_many_clusters_are_resident(stub_directory: Path) -> None:
    script = """
arguments = PackedArgs(ArgLayout(()))
launcher = Launcher(kernel, (32, 1, 1), (64, 1, 1), 0, arguments, cooperative=True, cluster=(4, 1, 1))
print("resident", launcher.resident_clusters())
"""
    assert "resident 31" in run(stub_directory, script, STUB_CLUSTERS="126")


def test_the_driver_is_asked_once_of_a_configuration(stub_directory: Path) -> None:
    """Each call with a new size has a launcher of its own, of another grid perhaps."""
    script = """
arguments = PackedArgs(ArgLayout(()))
for grid, shared, cluster in ((32, 0, 16), (64, 0, 16), (64, 512, 16), (64, 512, 4), (32, 512, 16)):
    each = Launcher(kernel, (grid, 1, 1), (64, 1, 1), shared, arguments, cluster=(cluster, 1, 1))
    print("resident", each.resident_clusters())
"""
    lines = run(stub_directory, script, STUB_CLUSTERS="126")
    found = [line for line in lines if line.startswith("resident")]
    assert found == [f"resident {n}" for n in (7, 7, 7, 31, 7)]
    assert sum(line.startswith("cuOccupancyMaxActiveClusters") for line in lines) == 3
    assert lines.count("cuFuncSetAttribute 14 1") == 1


def test_a_refused_launch_names_the_call_and_the_configuration(stub_directory: Path) -> None:
    script = """
try:
    Launcher(kernel, (1, 1, 1), (2048, 1, 1), 0, PackedArgs(ArgLayout(())))(0, [])
except DriverError as error:
    print(error)
"""
    (line,) = (line for line in run(stub_directory, script, STUB_FAIL="cuLaunchKernel:1") if "failed" in line)
    assert line.startswith("cuLaunchKernel failed with CUDA_ERROR_INVALID_VALUE: described (kernel k, grid ")
    assert "block (2048, 1, 1)" in line and "40 registers" in line


def test_a_thread_without_a_context_gets_the_primary_one(stub_directory: Path) -> None:
    script = "Launcher(kernel, (1, 1, 1), (32, 1, 1), 0, PackedArgs(ArgLayout(())))(0, [])"
    lines = run(stub_directory, script, STUB_FAIL="cuLaunchKernel:201")
    assert "cuCtxSetCurrent" in lines and any(line.startswith("launch") for line in lines)


def test_each_thread_has_its_own_arguments(stub_directory: Path) -> None:
    script = """
import threading
launcher = Launcher(kernel, (1, 1, 1), (32, 1, 1), 0, PackedArgs(ArgLayout(("q",))))
addresses = []
buffers = []  # keeps each alive, so that no address is used again
def call():
    launcher(0, [1])
    buffers.append(launcher._arguments._buffer)
    addresses.append(launcher._arguments.address)
threads = [threading.Thread(target=call) for _ in range(2)]
call()
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print("distinct", len(set(addresses)) == 3)
"""
    assert "distinct True" in run(stub_directory, script, STUB_QUIET="1")


def test_packed_arguments_reject_what_does_not_fit() -> None:
    import struct

    packed = PackedArgs(ArgLayout(("i", "P")))
    for values in ((2**31, 0), (1,), (1.5, 0)):
        with pytest.raises(struct.error):
            packed.store(*values)


def test_without_a_driver_the_error_says_so() -> None:
    if driver.is_available():
        pytest.skip("there is a driver")
    with pytest.raises(DriverError, match=r"cannot be loaded|cuInit"):
        driver.device_count()
