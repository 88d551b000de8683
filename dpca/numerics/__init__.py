"""The arithmetic: one slab, one matrix, one spectrum, and how right they are.

NumPy and SciPy alone: it knows neither storage nor a scheduler. Sums are float64, and each formula names its source.
"""
