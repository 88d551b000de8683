"""Runs a stage: on threads, on Dask, in Slurm, as a job array; shows its progress.

The only room that knows about schedulers. It does not know what a stage computes.
"""
