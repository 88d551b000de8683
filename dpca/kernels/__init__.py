"""Kernels of a Gram matrix, their eigenproblem, and pre-images.

Functions of n x n matrices: no data are read here, and nothing depends on storage or a scheduler.
"""
