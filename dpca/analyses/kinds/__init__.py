"""The kinds of analyses, one in a file: settings, computation, memory, and section of the report.

To add one, write its file, and its line here.
"""

from __future__ import annotations

from typing import get_args

from dpca.analyses.kind import Kind
from dpca.analyses.kinds.cca import Cca as Cca
from dpca.analyses.kinds.discriminant import Discriminant as Discriminant
from dpca.analyses.kinds.distances import Distances as Distances
from dpca.analyses.kinds.dmd import Dmd as Dmd
from dpca.analyses.kinds.extended import ExtendedEof as ExtendedEof
from dpca.analyses.kinds.heritability import Heritability as Heritability
from dpca.analyses.kinds.hilbert import HilbertEof as HilbertEof
from dpca.analyses.kinds.kernel_pca import KernelPca as KernelPca
from dpca.analyses.kinds.manova import Manova as Manova
from dpca.analyses.kinds.mca import Mca as Mca
from dpca.analyses.kinds.optimized_dmd import OptimizedDmd as OptimizedDmd
from dpca.analyses.kinds.pca import Pca as Pca
from dpca.analyses.kinds.pcoa import Pcoa as Pcoa
from dpca.analyses.kinds.permanova import Permanova as Permanova
from dpca.analyses.kinds.ridge import Ridge as Ridge
from dpca.analyses.kinds.similarity import Similarity as Similarity
from dpca.analyses.kinds.spod import Spod as Spod

AnyKind = (
    Pca
    | ExtendedEof
    | HilbertEof
    | Dmd
    | OptimizedDmd
    | Spod
    | KernelPca
    | Mca
    | Cca
    | Similarity
    | Distances
    | Pcoa
    | Permanova
    | Manova
    | Discriminant
    | Ridge
    | Heritability
)
"""An analysis, as YAML and `dpca.Gram` have it."""
KINDS: dict[str, type[Kind]] = {kind.called(): kind for kind in get_args(AnyKind)}
"""By the value of the key `kind`."""
