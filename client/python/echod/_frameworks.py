"""Arrays of a batch as tensors of other frameworks, which are imported when they are asked for."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np

from . import _dtypes

# What numpy has from ml_dtypes goes over as plain bits.
_BITS = {"bfloat16": np.uint16, "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}


def torch(array: np.ndarray[Any, Any]) -> Any:
    """A tensor over the same memory. Page-locked memory is recognised by torch itself (`is_pinned`)."""
    torch = importlib.import_module("torch")
    bits = _BITS.get(array.dtype.name)
    if bits is None:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(bits)).view(getattr(torch, array.dtype.name))


def of_torch(value: Any) -> np.ndarray[Any, Any] | None:
    """An array over a CPU tensor of a dtype that numpy has from ml_dtypes, which torch gives out as bits alone; else None."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return None
    name = str(value.dtype).removeprefix("torch.")
    if name not in _BITS:
        return None
    # Not uint16, which older ones do not have.
    bits = value.detach().view(torch.int16 if name == "bfloat16" else torch.uint8)
    array: np.ndarray[Any, Any] = bits.numpy().view(_dtypes.dtype(name))
    return array


def jax(array: np.ndarray[Any, Any]) -> Any:
    """A jax array: over the same memory where jax can, else a copy. 64-bit numbers as jax is configured."""
    return importlib.import_module("jax.numpy").asarray(array)
