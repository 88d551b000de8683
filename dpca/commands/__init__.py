"""One file a command: what `dpca run`, `plan`, `transform`, `batch` and the others do.

They return values and raise typed errors; printing is the command line's.
"""
