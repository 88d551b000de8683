"""Planning: slabs, spans, memory and time from a chunk grid and a budget.

Plans are plain values: no data are read, and nothing is run.
"""
