"""Definitions through pickle and copy: an equal definition, or an error that says what it has besides."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from fusewright import (
    DefinitionError,
    FusionDefinition,
    Options,
    Registry,
    clone,
    default_registry,
)
from fusewright.core.errors import ArgumentTypeError


def rows_sum(**given: Any) -> FusionDefinition:
    with FusionDefinition(**given) as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        fd.add_output(fd.ops.sum(x * 2.0, [1]))
    return fd


class _Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fd = rows_sum()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fd.execute([x * self.weight])[0]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda fd: pickle.loads(pickle.dumps(fd))])
def test_a_copy_is_the_same_definition(copied: Any) -> None:
    fd = rows_sum()
    fd.execute([torch.ones(4, 3)])
    other = copied(fd)
    assert other.id() == fd.id() and str(other) == str(fd)
    assert other.execute([torch.ones(4, 3)])[0].tolist() == [6.0] * 4


def test_a_module_that_holds_a_definition_is_copied() -> None:
    layer = _Layer()
    other = copy.deepcopy(layer)
    assert torch.equal(layer(torch.ones(2, 3)), other(torch.ones(2, 3)))


def test_another_process_has_it(tmp_path: Path) -> None:
    file = tmp_path / "definition"
    file.write_bytes(pickle.dumps(rows_sum()))
    script = (
        "import pickle, pathlib, sys, torch; fd = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes());"
        "print(fd.execute([torch.ones(4, 3)])[0].tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(file)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[6.0, 6.0, 6.0, 6.0]"


def test_options_of_its_own_go_along() -> None:
    options = Options.from_environment({"FUSEWRIGHT_DISABLE": "fma"})
    assert pickle.loads(pickle.dumps(rows_sum(options=options)))._given_options == options


def _scheduled() -> FusionDefinition:
    fd = rows_sum()
    fd.schedule = lambda: None  # type: ignore[method-assign]
    return fd


class _Subclass(FusionDefinition):
    def definition(self) -> None:
        self.add_output(self.define_tensor([-1]) + 1.0)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (FusionDefinition, "is not complete"),
        (_Subclass, "is a _Subclass"),
        (_scheduled, "is scheduled by hand"),
        (lambda: rows_sum(registry=Registry(default_registry())), "has a registry of its own"),
    ],
)
def test_what_is_more_than_its_records_is_refused(make: Any, why: str) -> None:
    with pytest.raises(DefinitionError, match=f"a definition that {why} cannot be pickled or copied"):
        pickle.dumps(make())


def test_handles_are_parts_of_definitions() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        with pytest.raises(DefinitionError, match="a Tensor is part of its definition"):
            copy.deepcopy([x])
        fd.add_output(x + 1.0)


def test_a_clone_is_the_same_definition_with_its_own_options() -> None:
    fd, options = rows_sum(), Options.from_environment().with_switches(disable="constant_sizes")
    other = FusionDefinition(options=options)
    clone(fd, other)
    assert other.id() == fd.id() and str(other) == str(fd) and other._options == options
    x = torch.randn(4, 3)
    assert torch.equal(other.execute([x])[0], fd.execute([x])[0])


def test_a_clone_needs_a_complete_definition_and_an_empty_one() -> None:
    fd = rows_sum()
    with pytest.raises(DefinitionError, match="dst_fd has a definition already"):
        clone(fd, rows_sum())
    with (
        FusionDefinition() as open_one,
        pytest.raises(DefinitionError, match="dst_fd has a definition already"),
    ):
        clone(fd, open_one)
    with pytest.raises(DefinitionError, match="Fusion does not exist"):
        clone(FusionDefinition(), FusionDefinition())
    with pytest.raises(ArgumentTypeError, match="src_fd: FusionDefinition"):
        clone(3, fd)  # type: ignore[arg-type]
