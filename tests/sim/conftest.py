from __future__ import annotations

import pytest

from tests.sim.case import Case


@pytest.fixture
def case() -> Case:
    return Case()
