"""Search for better params: every legal point of a segment's space, or a sample of it, made and measured.

What lives here: `problem` (a kernel to find params for, as data), `journal` (what is known of its params, in
sqlite), `pool` (worker processes, any of which may hang or die), `worker` (what they do), `measure` (time on
the GPU), `sweep` (the loop), `report` and `plot` (what came out).

It may import everything from core to host. A front end makes problems of calls and, in a worker, calls of
problems (`worker.Load`). Start reading at `sweep.sweep`.
"""
