"""The machine and its disk: files that are whole or absent, one run at a time, signals, memory.

Knows nothing of data, results or schedulers.
"""
