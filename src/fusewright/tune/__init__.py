"""Search for better params: compiles and measures points of a kernel's legal space, and learns from the
results.

What lives here: `problem` and `facts` (a kernel to tune, as data), `space` (its params), `heuristic` and
`heuristics` (proposals of params), `search` (which params to try next), `tuner` (searches of several
problems), `sweep` (many points, whatever their results), `runner` (the loop of both), `pool` (worker
processes, which may hang or die), `worker` (the work that they do), `measure` (time on the GPU), `model`
(estimates before a kernel runs), `journal` (all results, in sqlite), `table` (results as text), `policy` and
`rules` (params for calls without tuning), `report` and `plot` (output for users).

It may import everything from core to host. A front end converts calls to problems and, in a worker, problems
to calls (`worker.Load`). Start reading at `tuner.Tuner.tune`.
"""
