"""The certificate: what was measured about the answer, in plain numbers and in one sentence.

Every figure is a measurement of this run, and none needs a read of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpca.errors import DataError, PrecisionError
from dpca.numerics.backproject import MeasuredFit
from dpca.numerics.block_krylov import BULK
from dpca.numerics.ladder import Rung
from dpca.numerics.spectrum import Spectrum
from dpca.numerics.uncertain import Uncertain, of_training
from dpca.settings import COMPUTE, MODEL, YAML, Surface
from dpca.types import F64

FORMAT_VERSION = 3
CONFIRMED = 1e-2
"""Relative residual on the data above which a component is wrong: rounding errors stay far below it."""
TRACE_LIMIT = 1e-3
MOSTLY = 2.0
"""A bound that is less than so many times the error of a product is one of precision."""
LEAST_KNOWN = 0.95
"""A bound from which on nothing is said of how far a value is known."""
WIDE = 10
"""With fewer columns beside the components, a block can prove little of the last of them."""
ROUNDED = 10.0
"""A value that can't be told from 0 is known to be no larger than so many times the error of products."""
SMALLEST_SQUARES = 1e-280
"""A sum of squares below this has lost digits to underflow."""


@dataclass(frozen=True)
class Certified:
    """Knowledge that block Krylov has of its answer."""

    bounds: F64
    """Largest relative error of each eigenvalue, but for `chance`, (n_components,); of one that is 0 relative to the largest."""
    residuals: F64
    """|K u - theta u| / theta of its Ritz vector, (n_components,): an eigenvalue is no further from theta."""
    products: F64
    """Errors of products, relative to the eigenvalue, (n_components,): parts of the bounds that no pass makes smaller."""
    upper: F64
    """Upper bound of each eigenvalue, (n_components,)."""
    further: F64
    """Ritz values beyond, descending."""
    more: F64
    """After how many passes more the bound would meet the tolerance, foreseen, (n_components,); infinite for more than a hundred."""
    later: F64
    """The bounds foreseen after as many passes again, (n_components,)."""
    tolerance: float
    passes: int
    max_passes: int
    block: int
    chance: float
    windows: bool
    restart: F64
    """Relative change of each value by passes with an independent block; empty without them."""
    restarts: bool = False
    """Whether an independent block was asked for."""
    noise: float = 0.0
    """The largest error of a product, relative to the largest eigenvalue."""

    def met(self, values: F64) -> NDArray[np.bool_]:
        """Which components are known as well as was asked for, (n_components,); or to be 0, as far as products can tell."""
        found: NDArray[np.bool_] = self.bounds <= np.where(
            values > 0, self.tolerance, self.tolerance + ROUNDED * self.noise
        )
        return found

    def separate(self, values: F64, index: int) -> bool:
        """Whether what is certain of an eigenvalue does not touch what is certain of its neighbours."""
        beyond = float(self.further[0]) if self.further.size else 0.0
        below = float(self.upper[index + 1]) if index + 1 < len(values) else max(beyond, 0.0)
        above = float(values[index - 1]) if index else np.inf
        return bool(values[index] > below and self.upper[index] < above)


def check_products(sums: F64, squares: F64, working_dtype: Any) -> float:
    """Relative difference between sums of squares from the products, such as trace(K), and those summed without them."""
    if not sums.size:
        return 0.0
    if not np.isfinite(squares).all() or (0 < squares.min() < SMALLEST_SQUARES):
        extreme = "large" if not np.isfinite(squares).all() else "small"
        raise DataError(
            f"the data hold values so {extreme} that the sum of their squares can't be held in float64",
            "Store the data in other units.",
            key="input.uri",
        )
    differences = np.abs(sums - squares)
    differences = np.divide(differences, squares, out=differences, where=squares > 0)
    worst = int(np.argmax(differences))
    if not differences[worst] <= TRACE_LIMIT:  # written so that NaN fails, too
        raise PrecisionError(
            f"products in {np.dtype(working_dtype)} lost the data: they sum to a total of {sums[worst]:.6g}, "
            f"where float64 without products gives {squares[worst]:.6g}"
            + (f", in feature {worst}" if sums.size > 1 else ""),
            f"{MODEL.precision.set_to('double')}, or store the data in other units.",
        )
    return float(differences[worst])


