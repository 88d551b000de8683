"""The machine and its disk: files that are whole or absent, locks, signals, memory.

This package knows nothing of data, results or schedulers.
"""
