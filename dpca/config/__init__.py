"""What is asked for: the schema of a config, its loading with line numbers, and the model as plain values.

May know sources, to open an input, and the names of rules and kernels.
"""
