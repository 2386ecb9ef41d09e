"""Two processes that tune on one GPU write one journal: nothing is lost, and each uses what both found."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from fusewright.tune.journal import FAILED, Journal, Status

# Tunes two calls, of which the other process has one, too; counts what goes to the journal.
SCRIPT = """
import json, sys
from pathlib import Path

import torch
import fusewright
from fusewright import FusionDefinition
from fusewright.tune.journal import Journal
from fusewright.tune.tuner import Effort

journal, own = Path(sys.argv[1]), int(sys.argv[2])
written, add = [], Journal.add_trial


def counted(self, key, trial):
    add(self, key, trial)
    written.append(key)


Journal.add_trial = counted
with FusionDefinition() as fd:
    x = fd.define_tensor(shape=[-1, -1], contiguity=[True, True])
    fd.add_output(fd.ops.softmax(x, dim=1))
with fusewright.tuning(Effort(20, to_roofline=False), journal=journal) as session:
    for rows in (2048, own):
        x = torch.rand(rows, 1024, device="cuda")
        [y] = fd.execute([x])
        torch.testing.assert_close(y, torch.softmax(x, 1))
stops = [tuned.stop for tuned in session.results]
print(json.dumps({"written": written, "stops": stops}))
"""


@pytest.mark.gpu
def test_two_tuners_on_one_gpu_and_one_journal_lose_nothing(tmp_path):
    path = tmp_path / "j.sqlite"
    environment = {
        **os.environ,
        "FUSEWRIGHT_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    tuners = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(path), str(rows)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rows in (1000, 3000)
    ]
    said = [json.loads(tuner.communicate(timeout=200)[0].splitlines()[-1]) for tuner in tuners]
    assert [tuner.returncode for tuner in tuners] == [0, 0]
    with Journal(path, None) as journal:
        rows = journal._connection.execute("SELECT problem, COUNT(*) FROM trials GROUP BY problem").fetchall()
        problems = journal.problems()
        trials = [trial for problem in problems for trial in journal.trials(problem.key)]
        assert all(journal.race(problem.key) is not None for problem in problems)
    both = [key for each in said for key in each["written"]]
    assert len(problems) == 3 and dict(rows) == {key: both.count(key) for key in set(both)}
    assert all(len(each["stops"]) == 2 and all(each["stops"]) for each in said)
    assert not [trial for trial in trials if trial.status in FAILED]
    assert sum(trial.status is Status.MEASURED for trial in trials) >= 30
