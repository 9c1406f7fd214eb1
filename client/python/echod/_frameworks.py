"""Arrays of a batch as tensors of other frameworks, which are imported when they are asked for."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

# What numpy has from ml_dtypes goes over as plain bits.
_BITS = {"bfloat16": np.uint16, "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}


def torch(array: np.ndarray[Any, Any]) -> Any:
    """A tensor over the same memory. Page-locked memory is recognised by torch itself (`is_pinned`)."""
    torch = importlib.import_module("torch")
    bits = _BITS.get(array.dtype.name)
    if bits is None:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(bits)).view(getattr(torch, array.dtype.name))


def jax(array: np.ndarray[Any, Any]) -> Any:
    """A jax array: over the same memory where jax can, else a copy. 64-bit numbers as jax is configured."""
    return importlib.import_module("jax.numpy").asarray(array)
