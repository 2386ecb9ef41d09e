"""What every other package builds on. Imports nothing else of fusewright.

What lives here: `errors` (what is raised, and by whose fault), `options` with `environment` (what the
environment decides), `dtype`, `op` (rows of operations), `enums`, `hardware` (described GPUs); `code` (C++
expressions as text); `declaration` and `serialization` (params from and to dicts); `passes`, `tracing` and
`dump_folder`; `once` (what is computed once), `recorded` (decisions that hold for all sizes that answer
alike), `forks`, `collector` and `call_sites`. Start reading at `errors` and `options`.
"""
