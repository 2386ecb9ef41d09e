"""The command line: `fusewright demo` and `fusewright info`.

What lives here: `main` (arguments), `info` (what was found on this machine), `demo` (the stages of two
fusions, as data and printed), `fusions` (their definitions) and `timing` (times on the GPU). It may import
everything else.
"""