def confirmed(spectrum: Spectrum, measured: MeasuredFit) -> Spectrum:
    """This spectrum with an infinite error for every component that the second pass refutes."""
    refuted = measured.misfit > CONFIRMED * spectrum.singular_values
    errors, off = (np.where(refuted, np.inf, known) for known in (spectrum.errors, spectrum.known_off))
    return replace(spectrum, errors=errors, off=off)


def certify(
    spectrum: Spectrum,
    rung: Rung,
    *,
    exact: bool,
    trace_difference: float,
    measured: MeasuredFit | None = None,
    negative: F64 | None = None,
    effective_samples: float | None = None,
    iterated: Certified | None = None,
    weight: float | None = None,
    off: float = 0.0,
) -> dict[str, Any]:
    """The certificate of a decomposition.

    Parameters
    ----------
    spectrum : the solver's answer, with its errors
    rung, exact : solver and dtype of the products, and whether all of them were exact
    trace_difference : from `check_products`
    measured : from the second pass; None without one
    negative : negative eigenvalues of a matrix whose entries were divided pair by pair; else None
    effective_samples : number of independent samples, for sampling errors; the number of samples if None
    iterated : of block Krylov; None for other solvers
    weight : sum of the weights of samples; the number of samples if None
    off : of `Sketch`

    Returns
    -------
    dict with keys
        format_version : 3
        solver, precision : those that gave the answer
        exact_products : whether no product was rounded, as with small integers
        rank : number of eigenvalues that can be told from rounding, of those that were computed
        none_missed : how it is known that these are the largest ones: "all computed"; or "proved", where only the leading ones are, by
            a Cholesky factorization (`dpca.numerics.accumulators.krylov`); or "probable", under block_krylov
        largest_rank : upper bound of the rank, min(n - 1, d) for centred data
        refined : whether singular values are Ritz values of a second pass in double precision
        supported_ratio : smallest sigma_j / sigma_1 that has two digits, given the error of the last component
        rounded_before : how much any singular value may be off by rounding of fits that `regress_out` subtracted (`Sketch.off`)
        trace_check : relative difference of the eigenvalues' sum and the independently summed total variance; under block_krylov of the first
            products on random vectors, and the same in float64
        orthogonality : largest entry of |W'W - I| over components of nonzero sigma; null without components
        scores_orthogonality : the same for the scores, each divided by its singular value
        orthogonality_before : the same for the streamed side (components, or scores under covariance_eigh) before it
            was made orthonormal; null where that was not needed
        effective_samples : as given
        projection_error : value and error of the variance outside the span of all components
        noise_variance : of the mean of the eigenvalues that were left out
        log_likelihood : of the mean over the samples of the fit, under probabilistic PCA (`dpca.numerics.uncertain`)
            each a mapping of `value`, null where it, or the noise that it depends on, has less than two digits, and `error`,
            absolute, null without a bound
        pairwise : null, or, where entries of K were divided by the features that both samples have:
            dual : false: K is the Gram matrix of no X. Components are regressions of the data on its vectors; they are
                neither orthonormal nor measured, and scores are not projections on them
            negative_eigenvalues : how many are negative beyond rounding
            most_negative_ratio : magnitude of the most negative one, relative to the largest eigenvalue
        block_krylov : of this solver alone:
            passes, max_passes : reads of the data that multiplied, and the most that were allowed
            block : columns of a block
            tolerance : largest bound of a component that has converged
            chance : the chance that a bound fails, since the first block is random (`dpca.numerics.block_krylov.most`). Errors of
                products are in the bounds as the sketch estimates them, with its factor of safety
            converged : whether every component that is not zero has met the tolerance
            largest_beyond : the largest Ritz value that is not among the components, relative to that of the last one; null without any
            restart : largest relative change of a value by passes with an independent block; null without these; restart_asked
        components : for each
            met, bound, residual, separate, imprecise, bulk, more_passes, later_bound : of block_krylov only: whether it is known to the tolerance (or known
                to be 0, as far as products can tell); the largest relative error of lambda, certain but for `chance`; |K u - lambda u| / lambda, within which an eigenvalue lies for certain; whether these certain ranges of
                neighbours do not touch; whether errors of products keep it from the tolerance; whether it is hardly larger than what is around it, so that a dozen passes more would not do;
                how many more would, foreseen (null: more than a hundred); the bound foreseen after as many passes again
            index : position along `component`, from 0
            singular_value
            digits : correct decimal digits of the singular value, from its residual against the data on random
                vectors (`dpca.numerics.sketch`); after a second pass in double precision, from its Ritz value's residual
            residual_small : residual in the small matrix, relative to the largest (|K v - lambda v| / lambda_1)
            residual_data : |X_c w - sigma u| / sigma, or |X_c' u - sigma w| / sigma under covariance_eigh; null
                without components
            orthogonality : largest entry in its row of |W'W - I|; null without components
            gap : (lambda_j - lambda_{j+1}) / lambda_j
            sampling_error : sqrt(2 / effective_samples), relative to lambda_j
            distinct : whether both neighbours are further away than the sampling error; if not, the components may
                mix (North et al., Monthly Weather Review 110, 1982, eq. 24)
            reliable : whether it has two digits or more, and the data confirm it
        reliable_components : how many of them are reliable
        verdict : a summary in words
    """
    sigma, reliable, nonzero = spectrum.singular_values, spectrum.reliable, spectrum.singular_values > 0
    before = after = uncorrelated = None
    by_component: list[float | None] = [None] * sigma.size
    by_residual: list[float | None] = [None] * sigma.size
    if measured is not None:
        after = _deviation(measured.overlap, nonzero)
        before = None if measured.before is None else _deviation(measured.before, nonzero)
        uncorrelated = _deviation(measured.scores_overlap, nonzero)
        by_component = [float(row.max()) if kept else None for row, kept in zip(after, nonzero, strict=True)]
        by_residual = [float(m / s) if s > 0 else None for m, s in zip(measured.misfit, sigma, strict=True)]
    samples = effective_samples or spectrum.n_samples
    gaps, sampling = spectrum.gaps, float(np.sqrt(2 / samples))
    certificate = {
        "format_version": FORMAT_VERSION,
        "solver": rung.solver,
        "precision": "single" if rung.dtype == np.float32 else "double",
        "exact_products": exact,
        "rank": spectrum.rank,
        "largest_rank": spectrum.largest_rank,
        "none_missed": "probable" if iterated else "all computed" if spectrum.complete else "proved",
        "refined": measured is not None and measured.refined,
        "supported_ratio": spectrum.supported,
        "rounded_before": off,
        "trace_check": trace_difference,
        "orthogonality": None if after is None else float(after.max(initial=0.0)),
        "orthogonality_before": None if before is None else float(before.max(initial=0.0)),
        "scores_orthogonality": None if uncorrelated is None else float(uncorrelated.max(initial=0.0)),
        "effective_samples": samples,
        **({} if iterated is None else {"block_krylov": _iteration(iterated, sigma**2)}),
        **{name: one.as_json for name, one in _beyond(spectrum, weight or spectrum.n_samples).items()},
        "pairwise": None if negative is None else _pairwise(negative, spectrum),
        "components": [
            {
                "index": index,
                "singular_value": float(sigma[index]),
                "digits": float(np.floor(10 * spectrum.digits[index]) / 10),
                "residual_small": float(spectrum.residuals[index]),
                "residual_data": by_residual[index],
                "orthogonality": by_component[index],
                "gap": float(gaps[index]),
                "sampling_error": sampling,
                "distinct": bool(min(gaps[index], spectrum.gap_above(index)) > sampling),
                "reliable": bool(reliable[index]),
                **({} if iterated is None else _of_iteration(iterated, sigma**2, index)),
            }
            for index in range(sigma.size)
        ],
        "reliable_components": int(reliable.sum()),
    }
    return {**certificate, "verdict": _verdict(certificate)}


