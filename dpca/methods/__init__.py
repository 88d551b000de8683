"""Which stages there are, and in which order: PCA, kernel PCA, projection of new samples, reconstruction.

One implementation for commands and estimators.
"""
