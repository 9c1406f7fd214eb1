"""Leaves that are no numpy arrays, and what is said of those that do not fit. Called by the native module."""

from __future__ import annotations

from typing import Any

import numpy as np
import optree

from . import _dtypes, _errors

# The kinds of dtypes that a number of Python's may go into.
_FITS = {bool: "b", int: "iu", float: "f", complex: "c"}
_CPU = (1, 3)  # DLPack's kDLCPU and kDLCUDAHost: memory that the CPU reads


def as_array(leaf: str, value: Any) -> np.ndarray[Any, Any]:
    """A numpy array of what was given for a leaf: over the same memory where that can be."""
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    if isinstance(value, (bool, int, float, complex)):
        raise _errors.LeafDTypeError(
            f"leaf {leaf!r} was given {value!r}, a Python number, where an array is wanted",
            leaf=leaf,
            expected="array",
            got=type(value).__name__,
        )
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        device = value.__dlpack_device__()
        if int(device[0]) not in _CPU:
            raise _errors.LeafDTypeError(
                f"leaf {leaf!r} lies on a device ({type(value).__name__}, DLPack device {int(device[0])}): copy it to "
                "the CPU first",
                leaf=leaf,
                expected="an array on the CPU",
                got=type(value).__name__,
            )
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError) as error:
            if not hasattr(value, "__array__"):
                raise _of_other_type(leaf, value, str(error)) from error
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        return np.asarray(value)
    if not isinstance(value, (str, bytes)):
        try:
            return np.asarray(memoryview(value))
        except TypeError:
            pass
    if not optree.tree_is_leaf(value):
        raise _errors.StructureError(
            f"leaf {leaf!r} is a {type(value).__name__} in this sample, and an array in the table",
            missing=[leaf],
            extra=[],
        )
    raise _of_other_type(leaf, value, "it is no array, no number and no buffer")


def _of_other_type(leaf: str, value: Any, why: str) -> _errors.LeafDTypeError:
    got = type(value).__name__
    return _errors.LeafDTypeError(
        f"leaf {leaf!r} is a {got}, which cannot be stored: {why}", leaf=leaf, expected="array", got=got
    )


def other_dtype(
    leaf: str, expected: np.dtype[Any], dims: list[int], got: np.ndarray[Any, Any], many: bool, samples: int | None
) -> Exception:
    """An array of another dtype."""
    hint = f"convert it yourself, such as by .astype({expected.name!r})"
    if got.dtype.hasobject:
        hint = "arrays of objects cannot be stored"
    elif not got.dtype.isnative and got.dtype.newbyteorder("=") == expected:
        hint = "its bytes are swapped; " + hint
    return _errors.LeafDTypeError(
        f"leaf {leaf!r} holds {expected.name}, and {got.dtype} was given: {hint}",
        leaf=leaf,
        expected=expected.name,
        got=str(got.dtype),
    )


def other_shape(
    leaf: str, expected: np.dtype[Any], dims: list[int], got: np.ndarray[Any, Any], many: bool, samples: int | None
) -> Exception:
    """An array of another shape."""
    del expected
    wanted: tuple[Any, ...] = tuple(dims)
    if many:
        wanted = ("n" if samples is None else samples, *wanted)
    shown = "(" + ", ".join(map(str, wanted)) + ("," if len(wanted) == 1 else "") + ")"
    return _errors.LeafShapeError(
        f"leaf {leaf!r} has shape {shown}, and {got.shape} was given", leaf=leaf, expected=wanted, got=got.shape
    )


def other_number(leaf: str, expected: np.dtype[Any], got: Any) -> Exception:
    """A number of Python's that is of another kind, or does not fit."""
    if _kind(expected) in _FITS[type(got)]:
        return _errors.LeafValueError(
            f"leaf {leaf!r} holds {expected.name}, into which {got!r} does not fit", leaf=leaf, expected=expected.name
        )
    return _errors.LeafDTypeError(
        f"leaf {leaf!r} holds {expected.name}, and the {type(got).__name__} {got!r} was given: numbers are not converted "
        "to another kind",
        leaf=leaf,
        expected=expected.name,
        got=type(got).__name__,
    )


def as_number(leaf: str, expected: np.dtype[Any], value: complex) -> np.ndarray[Any, Any]:
    """A number of Python's in that dtype: of its kind, and such that it fits. Floats are rounded as the dtype does."""
    kind = _kind(expected)
    if kind not in _FITS[type(value)]:
        raise other_number(leaf, expected, value)
    if kind in "iu":
        limits = np.iinfo(expected)
        if not limits.min <= int(value.real) <= limits.max:
            raise other_number(leaf, expected, value)
    with np.errstate(over="ignore"):
        made = np.array(value, dtype=expected)
    if kind == "f" and np.isfinite(value) and not np.isfinite(made.astype(np.float64)):
        raise other_number(leaf, expected, value)
    return made


def plain(dtype: np.dtype[Any]) -> tuple[type, float, float]:
    """Numbers that numpy writes into this dtype as `as_number` does: their type, the least and the greatest of them."""
    if dtype.kind in "iu":
        integers = np.iinfo(dtype)
        return int, int(integers.min), int(integers.max)
    if dtype.kind == "f" and dtype.itemsize >= 4:
        floats = np.finfo(dtype)
        return float, float(floats.min), float(floats.max)
    if dtype.kind == "b":
        return bool, False, True
    return type(None), 0, 0


def small_number(leaf: str, expected: np.dtype[Any], value: float) -> bytes:
    """The bytes of a float in a small dtype."""
    return as_number(leaf, expected, value).tobytes()


def _kind(dtype: np.dtype[Any]) -> str:
    return "f" if _dtypes.name(dtype) in ("bfloat16", "float8_e4m3fn", "float8_e5m2") else dtype.kind
