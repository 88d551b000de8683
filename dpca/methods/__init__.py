"""The workflows: PCA, kernel PCA, projection of new samples, reconstruction. They define the stages and their order.

Commands and estimators share this implementation.
"""
