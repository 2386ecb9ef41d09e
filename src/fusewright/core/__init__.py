"""What every other package builds on: errors, options, data types, hardware descriptions, tracing.

Imports nothing else of fusewright. Start reading at `errors.py` (what is raised, and by whose fault) and
`options.py` (what the environment decides).
"""
