"""Runs a stage: on threads, on Dask, in Slurm, as a job array; shows how far it is.

The one room that knows a scheduler. It does not know what a stage computes.
"""
