"""The command line: `fusewright demo`, `info`, `ops`, `sweep`, `tune` and `codediff`.

What lives here: `main` (arguments), one file or folder per command (`demo`, with its fusions in `fusions`;
`info`; `ops`, with `survey`, which finds the types that each operation accepts; `sweep`; `tune`, with
`tune_progress`; `codediff`), `script_problems` (the kernels that a script executes, as problems) and
`outcomes` (the results), and `arguments` (checked numbers). It may import everything else.
"""
