import numpy as np

from dpca.numerics.backproject import BackprojectionPartial
from dpca.numerics.sketch import random_columns
from tests.numerics.test_gram import panel


def test_components_and_what_is_measured_of_them_add_up_over_panels():
    rng = np.random.default_rng(0)
    x, alpha = rng.normal(size=(6, 50)), rng.normal(size=(6, 3))
    columns = random_columns(6, False)
    halves = [BackprojectionPartial.empty(6, 3, columns) for _ in range(2)]
    parts = [
        half.add(panel(block).matrix, alpha) for half, block in zip(halves, np.split(x, [20], axis=1), strict=True)
    ]
    components = np.concatenate(parts, axis=1)
    both = halves[0].merge(halves[1])
    np.testing.assert_allclose(components, alpha.T @ x)
    np.testing.assert_allclose(both.overlap, components @ components.T)
    np.testing.assert_allclose(both.projection, x @ components.T)
    np.testing.assert_allclose(both.checked, columns.T @ x @ components.T)
