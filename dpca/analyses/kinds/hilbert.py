"""Complex principal components of the analytic signal."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from dpca.analyses.answers import Answer
from dpca.analyses.kind import Components, Context, most_of, number_of
from dpca.analyses.kinds.components import OfComponents, of_components
from dpca.analyses.samples import Samples
from dpca.config.schema import AUTO
from dpca.derived.hilbert import analytic, hilbert


class HilbertEof(OfComponents):
    """Complex components of the analytic signal."""

    title = "complex EOFs"
    matrices = 8
    crests = "Crests move to where the phase is larger: it tells how much later they come."

    kind: Literal["hilbert"]
    padding: Annotated[
        Literal["none", "exp"],
        Field(
            description="exp: before the transform, the time series is extended at both ends and decays to its trend, as in xeofs."
        ),
    ] = "none"
    decay: Annotated[float, Field(gt=0, description="Of the padding, in lengths of the record.")] = 0.2
    n_components: Components = AUTO

    def run(self, rows: Samples, context: Context) -> Answer:
        rows.axis.clock("the Hilbert transform")
        padding, decay = self.padding, self.decay
        words = f"the analytic signal (padding {padding})"
        found = hilbert(rows.products, rows.chain, number_of(self.n_components), padding, decay)
        signal = replace(rows, chain=analytic(rows.chain, padding, decay), told=(*rows.told, words))
        return of_components("hilbert", signal, found, signal.divisor())

    def columns(self, n: int) -> int:
        return 2 * most_of(self.n_components, n)

    @property
    def of_factor(self) -> int:
        return 10
