"""The views of an array that a configuration asks for, one over the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dpca.sources.base import SamplesAxis, Source
from dpca.sources.choice import Samples, chosen_samples
from dpca.sources.dated import dated
from dpca.sources.folded import FoldedSource
from dpca.sources.labels import Place
from dpca.sources.named import NamedSource, feature_axis
from dpca.sources.selected import SelectedSource
from dpca.sources.stacked import stacked


def viewed(
    source: Source,
    samples_axis: SamplesAxis,
    *,
    feature_shape: Sequence[int] | None = None,
    feature_names: Place | None = None,
    described: Callable[[Source], Source] | None = None,
    sample_names: Sequence[Place] | None = None,
    samples: Samples | None = None,
) -> Source:
    """A source with one axis of samples, with features in another shape, with names, and with some of its samples.

    Parameters
    ----------
    samples_axis : of the array, or several; of what is returned, too, where it is 0, -1, a name, or several
    feature_shape : of its one axis of features
    feature_names, sample_names : their places; those of samples may be in several files
    described : makes the source whose features a table describes; None for none
    samples : the ones to take (`dpca.sources.choice`)
    """
    source = stacked(source, samples_axis)
    if feature_shape is not None:
        source = FoldedSource(source, source.layout.axis_of(samples_axis), feature_shape)
    if feature_names is not None:
        axis = feature_axis(source.layout, source.layout.axis_of(samples_axis), feature_names.key)
        source = NamedSource(source, axis, [feature_names], "features")
    if described is not None:
        source = described(source)
    if sample_names is not None:
        source = NamedSource(source, source.layout.axis_of(samples_axis), sample_names, "samples")
    else:
        source = dated(source, source.layout.axis_of(samples_axis))
    if samples is not None:
        axis = source.layout.axis_of(samples_axis)
        source = SelectedSource(source, axis, chosen_samples(source, axis, samples))
    return source