def _beyond(spectrum: Spectrum, weight: float) -> dict[str, Uncertain]:
    """Entries that follow from the variance beyond the components."""
    if not spectrum.n_components:
        return {}
    noise, divisor = spectrum.noise_variance, spectrum.divisor
    (*_, outside), (*_, error) = spectrum.outside
    beyond = Uncertain(float(outside) / divisor, float(error) / divisor)
    variances = spectrum.explained_variance
    if not spectrum.n_features:  # a kernel's have no number
        return {"projection_error": replace(beyond, value=beyond.shown)}
    likelihood = of_training(
        variances, spectrum.known_off / divisor, noise, spectrum.n_features, weight, divisor, beyond
    )
    shown = {"projection_error": beyond, "noise_variance": noise}
    return {name: replace(one, value=one.shown) for name, one in shown.items()} | {"log_likelihood": likelihood}


def _pairwise(negative: F64, spectrum: Spectrum) -> dict[str, Any]:
    """How far a matrix of pairs is from the Gram matrix of any X."""
    largest = float(spectrum.eigenvalues[0])
    beyond = negative[negative < -spectrum.n_samples * float(np.finfo(np.float64).eps) * largest]
    most = float(-beyond.min() / largest) if beyond.size and largest > 0 else 0.0
    return {"dual": False, "negative_eigenvalues": int(beyond.size), "most_negative_ratio": most}


