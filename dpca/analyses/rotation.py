"""Rotation of the components of a derived pca: one sweep over its maps adds up moments, one turns them. No data are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.analyses.answers import COMPONENT, Answer, Array
from dpca.analyses.maps import COMPONENTS
from dpca.config.model import MOST_ROTATED
from dpca.errors import ConfigError
from dpca.numerics.certificate import caveats_of_rotation
from dpca.numerics.fourth_moments import FourthMoments, Loadings, added, n_sums
from dpca.numerics.rotation import OBLIQUE, Rotating, RotationResult, add_targets, promax
from dpca.slabs import Box, Cuts
from dpca.store.arrays import Dims, of_group
from dpca.store.outputs import ROTATED_COMPONENT, Outputs
from dpca.system.blas import blas_threads
from dpca.types import F64

PANEL = 4096


def n_rotated(answer: Answer, asked: Rotating) -> int:
    """How many leading components of a pca are rotated: those that were asked for, as far as they are not zero. It needs no maps."""
    variances = answer.arrays["explained_variance"].values
    if (asked.n_components or 0) > len(variances):
        raise ConfigError(
            f"{asked.n_components} components are to be rotated, but the analysis has {len(variances)}",
            f"Give a number from 1 to {len(variances)}, or leave it out for all.",
            key="n_components",
        )
    n_positive = int((variances > 0).sum())
    k = min(asked.n_components or n_positive, n_positive)
    if not k:
        raise ConfigError("all components are zero: there are none to rotate", "Select samples that differ.")
    if k > MOST_ROTATED:
        raise ConfigError(
            f"{k} components are to be rotated, whose k^4 / 24 fourth moments are too many: at most {MOST_ROTATED} can be",
            f"Set n_components of the rotation to {MOST_ROTATED} or less.",
            key="n_components",
        )
    return k


def rotation_of(answer: Answer, maps: Sequence[Any], asked: Rotating) -> tuple[RotationResult, dict[str, Any]]:
    """The rotation of the leading components of a pca, and what is certain of it.

    Parameters
    ----------
    maps : of each group of features, (components, ...): arrays in chunks

    Returns
    -------
    The rotation, with the signs of its scores; dict with keys
        kind, n_components, asked, iterations, last_change, converged, not_reliable : as in the certificate of a run
    """
    k = n_rotated(answer, asked)
    rotation, certificate = _found(asked, answer.arrays["explained_variance"].values[:k], maps)
    certificate["not_reliable"] = [n for n, good in enumerate(answer.certificate["reliable"][:k]) if not good]
    scores = answer.arrays["scores"].values[:, :k] @ rotation.to_scores()
    return rotation.signed(rotation.signs(scores.min(axis=0), scores.max(axis=0))), certificate


def arrays_of(answer: Answer, rotation: RotationResult, oblique: bool) -> dict[str, Array]:
    """Rotated scores and variances, the rotation matrix and, of oblique kinds, the correlation of rotated scores."""
    k, own = len(rotation.variances), answer.arrays
    share = float(own["explained_variance_ratio"].values[0] / own["explained_variance"].values[0])
    scores = own["scores"]
    variance = rotation.explained_variance
    found = {
        "rotated_scores": Array(scores.values[:, :k] @ rotation.to_scores(), (scores.dims[0], ROTATED_COMPONENT)),
        "rotated_explained_variance": Array(variance, (ROTATED_COMPONENT,)),
        "rotated_explained_variance_ratio": Array(variance * share, (ROTATED_COMPONENT,)),
        "rotation_matrix": Array(rotation.matrix, (COMPONENT, ROTATED_COMPONENT)),
    }
    if oblique:
        both = (ROTATED_COMPONENT, f"{ROTATED_COMPONENT}_b")
        found["factor_correlation"] = Array(rotation.factor_correlation, both)
    return found


def with_rotation(name: str, answer: Answer, dims: Sequence[Dims], asked: Rotating, outputs: Outputs) -> Answer:
    """The answer with its rotation; writes the rotated maps beside the maps, which are there.

    Parameters
    ----------
    name : of the analysis
    dims : names of the axes of each group of features
    """
    arrays = [outputs.array(of_group(f"{name}/{COMPONENTS}", one.group)) for one in dims]
    rotation, certificate = rotation_of(answer, arrays, asked)
    k = len(rotation.variances)
    for array, one in zip(arrays, dims, strict=True):
        written = of_group(f"{name}/rotated_{COMPONENTS}", one.group)
        chunks = (min(k, array.chunks[0]), *array.chunks[1:])
        outputs.create_array(written, (k, *array.shape[1:]), chunks, array.dtype, (ROTATED_COMPONENT, *one.features))
        with blas_threads(1):
            for box in boxes(array):
                rows: NDArray[Any] = np.asarray(array[(slice(0, k), *box)])
                turned = np.empty_like(rows)
                for start in range(0, rows[0].size, PANEL):
                    along = np.s_[:, start : start + PANEL]
                    turned.reshape(k, -1)[along] = rotation.to_components @ rows.reshape(k, -1)[along].astype(float)
                outputs.write_part(written, (slice(0, k), *box), turned)
    told = {**answer.certificate, "rotation": certificate}
    told["caveat"] = "; ".join(filter(None, [told["caveat"], *caveats_of_rotation(certificate)]))
    told["verdict"] += f", {k} rotated by {asked.kind}"
    beside = arrays_of(answer, rotation, asked.kind in OBLIQUE)
    return replace(answer, arrays={**answer.arrays, **beside}, certificate=told)


def without_maps(answer: Answer) -> Answer:
    """An answer that was to be rotated, but has no maps."""
    said = "its components are not rotated, since there are no maps of them (components: false)"
    caveat = "; ".join(filter(None, [answer.certificate["caveat"], said]))
    return replace(answer, certificate={**answer.certificate, "caveat": caveat})


def boxes(array: Any) -> Iterator[Box]:
    """The chunks of features of a stored map."""
    cuts = [Cuts.of(length, chunk) for length, chunk in zip(array.shape[1:], array.chunks[1:], strict=True)]
    return product(*(cut.within(slice(0, cut.length)) for cut in cuts))


def _found(asked: Rotating, variances: F64, maps: Sequence[Any]) -> tuple[RotationResult, dict[str, Any]]:
    """The rotation, by one sweep over the stored maps, or two for promax."""
    k = len(variances)
    loadings = asked.loadings(variances, sum(int(np.prod(one.shape[1:])) for one in maps))
    with blas_threads(1):
        sums = np.zeros(n_sums(k))
        for piece in _pieces(maps, loadings):
            added(sums, piece)
        moments = FourthMoments.of(sums, k)
        found = asked.turn(moments, variances)
        if found is None:
            raise ConfigError(
                f"{asked.kind}: a combination of the {k} components has the same value in all features: independent components are not defined",
                "Rotate fewer components, or use varimax.",
                key="kind",
            )
        rotation, turn = found
        if asked.kind == "promax":
            targets = np.zeros((k, k))
            for piece in _pieces(maps, loadings):
                add_targets(targets, piece, rotation.matrix, asked.power)
            rotation = replace(rotation, matrix=promax(moments, rotation.matrix, targets))
    certificate = {
        "kind": asked.kind,
        "n_components": k,
        "asked": asked.n_components,
        "iterations": turn.iterations,
        "last_change": float(turn.change),
        "converged": turn.converged,
    }
    return rotation.ordered, certificate


def _pieces(maps: Sequence[Any], loadings: Loadings) -> Iterator[F64]:
    """The loadings of all maps, a chunk of the features at a time."""
    k = len(loadings.scales)
    for one in maps:
        for box in boxes(one):
            rows: NDArray[Any] = np.asarray(one[(slice(0, k), *box)]).reshape(k, -1)
            for start in range(0, rows.shape[1], PANEL):
                yield loadings.of_maps(rows[:, start : start + PANEL])
