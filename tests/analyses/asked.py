"""Analyses of rows as tests ask for them: with arrays, as a Python program does."""

from types import SimpleNamespace

import numpy as np

from dpca.analyses.kind import Context, Numbers
from dpca.analyses.kinds import Discriminant, Distances, Heritability, Manova, Pca, Pcoa, Permanova, Ridge


def answer(kind, rows, samples=None, **settings):
    """What an analysis of this kind finds of the rows."""
    return kind.of(**settings).run(rows, Context(rows if samples is None else samples))


def pca(rows, n_components=None):
    return answer(Pca, rows, n_components=n_components)


def distances(rows):
    return answer(Distances, rows)


def pcoa(rows, n_components=None):
    return answer(Pcoa, rows, n_components=n_components)


def permanova(rows, by, permutations=999, seed=0, strata=None):
    return answer(Permanova, rows, by=_labels(by), permutations=permutations, seed=int(seed), strata=_labels(strata))


def manova(rows, by, n_components):
    return answer(Manova, rows, by=_labels(by), n_components=n_components)


def discriminant(rows, by, n_components):
    return answer(Discriminant, rows, by=_labels(by), n_components=n_components)


def ridge(rows, target, alpha="auto", axis=None):
    """`axis` is that of all samples of the run, for predictions of those that a selection left out."""
    samples = None if axis is None else SimpleNamespace(axis=axis, n=axis.n if hasattr(axis, "n") else None)
    return answer(Ridge, rows, samples, target=Numbers(np.asarray(target)), alpha=alpha, left_out=axis is not None)


def heritability(rows, target, covariates=None):
    fixed = None if covariates is None else Numbers(np.asarray(covariates))
    return answer(Heritability, rows, target=Numbers(np.asarray(target)), covariates=fixed)


def _labels(by):
    return by if by is None or isinstance(by, str) else np.asarray(by)
