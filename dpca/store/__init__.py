"""What is on disk while a run goes on and when it has ended: the ledger, the arrays, the result.

Knows the shapes and names of arrays, and not how they are computed.
"""
