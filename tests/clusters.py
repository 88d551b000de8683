"""Dask clusters on this machine, whose servers listen on loopback alone, at any port that is free."""

from distributed import LocalCluster


def local_cluster(directory, n_workers=2, *, processes=True, **how):
    """Workers of one thread each, in processes of their own, which are started again when they die."""
    return LocalCluster(
        n_workers=n_workers,
        threads_per_worker=1,
        processes=processes,
        host="127.0.0.1" if processes or "protocol" in how else None,
        dashboard_address="127.0.0.1:0",
        local_directory=str(directory),
        **how,
    )
