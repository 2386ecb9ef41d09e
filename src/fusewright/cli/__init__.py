"""The command line: `fusewright demo`, `fusewright info` and `fusewright ops`.

What lives here: `main` (arguments), `info` (what was found on this machine), `ops` (the table of operations)
and `survey` (what each of them takes), `demo` (the stages of two fusions, as data and printed), `fusions`
(their definitions) and `timing` (times on the GPU). It may import everything else.
"""