def _iteration(found: Certified, values: F64) -> dict[str, Any]:
    """Entries of a certificate about the iteration."""
    kept = values[values > 0]
    beyond = float(found.further[0]) / float(kept[-1]) if found.further.size and kept.size else None
    return {
        "passes": found.passes,
        "max_passes": found.max_passes,
        "block": found.block,
        "tolerance": found.tolerance,
        "chance": found.chance,
        "windows": found.windows,
        "converged": bool(found.met(values).all()),
        "largest_beyond": beyond,
        "restart": float(found.restart.max()) if found.restart.size else None,
        "restart_asked": found.restarts,
    }


def _of_iteration(found: Certified, values: F64, index: int) -> dict[str, Any]:
    """Entries of a certificate about a component beside those of other solvers."""
    more = float(found.more[index])
    met = bool(found.met(values)[index])
    imprecise = not met and bool(found.bounds[index] <= MOSTLY * found.products[index] + found.tolerance)
    return {
        "met": met,
        "bound": _or_null(found.bounds[index]),
        "residual": _or_null(found.residuals[index]),
        "separate": found.separate(values, index),
        "imprecise": imprecise,
        "bulk": not met and not imprecise and more > BULK,
        "more_passes": 0 if met else int(more) if np.isfinite(more) else None,
        "later_bound": _or_null(found.bounds[index] if met else found.later[index]),
    }


