"""Pytrees: the names of their leaves, and how the native module takes them apart.

A leaf is called by its path: the keys, indices and field names from the root, joined by "/". In a key "~" is written "~0"
and "/" is written "~1"; an empty key is "~2", and the key "." is "~3", since a sample that is a single array is called ".".
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Sequence

import numpy as np
import optree

from . import _dtypes, _errors
from ._native import Structure

_ROOT = "."


class Leaf(NamedTuple):
    """One leaf of a table's samples: its path, its dtype's name, and the shape of one sample's."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of one sample's leaf."""
        return _dtypes.itemsize(self.dtype) * math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}{list(self.shape)}"


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """The leaves, and optree's description."""
    leaves, treespec = optree.tree_flatten(tree)
    return leaves, treespec


def _escape(key: Any) -> str:
    text = str(key).replace("~", "~0").replace("/", "~1")
    return {"": "~2", _ROOT: "~3"}.get(text, text)


def _unescape(text: str) -> str:
    if "~" not in text:
        return text
    text = {"~2": "", "~3": _ROOT}.get(text, text)
    return text.replace("~1", "/").replace("~0", "~")


def _entry(entry: Any) -> Any:
    # Fields by name, which optree's plain paths give by number.
    for attribute in ("field", "name"):
        named = getattr(entry, attribute, None)
        if isinstance(named, str):
            return named
    return entry.entry


def names(treespec: Any) -> list[str]:
    """What the leaves are called."""
    return ["/".join(_escape(_entry(entry)) for entry in accessor) or _ROOT for accessor in treespec.accessors()]


def below(parent: str, name: str) -> str:
    """What leaf `name` of a tree is called in one that has the tree under `parent`."""
    return _escape(parent) if name == _ROOT else f"{_escape(parent)}/{name}"


def _program(treespec: Any) -> Any:
    """The description as nested tuples; None if only optree can do it."""
    kind = treespec.kind
    if kind == optree.PyTreeKind.LEAF:
        return ("leaf",)
    if kind == optree.PyTreeKind.NONE:
        return ("none",)
    children = [_program(child) for child in treespec.children()]
    if any(child is None for child in children):
        return None
    if kind == optree.PyTreeKind.DICT:
        return ("dict", list(treespec.entries()), children)
    if kind == optree.PyTreeKind.LIST:
        return ("list", children)
    if kind == optree.PyTreeKind.TUPLE:
        return ("tuple", children)
    if kind == optree.PyTreeKind.NAMEDTUPLE:
        return ("namedtuple", treespec.type, children)
    return None


def structure(treespec: Any, of: Sequence[str]) -> Structure:
    """How to take such trees apart into the arrays of a table, whose leaves are called `of`."""
    return Structure(_program(treespec), treespec, order(names(treespec), of))


def order(found: Sequence[str], of: Sequence[str], sample: str = "the sample", table: str = "the table") -> list[int]:
    """For each leaf that was found, which one of `of` it is. They must be the same; else it is said of which they are."""
    place = {name: i for i, name in enumerate(of)}
    order = [place[name] for name in found if name in place]
    if len(order) == len(found) and sorted(order) == list(range(len(of))):
        return order
    extra = [name for name in found if name not in place]
    missing = [name for name in of if name not in set(found)]
    twice = sorted({name for name in found if found.count(name) > 1}) if not (extra or missing) else []
    said = []
    if missing:
        said.append("it lacks " + _list(missing))
    if extra:
        said.append("it has " + _list(extra) + f", which {table} has not")
    if twice:
        said.append("it has more than one leaf called " + _list(twice))
    raise _errors.StructureError(
        f"{sample} is not what {table} holds: " + "; ".join(said), missing=missing, extra=extra
    )


def _list(of: list[str]) -> str:
    shown = ", ".join(repr(name) for name in of[:8])
    return shown if len(of) <= 8 else f"{shown} and {len(of) - 8} more"


def learn(of: Sequence[str], sample: Any) -> Structure:
    """The structure of a sample whose leaves are called `of`, in whatever tree."""
    try:
        return structure(optree.tree_structure(sample), of)
    except _errors.StructureError as error:
        if not _is_list_of_samples(of, sample):
            raise
        raise _errors.StructureError(
            f"a {type(sample).__name__} of {len(sample)} samples was given: append each, or stack them for append_many(), as in "
            "optree.tree_map(lambda *leaves: np.stack(leaves), *samples)",
            missing=error.missing,
            extra=error.extra,
        ) from None


def _is_list_of_samples(of: Sequence[str], given: Any) -> bool:
    if type(given) not in (list, tuple) or not given:
        return False
    return sorted(names(optree.tree_structure(given[0]))) == sorted(of)


def derived(of: Sequence[str]) -> Structure:
    """A structure made of the names alone: dicts, and lists where the keys are 0, 1, 2, ..."""
    if list(of) == [_ROOT]:
        return Structure(("leaf",), optree.treespec_leaf(), [0])
    root: dict[str, Any] = {}
    for i, name in enumerate(of):
        node = root
        *parents, last = name.split("/")
        for parent in parents:
            inner = node.setdefault(parent, {})
            if not isinstance(inner, dict):
                return _flat(of)
            node = inner
        if last in node:
            return _flat(of)
        node[last] = i
    tree = _listed(root)
    leaves, treespec = optree.tree_flatten(tree)
    return Structure(_program(treespec), treespec, leaves)


def _flat(of: Sequence[str]) -> Structure:
    # A name that is the beginning of another one: only tables that were not made here have such.
    flat: Any = {name: i for i, name in enumerate(of)}
    leaves, treespec = optree.tree_flatten(flat)
    return Structure(_program(treespec), treespec, leaves)


def _listed(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    if all(str(i) in node for i in range(len(node))):
        return [_listed(node[str(i)]) for i in range(len(node))]
    return {_unescape(key): _listed(child) for key, child in node.items()}


def spec(example: Any, under: str | None = None) -> tuple[list[Leaf], Any]:
    """The leaves of a table for samples such as this one, and optree's description. `under` is where in them it is."""
    leaves, treespec = optree.tree_flatten(example)
    found = names(treespec) if under is None else [below(under, name) for name in names(treespec)]
    if not leaves:
        raise _errors.InvalidSpecError("the example has no leaves: a sample is a pytree of arrays", kind="invalid_spec")
    for name in found:
        try:
            name.encode()
        except UnicodeEncodeError as error:
            message = f"leaf {name!r} cannot be called so: {error.reason}"
            raise _errors.InvalidSpecError(message, kind="invalid_spec") from None
    return [leaf_of(name, value) for name, value in zip(found, leaves)], treespec


def leaf_of(name: str, value: Any) -> Leaf:
    """What a table is to hold for this leaf of an example."""
    from . import _leaves

    if isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic):
        array = np.asarray(value)  # bool, int64, float64, complex128: as numpy takes them
    else:
        array = _leaves.as_array(name, value)
    dtype = _dtypes.name(array.dtype)
    if dtype is None:
        swapped = "" if array.dtype.isnative else " (its bytes are swapped)"
        raise _errors.LeafDTypeError(
            f"leaf {name!r} of the example is of dtype {array.dtype}{swapped}, which a table cannot hold",
            leaf=name,
            expected="a number",
            got=str(array.dtype),
        )
    return Leaf(name, dtype, tuple(array.shape))
