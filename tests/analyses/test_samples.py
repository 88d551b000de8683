"""Samples of a result, known by their products."""

import gc
import weakref
from threading import Barrier, Thread

import numpy as np
import pytest

from dpca.analyses.answers import ProductAccuracy
from dpca.analyses.axis import Axis
from dpca.analyses.samples import Samples, Unread
from tests.analyses.asked import pca
from tests.derived.drawn import samples

N = 60
KNOWN = ProductAccuracy("results/sst", "gram_eigh", "double", 8 * 60 * 300)
AXIS = Axis("time", np.arange(N) * 30.5, {"units": "days since 2000-01-15", "calendar": "standard"})
LABELS = np.random.default_rng(0).integers(0, 3, N)


def test_products_are_read_once_also_by_threads():
    read, together = [], Barrier(4)

    def reading():
        read.append(1)
        return samples().products

    shared = Unread(N, reading)

    def ask():
        together.wait()
        _ = shared.products

    threads = [Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read) == 1


def test_rows_whose_mean_is_not_zero_are_centred():
    data = samples()
    rows = Samples.of(data.products, AXIS, KNOWN).anomalies(LABELS).rows(np.arange(20))
    assert rows.centred is not rows
    assert abs(pca(rows, 1).arrays["scores"].values.mean()) < 1e-9
    whole = Samples.of(data.products, AXIS, KNOWN).anomalies(LABELS).detrend()
    assert whole.centred is whole


@pytest.mark.parametrize("about_mean", [False, True])
def test_products_go_with_the_last_rows_that_use_them(about_mean):
    """In a cycle of references K and what was made of it would stay in memory until the collector comes."""
    gc.disable()
    try:
        rows = Samples.of(samples().products, AXIS, KNOWN).anomalies(LABELS)
        rows = rows.detrend() if about_mean else rows
        pca(rows, 1)
        products = weakref.ref(rows.products)
        del rows
        assert products() is None
    finally:
        gc.enable()
