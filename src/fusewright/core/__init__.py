"""What every other package builds on. Imports nothing else of fusewright.

What lives here: `errors` (all exceptions), `options` with `environment` (environment variables), `dtype`,
`op` (rows of operations), `enums`, `hardware` (described GPUs); `code` (C++ expressions as text);
`declaration` and `serialization` (params from and to dicts); `passes`, `tracing` and `dump_folder`; `once`
(cached values and bounded caches), `recorded` (decisions recorded for reuse at other sizes), `forks`,
`collector` and `call_sites`. Start reading at `errors` and `options`.
"""
