"""A definition as hashable records, and what is kept of it.

`records`, `states` (the fusion that they build), `recording` (follows a definition down the trie), `cache`
(the trie), `fusion_schedules` and `fusion_state` (what it keeps of each), `printing` (as Python), `origins`
(where the user wrote what an error names). It imports nothing else of the front end.
"""
