"""Analyses of a Gram matrix without the data: all that are linear along the samples.

With X = X_c + 1 m~', n samples by d features, a linear operator A along samples, (p, n), real or complex, turns K = X_c X_c' into the
products of the rows of A X: A K A^H where A 1 = 0, else A (X X') A^H. With A K A^H = U diag(lambda) U^H the scores are U diag(sqrt(lambda)), and
C = A^H U diag(1 / sqrt(lambda)), n x k, are the coefficients of the original samples in the components X' C: one pass over the data,
when it is wanted, makes the components of any number of analyses.

Pure functions of plain values: nothing is read or written here. `operators`, `groups`, `fits` and `filters` have A, `gram` applies it,
and `pca`, `extended`, `hilbert`, `dmd`, `optimized_dmd` and `spod` take what it gives.
"""
