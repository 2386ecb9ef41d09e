"""A definition as hashable records, and the cache of definitions.

`records`, `states` (the fusion that they build), `recording` (follows a definition down the trie), `cache`
(the trie), `fusion_schedules` and `fusion_state` (the cached data of a definition), `printing` (as Python),
`origins` (where the user wrote the values that an error names). It imports nothing else of the front end.
"""