def _or_null(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _deviation(overlap: F64, nonzero: NDArray[np.bool_]) -> F64:
    """|W'W - I|, with 0 in the rows and columns of components that are zero rows."""
    difference = np.abs(overlap - np.eye(len(overlap)))
    return np.where(np.outer(nonzero, nonzero), difference, 0.0)


def _verdict(certificate: dict[str, Any]) -> str:
    components = certificate["components"]
    total, good = len(components), certificate["reliable_components"]
    refined = ", refined in double" if certificate["refined"] and certificate["precision"] == "single" else ""
    words = [f"{good} of {total} components reliable ({certificate['solver']}, {certificate['precision']}{refined})"]
    residuals = [c["residual_data"] for c in components if c["reliable"] and c["residual_data"] is not None]
    if certificate["orthogonality"] is not None:
        words.append(f"orthogonal to {max(certificate['orthogonality'], certificate['scores_orthogonality']):.1e}")
    if residuals:
        words.append(f"largest residual {max(residuals):.1e}")
    iterated = certificate.get("block_krylov")
    checked = "total variance" if iterated is None else "products"
    words.append(f"{checked} checked to {certificate['trace_check']:.1e}")
    if certificate["none_missed"] == "proved":
        words.append("proved that no larger eigenvalue was missed")
    if iterated is not None:
        words[0] = (
            f"{sum(c['met'] for c in components)} of {total} components converged to {iterated['tolerance']:g}, {good} reliable, after {iterated['passes']} passes "
            f"({certificate['solver']}, {certificate['precision']}{refined})"
        )
    return ", ".join(words)


def caveats(certificate: dict[str, Any], surface: Surface = YAML) -> list[str]:
    """Warnings for the user: which components are not reliable, why, and what to do, in the words of a surface."""
    return [surface.words(sentence) for sentence in _caveats(certificate)]


def _caveats(certificate: dict[str, Any]) -> list[str]:
    components = certificate["components"]
    single = certificate["precision"] == "single" and not certificate["exact_products"]
    if certificate.get("block_krylov") is not None:
        return _caveats_of_iteration(certificate)
    squared = certificate["solver"] != "tsqr"
    remedy = "ask for fewer components"
    if "case" in certificate:  # of a kernel
        remedy = f"set {MODEL.precision.at('double')}, or leave it to auto" if single else remedy
    elif squared:
        # Where both are auto, the solvers that would follow this one did not fit the memory.
        more = MODEL.precision.at("double") if single else MODEL.svd_solver.at("tsqr")
        remedy = f"set {more}, or leave both to auto, with a larger {COMPUTE.memory} if it is so already"
    wrong = [c["index"] for c in components if (c["residual_data"] or 0.0) > CONFIRMED]
    weak = [c["index"] for c in components if not c["reliable"] and c["singular_value"] > 0 and c["index"] not in wrong]
    zero = [c["index"] for c in components if c["singular_value"] == 0]
    if components and len(zero) == len(components):
        return ["the samples do not differ from their mean: there are no components to find, and all are zero"]
    sentences = []
    if pairs := certificate.get("pairwise"):
        sentences.append(
            "entries of K are divided by the features that both samples have, so that K is the Gram matrix of no data: its "
            f"vectors are the result, and components are regressions on them ({pairs['negative_eigenvalues']} eigenvalues are "
            f"negative, down to {pairs['most_negative_ratio']:.1e} of the largest)"
        )
    if wrong:
        cause = (
            f"{certificate['solver']} in {certificate['precision']} precision lost {'it' if len(wrong) == 1 else 'them'}: {remedy}"
            if single or squared
            else "the two passes did not see the same data; run it again with --overwrite"
        )
        sentences.append(
            f"{_named(wrong, 'is', 'are')} not what the data give in a second pass (residual_data above {CONFIRMED:g}): {cause}"
        )
    if weak:
        fewest = min(c["digits"] for c in components if c["index"] in weak)
        sentences.append(
            f"{_named(weak, 'has a singular value that', 'have singular values that')} {certificate['solver']} in "
            f"{certificate['precision']} precision knows to less than two digits (the least {fewest:g}; two from "
            f"{certificate['supported_ratio']:.1e} of the largest on): {remedy}"
        )
    sentences += caveats_of_rotation(certificate.get("rotation"))
    if zero:
        lost = squared and zero[0] < certificate["largest_rank"] and "case" not in certificate
        sentences.append(
            f"{_named(zero)} can't be told from rounding (numerical rank {certificate['rank']}): their "
            "singular values and components are zero" + (f"; to see whether they really are, {remedy}" if lost else "")
        )
    return sentences


def not_converged(certificate: dict[str, Any]) -> str | None:
    """That block Krylov left components above its tolerance, in words; None where it did not, or another solver was used."""
    found = certificate.get("block_krylov")
    if found is None or found["converged"]:
        return None
    components = certificate["components"]
    unmet = sum(not c["met"] for c in components)
    return (
        f"{unmet} of {len(components)} components {'is' if unmet == 1 else 'are'} not known to {found['tolerance']:g} after {found['passes']} passes of at most "
        f"{found['max_passes']}"
    )


def _caveats_of_iteration(certificate: dict[str, Any]) -> list[str]:
    """Warnings of a result of block Krylov: what is not known to the tolerance, why, and what more passes would give."""
    found, components = certificate["block_krylov"], certificate["components"]
    zero = [c["index"] for c in components if c["singular_value"] == 0]
    if components and len(zero) == len(components):
        return ["the samples do not differ from their mean: there are no components to find, and all are zero"]
    sentences, tolerance = [], f"{found['tolerance']:g}"
    unmet = [c for c in components if c["singular_value"] > 0 and not c["met"]]
    wrong = [
        c
        for c in unmet
        if (c["residual_data"] or 0.0) > CONFIRMED and c["bound"] is not None and c["bound"] < CONFIRMED
    ]
    imprecise = [c for c in unmet if c["imprecise"] and c not in wrong]
    bulk = [c for c in unmet if c["bulk"]]
    slow = [c for c in unmet if not c["bulk"] and c not in wrong and c not in imprecise]

    def named(some: list[dict[str, Any]], one: str, many: str) -> str:
        return _named([c["index"] for c in some], one, many)

    def worst(some: list[dict[str, Any]], key: str) -> str:
        values = [c[key] for c in some]
        return "less than a digit" if None in values or max(values) >= LEAST_KNOWN else f"{max(values):.1g}"

    if wrong:
        sentences.append(
            f"{named(wrong, 'is', 'are')} not what the data give in a second pass (residual_data above {CONFIRMED:g}): run it again with "
            "--overwrite"
        )
    if imprecise:
        remedy = f"{MODEL.precision.at('double')}, or a larger" if certificate["precision"] == "single" else "a larger"
        sentences.append(
            f"{named(imprecise, 'is', 'are')} known to {worst(imprecise, 'bound')}, not to the tolerance of {tolerance}, since products in "
            f"{certificate['precision']} precision give no more: set {remedy} {MODEL.block_krylov.tolerance}"
        )
    if slow:
        more = max(c["more_passes"] or 0 for c in slow)
        sentences.append(
            f"{named(slow, 'is', 'are')} known to {worst(slow, 'bound')}, not to the tolerance of {tolerance}: about {more} {'pass' if more == 1 else 'passes'} more would "
            f"do, so set {MODEL.block_krylov.max_passes} to {found['passes'] + more + 1} and --resume"
        )
    if bulk:
        sentences.append(
            f"{named(bulk, 'lies', 'lie')} in the bulk, hardly larger than what is around: known to {worst(bulk, 'bound')} (residual "
            f"{worst(bulk, 'residual')}); twice as many passes would give {worst(bulk, 'later_bound')}; ask for fewer components"
            + (f", or set a larger {MODEL.block_krylov.block}" if found["block"] < len(components) + WIDE else "")
        )
    if found["restart_asked"] and found["restart"] is None:
        sentences.append(
            f"passes with an independent block ({MODEL.block_krylov.restart}) were asked for and not made: there was none left, or nothing more to find"
        )
    if found["restart"] is not None and found["restart"] > max(found["tolerance"], 1e-12):
        sentences.append(
            f"passes with an independent block changed a value by {found['restart']:.1g}: the first block had missed something, which is in now"
        )
    sentences += caveats_of_rotation(certificate.get("rotation"))
    if zero:
        sentences.append(
            f"{_named(zero)} can't be told from rounding (numerical rank {certificate['rank']}): their singular values and components are zero"
        )
    return sentences


def caveats_of_rotation(turned: dict[str, Any] | None) -> list[str]:
    """Warnings on a rotation, from what `dpca.methods.rotating.Rotator.rotate` says of it."""
    if turned is None:
        return []
    k, asked = turned["n_components"], turned["asked"]
    if not k:
        return [f"{turned['kind']} rotated nothing: all components are zero"]
    sentences, weak = [], turned["not_reliable"]
    if asked and k < asked:
        sentences.append(
            f"{turned['kind']} is of {k} of the {asked} components that were asked for: there are no more that are not zero"
        )
    if weak:
        listed = ", ".join(str(index + 1) for index in weak)
        sentences.append(
            f"{turned['kind']} mixes {'components' if len(weak) > 1 else 'component'} {listed}, which {'are' if len(weak) > 1 else 'is'} "
            f"not reliable, into all rotated components: rotate {weak[0]} or fewer (n_components of the rotation)"
            if weak[0]
            else f"{turned['kind']} is of components that are not reliable: {listed}"
        )
    if not turned["converged"]:
        sentences.append(
            f"{turned['kind']} had not converged after {turned['iterations']} iterations (the last changed the rotation by "
            f"{turned['last_change']:.1e}): it may have no one solution; rotate fewer components (n_components of the rotation)"
        )
    return sentences


def _named(indices: list[int], one: str = "", many: str = "") -> str:
    """Components in words, with a verb; they are counted from 1, as their coordinate is."""
    if len(indices) == 1:
        return f"component {indices[0] + 1} {one}".rstrip()
    return f"components {indices[0] + 1} to {indices[-1] + 1} {many}".rstrip()
