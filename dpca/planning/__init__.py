"""From a chunk grid and a budget to slabs, spans, memory and time.

Plain values: nothing is read, and nothing is run.
"""
