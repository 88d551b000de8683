"""The kernels, a class each. A new one is a file here and its line in `KERNELS`."""

from __future__ import annotations

from dpca.kernels.kernel import Kernel
from dpca.kernels.kinds.affine import Poly, Sigmoid
from dpca.kernels.kinds.cosine import Cosine
from dpca.kernels.kinds.function import FunctionKernel
from dpca.kernels.kinds.linear import Linear, Precomputed
from dpca.kernels.kinds.rbf import Rbf

KERNELS: dict[str, type[Kernel]] = {kind.called: kind for kind in (Linear, Poly, Rbf, Sigmoid, Cosine, Precomputed)}
"""By name."""
USES = {name: kind.parameter_names() for name, kind in KERNELS.items()}
"""The parameters of each among gamma, degree and coef0."""


def kernel_of(name: str, *, about_mean: bool = False, **parameters: float) -> Kernel:
    """A kernel by its name, or a function by that, which a result does not hold; `parameters` are all those that it has."""
    kind = KERNELS.get(name)
    if kind is None:
        return FunctionKernel(name, about_mean=about_mean)
    return kind(about_mean=about_mean, **parameters)
