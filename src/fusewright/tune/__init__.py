"""Search for better params: points of a kernel's legal space, made and measured, and what is learned of them.

What lives here: `problem` and `facts` (a kernel to find params for, as data), `space` (its params),
`heuristic` and `heuristics` (who names params to begin with), `search` (what to try next), `tuner` (searches
of several problems), `sweep` (many points, whatever their results), `runner` (the loop of both), `pool`
(worker processes, any of which may hang or die), `worker` (what they do), `measure` (time on the GPU),
`model` (what is known before a kernel runs), `journal` (what is known of params, in sqlite), `table` (the
same as text), `policy` and `rules` (what calls without tuning use of it), `report` and `plot` (what came
out).

It may import everything from core to host. A front end makes problems of calls and, in a worker, calls of
problems (`worker.Load`). Start reading at `tuner.Tuner.tune`.
"""
