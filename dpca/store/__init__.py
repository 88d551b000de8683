"""The files of a run, while it works and after it has ended: the ledger, the arrays, the result.

This package knows the shapes and names of arrays, and not how they are computed.
"""
