"""dtypes by name: numpy's, and those that ml_dtypes adds to it."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

_NUMPY = frozenset(
    "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64 complex64 complex128".split()
)
_ML_DTYPES = {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}  # with their bytes


@functools.cache
def dtype(name: str) -> np.dtype[Any]:
    """The dtype that a table calls so."""
    if name in _NUMPY:
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError as error:
        raise ImportError(f"the table has {name} leaves, for which numpy needs ml_dtypes: pip install ml_dtypes") from error
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return found


def name(dtype: np.dtype[Any]) -> str | None:
    """What a table calls this dtype; None if it cannot hold it."""
    if dtype.name in _NUMPY:
        return dtype.name if dtype.isnative else None
    if dtype.name in _ML_DTYPES and type(dtype.type).__module__ is not None and dtype.kind in "Vf":
        return dtype.name
    return None


def itemsize(name: str) -> int:
    """Bytes of an element of what a table calls so; ml_dtypes is not needed for it."""
    return _ML_DTYPES.get(name) or np.dtype(name).itemsize
