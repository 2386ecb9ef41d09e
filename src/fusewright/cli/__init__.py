"""The command line: `fusewright demo`, `info`, `ops`, `sweep`, `tune` and `codediff`.

What lives here: `main` (arguments), one file or folder a command (`demo`, with the fusions that it shows in
`fusions`; `info`; `ops`, with `survey`, what each operation takes; `sweep`; `tune`, with `tune_progress`;
`codediff`), `script_problems` (what a script executes, to be searched) and `outcomes` (what was found), and
`arguments` (checked numbers). It may import everything else.
"""
