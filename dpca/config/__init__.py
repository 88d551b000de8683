"""The configuration: its schema, its loading with line numbers, and the requested model as plain values.

This package may import sources, to open an input, and the names of rules and kernels.
"""
