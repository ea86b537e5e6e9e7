"""The type of an array of ids, which may be any int64."""

from typing import Any

import numpy as np

Ids = np.ndarray[Any, np.dtype[np.int64]]
