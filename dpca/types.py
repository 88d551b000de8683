"""Types of arrays that many rooms name."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
"""An array of float64."""
