"""Runs a whole launch: the entry of the package."""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.core.hardware import HardwareInfo
from fusewright.kernel import ir as k
from fusewright.sim.arguments import bind_arguments
from fusewright.sim.collectives import (
    run_barrier,
    run_block_reduce,
    run_cluster_reduce,
    run_grid_barrier,
    run_grid_reduce,
    run_grid_reduces,
)
from fusewright.sim.launch import Argument, Dim3, check_alignments, check_launch, launch_of, size_symbols
from fusewright.sim.machine import Handler, Machine, Program, SimOptions
from fusewright.sim.report import SimReport
from fusewright.sim.scans import run_block_scan, run_grid_scan
from fusewright.sim.statements import (
    run_alloc,
    run_bind,
    run_combine,
    run_compute,
    run_convert,
    run_copy,
    run_for,
    run_hold,
    run_if,
    run_init,
    run_issue_loads,
    run_let,
    run_let_misalignment,
    run_let_value,
    run_scatter,
    run_wait_for_copies,
    run_window,
)
from fusewright.sim.usage import usage_of
from fusewright.sim.waits import (
    run_arrive,
    run_bulk_copy,
    run_init_mbarriers,
    run_proxy_fence,
    run_role,
    run_roles,
    run_wait,
)

HANDLERS: dict[type[k.Stmt], Handler] = {
    k.Alloc: run_alloc,
    k.Let: run_let,
    k.LetValue: run_let_value,
    k.LetMisalignment: run_let_misalignment,
    k.For: run_for,
    k.If: run_if,
    k.Bind: run_bind,
    k.Copy: run_copy,
    k.Window: run_window,
    k.Convert: run_convert,
    k.Scatter: run_scatter,
    k.Compute: run_compute,
    k.Init: run_init,
    k.Combine: run_combine,
    k.BlockReduce: run_block_reduce,
    k.ClusterReduce: run_cluster_reduce,
    k.BlockScan: run_block_scan,
    k.GridReduce: run_grid_reduce,
    k.GridScan: run_grid_scan,
    k.GridReduces: run_grid_reduces,
    k.GridBarrier: run_grid_barrier,
    k.Barrier: run_barrier,
    k.Hold: run_hold,
    k.IssueLoads: run_issue_loads,
    k.InitMbarriers: run_init_mbarriers,
    k.BulkCopy: run_bulk_copy,
    k.Arrive: run_arrive,
    k.ProxyFence: run_proxy_fence,
    k.Wait: run_wait,
    k.WaitForCopies: run_wait_for_copies,
    k.Roles: run_roles,
    k.Role: run_role,
}

DEFAULT_OPTIONS = SimOptions()


def simulate(
    kernel: k.Kernel,
    args: Sequence[Argument],
    *,
    grid: Dim3 | None = None,
    block: Dim3 | None = None,
    shared_bytes: int | None = None,
    hardware: HardwareInfo | None = None,
    options: SimOptions = DEFAULT_OPTIONS,
) -> SimReport:
    """Executes `kernel` on the CPU and writes its outputs in place.

    Args:
        args: one for each of `kernel.params`. A buffer is a CPU tensor of the buffer's dtype whose `data_ptr`
            is element 0. The kernel addresses its storage linearly, up to the evaluated `Buffer.size` or the
            storage's end; sizes and strides determine which parts of it are its elements. Outputs and
            workspaces that overlap no other argument are first filled with NaN.
        grid, block, shared_bytes: the launch; by default, the kernel's own expressions determine it.
        hardware: the GPU whose limits apply to the launch, besides those that all GPUs share.

    Raises:
        OutOfBoundsError, UninitializedReadError, RaceError, UnwrittenOutputError: see there.
        DeadlockError: threads wait for an event that cannot happen; the message says who waits for what.
        SimulationError: anything else that is wrong on any GPU: misaligned vectors, a collective that only
            some threads reach, a launch beyond the limits, a size or pointer that the kernel was not made
            for.
    """
    launch = launch_of(kernel, args, grid=grid, block=block, shared_bytes=shared_bytes)
    check_launch(kernel, launch, hardware)
    report = SimReport(launch.blocks)
    if launch.blocks:
        check_alignments(kernel, args)
    usage = usage_of(kernel)
    arguments = bind_arguments(
        kernel,
        args,
        size_symbols(kernel, args),
        usage,
        races=options.races,
        uninitialized=options.uninitialized,
        outputs=options.outputs,
    )
    program = Program(kernel, usage, launch, arguments, options, report, HANDLERS)
    clusters = max(1, options.max_lanes // (launch.threads * kernel.cluster))
    chunk = max(1, launch.blocks) if usage.needs_whole_grid else clusters * kernel.cluster
    for first in range(0, launch.blocks, chunk):
        Machine(program, first, min(chunk, launch.blocks - first)).run(kernel.body)
    arguments.check_written(kernel)
    for param in kernel.params:
        if isinstance(param, k.WorkspaceParam) and param.zeroed:
            arguments.check_zero(param.buffer, "when the kernel ends")
    return report
