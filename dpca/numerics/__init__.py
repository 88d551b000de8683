"""The arithmetic: preprocessing of a slab, the matrix, its spectrum, and the measured errors.

Depends on NumPy and SciPy only, not on storage or a scheduler. Sums are float64, and each formula names its source.
"""
