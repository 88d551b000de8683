"""The commands `dpca run`, `plan`, `transform`, `batch` and the others, one file for each.

They return values and raise typed errors; only the command line prints.
"""
