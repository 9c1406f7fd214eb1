"""Leaves that are no numpy arrays, and what is said of those that do not fit. Called by the native module."""

from __future__ import annotations

from typing import Any

import numpy as np
import optree

from . import _dtypes, _errors, _frameworks

_CPU = (1, 3)  # DLPack's kDLCPU and kDLCUDAHost: memory that the CPU reads


def as_array(leaf: str, value: Any) -> np.ndarray[Any, Any]:
    """A numpy array of what was given for a leaf: over the same memory where that can be."""
    if isinstance(value, np.ma.MaskedArray):
        raise _of_other_type(leaf, value, "its mask would be lost; fill it, and store the mask as a leaf of its own")
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    if isinstance(value, (bool, int, float, complex)):
        raise _errors.LeafDTypeError(
            f"leaf {leaf!r} was given {value!r}, a Python number, where an array is wanted",
            leaf=leaf,
            expected="array",
            got=type(value).__name__,
        )
    try:
        array = _of_protocol(leaf, value)
    except _errors.Error:
        raise
    except Exception as error:
        raise _of_other_type(leaf, value, str(error)) from error
    if array is not None:
        return array
    if not optree.tree_is_leaf(value):
        raise _errors.StructureError(
            f"leaf {leaf!r} is a {type(value).__name__} in this sample, and an array in the table",
            missing=[leaf],
            extra=[],
        )
    raise _of_other_type(leaf, value, "it is no array, no number and no buffer")


def _of_protocol(leaf: str, value: Any) -> np.ndarray[Any, Any] | None:
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
        if (array := _frameworks.of_torch(value)) is not None:
            return array
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError):
            # What DLPack cannot say, such as that an array is read-only in its older form.
            if not hasattr(value, "__array__"):
                raise
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        return np.asarray(value)
    try:
        buffer = memoryview(value)
    except TypeError:
        return None
    return np.asarray(buffer)


def _of_other_type(leaf: str, value: Any, why: str) -> _errors.LeafDTypeError:
    got = type(value).__name__
    return _errors.LeafDTypeError(
        f"leaf {leaf!r} is of type {got}, which cannot be stored: {why}", leaf=leaf, expected="array", got=got
    )


def other_dtype(
    leaf: str, expected: np.dtype[Any], dims: list[int], got: np.ndarray[Any, Any], many: bool, samples: object
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
    leaf: str,
    expected: np.dtype[Any],
    dims: list[int],
    got: np.ndarray[Any, Any],
    many: bool,
    several: tuple[int, str] | None,
    appended: bool = True,
) -> Exception:
    """An array of another shape: of one sample, or of as many as `several` says of another leaf, if that is known."""
    del expected
    wanted: tuple[Any, ...] = tuple(dims)
    hint = ""
    if many:
        wanted = ("n" if several is None else several[0], *wanted)
        if got.shape == tuple(dims):
            hint = ": append_many() wants an axis more, which comes first and counts the samples; append() writes one"
        elif several is not None and got.shape[1:] == tuple(dims):
            hint = f": there are {several[0]} samples in leaf {several[1]!r} and {got.shape[0]} in this one, which must be as many"
    elif appended and got.shape[1:] == tuple(dims):
        hint = ": append_many() writes several samples, append() one"
    shown = "(" + ", ".join(map(str, wanted)) + ("," if len(wanted) == 1 else "") + ")"
    return _errors.LeafShapeError(
        f"leaf {leaf!r} has shape {shown}, and {got.shape} was given{hint}", leaf=leaf, expected=wanted, got=got.shape
    )


_KINDS: dict[type, str] = {bool: "b", int: "iu", float: "f", complex: "c"}
_SMALL = ("bfloat16", "float8_e4m3fn", "float8_e5m2")  # numpy knows them as of no kind


def _is_of_kind(value: Any, dtype: np.dtype[Any]) -> bool:
    return ("f" if _dtypes.name(dtype) in _SMALL else dtype.kind) in _KINDS[type(value)]


def other_number(leaf: str, expected: np.dtype[Any], got: Any) -> Exception:
    """A number of Python's that is of another kind, or does not fit."""
    if _is_of_kind(got, expected):
        return _errors.LeafValueError(
            f"leaf {leaf!r} holds {expected.name}, into which {got!r} does not fit", leaf=leaf, expected=expected.name
        )
    hint = "numbers are not converted to another kind"
    if type(got) is int and _is_of_kind(0.0, expected) and abs(got) < 1 << 53:
        of_dtype = f"np.{expected.name}" if expected.name not in _SMALL else expected.name
        hint += f"; write {float(got)!r} or {of_dtype}({got!r})"
    return _errors.LeafDTypeError(
        f"leaf {leaf!r} holds {expected.name}, and the {type(got).__name__} {got!r} was given: {hint}",
        leaf=leaf,
        expected=expected.name,
        got=type(got).__name__,
    )


def number(leaf: str, expected: np.dtype[Any], value: Any) -> np.ndarray[Any, Any]:
    """A number of Python's as a 0-d array of that dtype, rounded as the dtype does, if it is of its kind and fits."""
    if not _is_of_kind(value, expected):
        raise other_number(leaf, expected, value)
    if isinstance(value, int):
        # Not left to numpy, which before its second version takes what does not fit.
        if expected.kind in "iu" and not np.iinfo(expected).min <= value <= np.iinfo(expected).max:
            raise other_number(leaf, expected, value)
        return np.array(value, dtype=expected)
    with np.errstate(over="ignore"):
        made = np.array(value, dtype=expected)
    # What is finite stays so. (numpy asks no small dtype that.)
    if np.isfinite(value) and not np.isfinite(made.astype(np.complex128)):
        raise other_number(leaf, expected, value)
    return made


def plain(dtype: np.dtype[Any]) -> tuple[type, float, float]:
    """Numbers that numpy writes into this dtype as `number` does: their type, the least and the greatest of them."""
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
    return number(leaf, expected, value).tobytes()
