"""Kernel PCA of the rows (`dpca.kernels`), without maps, since its components lie in no space of features.

Eigenvalues that are negative beyond rounding are left out, and told.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from dpca.analyses.answers import COMPONENT, Answer, Array, row_axis
from dpca.analyses.kernels import inner_of
from dpca.analyses.kind import Context
from dpca.analyses.kinds.components import OfComponents
from dpca.analyses.samples import Samples
from dpca.errors import ConfigError
from dpca.kernels import cases
from dpca.kernels.sweep import Kernels


class KernelPca(OfComponents):
    """Kernel PCA of the rows."""

    title = "kernel PCA"
    matrices = 8
    has_maps = False

    kind: Literal["kernel_pca"]
    kernel: Annotated[
        Literal["linear", "poly", "rbf", "sigmoid", "cosine"], Field(description="As model.kernel of a run.")
    ] = "rbf"
    gamma: Annotated[
        Annotated[float, Field(ge=0)] | Literal["median"] | None,
        Field(
            description="For rbf, poly and sigmoid. null: 1 / number of features; median: 1 / (median of squared distances)."
        ),
    ] = None
    degree: Annotated[float, Field(description="For poly.")] = 3.0
    coef0: Annotated[float, Field(description="For poly and sigmoid.")] = 1.0
    n_components: Annotated[int | None, Field(ge=1, description="How many. null: all that can be told from 0.")] = None

    def run(self, rows: Samples, context: Context) -> Answer:
        n_components = self.n_components
        if n_components is not None and not 1 <= n_components < rows.n:
            raise ConfigError(
                f"n_components is {n_components}, but 1 to {rows.n - 1} is allowed for {rows.n} rows",
                key="n_components",
            )
        inner, axis = inner_of(rows), row_axis(rows.axis)
        asked = Kernels((self.kernel,), (self.gamma,), (float(self.degree),), (float(self.coef0),))
        (one,) = asked.cases(context.n_features, inner)
        matrix, noise = one.matrix(inner, rows.products.rounding)
        request = cases.Request(
            n_components, 1, remove_zero_eig=False, indefinite="truncate", of_samples=not rows.of_pairs
        )
        found = cases.solve(one, matrix, noise, request, rows.n - 1, lambda finish: finish())
        spectrum = found.spectrum
        per_component = {
            "eigenvalues": spectrum.eigenvalues[: spectrum.n_components],
            "singular_values": np.sqrt(spectrum.eigenvalues[: spectrum.n_components]),
            "explained_variance": spectrum.explained_variance,
            "explained_variance_ratio": spectrum.explained_variance_ratio,
            "digits": np.floor(10 * spectrum.digits) / 10,
        }
        arrays = {
            "scores": Array(spectrum.scaled, (axis.name, COMPONENT)),
            **{name: Array(values, (COMPONENT,)) for name, values in per_component.items()},
        }
        coordinates = {} if axis.values is None else {axis.name: axis}
        return Answer("kernel_pca", arrays, coordinates, None, certificate_of(rows, found))

    def vectors(self, n: int) -> int:
        return self.n_components or n


def certificate_of(rows: Samples, found: cases.Case) -> dict[str, Any]:
    """The certificate, with the kernel, its parameters, and caveats."""
    known, spectrum = rows.known, found.spectrum
    reliable, amplification = spectrum.reliable, rows.centred.transformed.amplification
    good, total = int(reliable.sum()), spectrum.n_components
    sentences = list(found.notes)
    if good < total:
        sentences.append(
            f"{total - good} of {total} components of kernel {found.kernel} have less than two digits, since its values have the errors "
            f"of {known.solver} in {known.precision} precision; {known.remedy}"
        )
    return {
        "kind": "kernel_pca",
        "kernel": found.kernel.name,
        **found.kernel.parameters,
        "samples": list(rows.told),
        "rows": rows.n,
        "solver": known.solver,
        "precision": known.precision,
        "amplification": amplification,
        "rank": spectrum.rank,
        "digits": (np.floor(10 * spectrum.digits) / 10).tolist(),
        "reliable": reliable.tolist(),
        "reliable_components": good,
        "components": total,
        "negative_eigenvalues": found.n_negative,
        "caveat": "; ".join(sentences),
        "maps": None,
        "verdict": f"{good} of {total} components of kernel {found.kernel} reliable ({known.solver}, {known.precision}), amplification "
        f"{amplification:,.3g}",
    }
