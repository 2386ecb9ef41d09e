"""`fusewright codediff OLD NEW`: how the kernels of two dump folders, or of two revisions, differ.

`revisions` turns each argument into a dump folder: a folder as it is, a revision or a checkout by running
tests there under `recorder`. `dumped` reads the folders, `matching` pairs kernels by their use, `measures`
compiles what changed, and `comparison` holds the result, which `text` and `page` print. Start reading at
`command`.
"""
