"""A finished run that is extended by samples: whether it can be, and what it knows of the samples that it had."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpca.config.inputs import Input
from dpca.config.schema import Config
from dpca.errors import DataError, DpcaError, InputError
from dpca.methods.record import changes_of, fields_of
from dpca.numerics.known import KnownGram
from dpca.settings import INPUT, MODEL, OUTPUT, PREPROCESS
from dpca.sources import Source
from dpca.sources.groups import FeatureGroup, Groups
from dpca.store.arrays import GROUP
from dpca.store.gram import FOLDS, MATRIX, keeps_gram, no_matrix, rung_of
from dpca.store.results import Result
from dpca.store.unfinished import differences
from dpca.types import F64

AGAIN = "Run on all files together instead."


@dataclass(frozen=True)
class Extension:
    """A result, and how samples are added to it."""

    result: Result
    repeats: bool = False
    """Whether new samples may have names or values of old ones."""

    @property
    def known(self) -> KnownGram:
        """The products of its samples; they are read when they are needed."""
        return KnownGram(self.result.n_samples, rung_of(self.result), self._rows, self.repeats)

    @property
    def asked(self) -> dict[str, Any]:
        """Settings that decide the bits of the extended result beside its config."""
        return {"run": self.result.run, "samples": self.result.n_samples}

    @property
    def record(self) -> dict[str, Any]:
        """For the manifest of the extended result."""
        return {"from": str(self.result.path), **self.asked}

    def _rows(self, group: int, rows: slice) -> F64:
        arrays, by_group = self.result.arrays, f"{MATRIX}_by_{GROUP}"
        if by_group not in arrays:
            return np.asarray(arrays[MATRIX][rows], np.float64)
        factors = (
            np.asarray(arrays["block_factor"][...], np.float64) if "block_factor" in arrays else np.ones(group + 1)
        )
        factor = float(factors[group])
        return np.asarray(arrays[by_group][group, rows], np.float64) / factor**2

    def check_config(self) -> None:
        """Refuse a result that samples can't be added to."""
        result = self.result
        config = result.manifest["config"]
        preprocess, rules = config["preprocess"], result.rules
        of_all = "which depends on all samples: the kept Gram matrix has that of the old ones"
        inputs = config["input"] if isinstance(config["input"], list) else [config["input"]]
        reasons = {
            MODEL.kind.at("kernel_pca"): config["model"]["kind"] != "pca" and "whose kernels are of its own samples",
            PREPROCESS.scale.at(rules.scale): rules.scale != "none" and of_all,
            PREPROCESS.missing.at(rules.missing): rules.missing in ("drop", "land", "pairwise") and of_all,
            str(PREPROCESS.filters): (rules.min_variance > 0 or rules.max_missing < 1) and of_all,
            f"{result.filled_values:,} missing values": result.filled_values > 0
            and "which were replaced by the means of the old samples",
            str(PREPROCESS.regress_out): preprocess["regress_out"] is not None
            and "whose fit is to the old samples, as are its coefficients",
            str(PREPROCESS.sample_weights): preprocess["sample_weights"] is not None
            and "and there are none of the new samples",
            str(MODEL.labels): config["model"]["labels"] is not None and "and there are none of the new samples",
            str(MODEL.effective_samples): config["model"]["effective_samples"] is not None
            and "a number for the old samples",
            "groups of features for validation": f"{MATRIX}_{FOLDS}" in result.arrays and "which are not extended",
            str(INPUT.samples): any(one.get("samples") is not None for one in inputs)
            and "a choice among the samples of the old files",
            str(INPUT.sample_names): any(one.get("sample_names") is not None for one in inputs)
            and "in a file that has none of the new samples",
        }
        for what, reason in reasons.items():
            if reason:
                raise InputError(f"{result.name}: ran with {what}, {reason}", AGAIN)
        if result.path is None or result.manifest.get("training") or not result.manifest["asked"]:
            raise InputError(f"{result.name}: is of values that a Python program held in memory", AGAIN)
        if not keeps_gram(result):
            kept = result.manifest["numerics"]["solver"] == "gram_eigh"
            why = f"{OUTPUT.gram} was false" if kept else "it kept features, not samples, since these are more"
            raise no_matrix(result, " of its samples", why, AGAIN)
        if MATRIX not in result.arrays:
            raise InputError(f"{result.name}: keeps R of tsqr, not the Gram matrix of its samples", AGAIN)

    def check_data(self, before: Config, after: Config) -> Groups:
        """The old and the new data together, after they were checked; reads coordinates, and no values.

        Parameters
        ----------
        before, after : the config of the result, and with the new files
        """
        axes = [one.samples_axis for one in self.result.each]
        pairs = list(zip(axes, self.result.groups, strict=True))
        found = tuple(FeatureGroup(self._old(one), *pair) for one, pair in zip(before.inputs, pairs, strict=True))
        changes = changes_of(self.result.manifest["fingerprint"], found)
        changes += differences(
            self.result.manifest["asked"].get("preprocess", {}).get("fields", {}), fields_of(before), "preprocess"
        )
        if changes:
            raise DataError(
                f"{found[0].layout.name}: changed since {self.result.name} was made of it: {'; '.join(changes[:5])}",
                f"Restore it. {AGAIN}",
            )
        together = tuple(FeatureGroup(one.open(), *pair) for one, pair in zip(after.inputs, pairs, strict=True))
        if not self.repeats:
            self._check_names(together[0])
        return together

    def _old(self, where: Input) -> Source:
        try:
            return where.open()
        except DpcaError as cause:
            raise DataError(
                f"{self.result.name}: its data are needed again, and can't be opened at {where.uri}: {cause.marked_message}",
                f"Put them back. {AGAIN}",
            ) from cause

    def _check_names(self, group: FeatureGroup) -> None:
        """Refuse a new sample with the name, number or time of an old one."""
        with group.source.open() as reader:
            coordinate = reader.coordinate(group.samples_axis)
            if coordinate is None:
                return
            values = [value for _, piece in coordinate.pieces() for value in piece.tolist()]
        n_old = self.result.n_samples
        places = {value: number for number, value in enumerate(values[:n_old])}
        for number, value in enumerate(values[n_old:]):
            if value in places:
                raise InputError(
                    f"{group.layout.name}: new sample {number} is {value!r} along {coordinate.name!r}, and so is sample "
                    f"{places[value]}, which is already in",
                    "Leave it out; or, if names may repeat, add --allow-repeats.",
                )
