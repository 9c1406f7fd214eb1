"""What is known of a batch's samples, column by column, and what is said of samples. Called by the native module."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class SampleInfo(NamedTuple):
    """What is known of each sample of a batch, as it was when it was chosen: an array each, in the order of the samples."""

    keys: np.ndarray[Any, np.dtype[np.uint64]]
    """Which item it is, for `update_priorities` and `delete`. No two items of a table ever have the same."""
    probabilities: np.ndarray[Any, np.dtype[np.float64]]
    """How likely it was to be chosen; 1 from selectors that leave nothing to chance."""
    priorities: np.ndarray[Any, np.dtype[np.float64]]
    """Its priority, without the exponent."""
    times_sampled: np.ndarray[Any, np.dtype[np.int64]]
    """How often it was sampled, this time included."""
    table_size: np.ndarray[Any, np.dtype[np.int64]]
    """Items in the table, this one included."""
    ages: np.ndarray[Any, np.dtype[np.float64]]
    """For how many seconds it was in the table."""
    versions: np.ndarray[Any, np.dtype[np.int64]]
    """The version of the policy that made it; -1 if nobody said."""


class Counted(NamedTuple):
    """What became of items that were named: so many were there, and so many were gone."""

    applied: int
    skipped: int


def priorities(values: Any, n: int | None = None) -> np.ndarray[Any, np.dtype[np.float64]]:
    """One for each; of `n` samples also one for all."""
    array = _array(values, n, "priorities")
    if array.dtype.kind not in "fiu":
        raise TypeError(f"priorities are numbers, and were given as {array.dtype}")
    return np.ascontiguousarray(array, np.float64)


def versions(values: Any, n: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """One for each of `n` samples, or one for all; -1 is none."""
    array = _array(values, n, "versions")
    if array.dtype.kind not in "iu":
        raise TypeError(f"versions are whole numbers, and were given as {array.dtype}")
    wrong = np.flatnonzero((array < -1) | (array > np.iinfo(np.int64).max))
    if wrong.size:
        at = int(wrong[0])
        raise ValueError(f"sample {at} has the version {array[at]}: it must be 0 to 2**63 - 1, or -1 for none")
    return np.ascontiguousarray(array, np.int64)


def keys(values: Any) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Keys of items."""
    array = _array(values, None, "keys")
    if array.size == 0:
        return np.zeros(0, np.uint64)
    if array.dtype.kind not in "iu" or (array < 0).any():
        raise TypeError(f"keys are those of a batch's info, and were given as {array.dtype}")
    return np.ascontiguousarray(array, np.uint64)


def _array(values: Any, n: int | None, what: str) -> np.ndarray[Any, Any]:
    array = np.asarray(values)
    if n is not None and array.ndim == 0:
        array = np.broadcast_to(array, (n,))
    if array.ndim != 1 or n not in (None, len(array)):
        wanted = "an array of one axis" if n is None else f"one for all {n} samples, or an array of as many"
        raise ValueError(f"{what} are {wanted}, and have shape {array.shape}")
    return array
