"""Samples that are put together over several time scales."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np
import optree

from . import _errors, _leaves, _tree


class Accumulator:
    """Collects one sample whose parts come at different times: steps, n-step returns, what an episode ends with.

    `example` is a dict, and each of its items is a time scale: a pytree of arrays. A scale is filled in as many calls of
    `add` as it has places: N, if all of its leaves have the same leading axis N; one, if a leaf is 0-d or has a leading
    axis of 1. `places` says it for those of which this is not true, such as ``{"action": 1}`` for a vector of N numbers
    that comes once::

        accumulator = echod.Accumulator({
            "step": {"obs": np.zeros((128, 4), np.float32), "reward": np.zeros(128, np.float32)},
            "episode": {"return": np.zeros((), np.float32)},
        })
        for ...:
            accumulator.add("step", {"obs": obs, "reward": reward})
        accumulator.add("episode", {"return": total})
        writer.append(accumulator.build())

    Nothing is converted: leaves must have the dtypes and shapes of the example, without the leading axis where a scale has
    several places. A sample that is not full is not built, and a full scale takes no more.

    `into` are arrays of the same shapes to write into, in place of arrays of its own: with those of a claim a sample is put
    together where its readers will read it::

        with writer.claim() as slot:
            accumulator = echod.Accumulator(into=slot.data)
            ...
            accumulator.build()     # raises if something is missing, and then the claim is given up
    """

    def __init__(
        self, example: Mapping[str, Any] | None = None, *, into: Any = None, places: Mapping[str, int] | None = None
    ) -> None:
        tree = example if into is None else into
        if not isinstance(tree, dict):
            raise TypeError("an accumulator needs a dict whose items are its time scales")
        if into is not None and example is not None:
            raise TypeError("an accumulator needs an example or arrays to write into, not both")
        given = dict(places or {})
        if unknown := [scale for scale in given if scale not in tree]:
            raise KeyError(f"there is no time scale {unknown[0]!r}, only {list(tree)}")
        self._scales = {
            scale: _Scale(scale, part, given.get(scale), into is not None) for scale, part in tree.items()
        }

    def add(self, scale: str, data: Any) -> None:
        """Fills the next place of a time scale: a pytree with the scale's leaves."""
        self._scale(scale).add(data)

    def add_many(self, scale: str, data: Any) -> None:
        """Fills the next n places of a time scale: its leaves with a leading axis of n. All of them or none."""
        self._scale(scale).add_many(data)

    def build(self) -> dict[str, Any]:
        """The sample, and begins the next one.

        It is made of the accumulator's own arrays: append it, or copy it, before the next `add`. `NotFullError` says
        which scale lacks how many.
        """
        for scale in self._scales.values():
            if scale.filled < scale.places:
                raise _errors.NotFullError(
                    f"time scale {scale.name!r} has {scale.filled} of its {scale.places} places filled: "
                    "add the others, or reset() to begin anew",
                    scale=scale.name,
                    filled=scale.filled,
                    places=scale.places,
                )
        self.reset()
        return {name: scale.tree() for name, scale in self._scales.items()}

    def reset(self) -> None:
        """Begins anew; what was added is forgotten."""
        for scale in self._scales.values():
            scale.filled = 0

    @property
    def full(self) -> bool:
        """Whether `build` can."""
        return all(scale.filled == scale.places for scale in self._scales.values())

    @property
    def filled(self) -> dict[str, tuple[int, int]]:
        """For each time scale, how many places are filled, and how many it has."""
        return {name: (scale.filled, scale.places) for name, scale in self._scales.items()}

    def _scale(self, name: str) -> _Scale:
        try:
            return self._scales[name]
        except KeyError:
            raise KeyError(f"there is no time scale {name!r}, only {list(self._scales)}") from None

    def __repr__(self) -> str:
        scales = ", ".join(f"{name} {filled}/{places}" for name, (filled, places) in self.filled.items())
        return f"<echod.Accumulator: {scales}>"


class _Scale:
    """One time scale: its arrays, and how far they are filled."""

    def __init__(self, name: str, tree: Any, places: int | None, in_place: bool) -> None:
        self.name = name
        leaves, self._treespec = optree.tree_flatten(tree)
        if not leaves:
            raise ValueError(f"time scale {name!r} has no leaves")
        self.names = [name if leaf == "." else f"{name}/{leaf}" for leaf in _tree.names(self._treespec)]
        given = [_leaves.as_array(leaf, _array(value)) for leaf, value in zip(self.names, leaves)]
        for leaf, array in zip(self.names, given):
            _tree.leaf_of(leaf, array)  # raises if no table can hold it
            if in_place and not array.flags.writeable:
                raise ValueError(f"leaf {leaf!r} cannot be written into: it is read-only")
        self.arrays = given if in_place else [np.zeros_like(array, subok=False) for array in given]
        self.places = self._places(places)
        # A scale that comes once has no axis of places.
        self._one = self.places == 1
        self._shapes = [array.shape if self._one else array.shape[1:] for array in self.arrays]
        self.filled = 0

    def _places(self, given: int | None) -> int:
        lengths = [array.shape[0] if array.ndim else None for array in self.arrays]
        if given is None:
            once = None in lengths or set(lengths) == {1}
            given = 1 if once else lengths[0]
            if not once and len(set(lengths)) > 1:
                raise ValueError(
                    f"the leaves of time scale {self.name!r} have leading axes of {lengths}: give all of them the same, "
                    f"or say places={{{self.name!r}: 1}} if they come once"
                )
        elif given != 1 and set(lengths) != {given}:
            raise ValueError(
                f"time scale {self.name!r} is to have {given} places, and its leaves have leading axes of {lengths}"
            )
        if not given or given < 0:
            raise ValueError(f"time scale {self.name!r} has no places")
        return given

    def tree(self) -> Any:
        return optree.tree_unflatten(self._treespec, self.arrays)

    def add(self, data: Any) -> None:
        if self.filled == self.places:
            raise self._is_full(1)
        leaves = self._leaves(data)
        values = [
            self._fitting(leaf, array, shape, value)
            for leaf, array, shape, value in zip(self.names, self.arrays, self._shapes, leaves)
        ]
        # Nothing can fail from here on.
        for array, value in zip(self.arrays, values):
            array[... if self._one else self.filled] = value
        self.filled += 1

    def add_many(self, data: Any) -> None:
        values = []
        count: int | None = None
        for leaf, array, shape, value in zip(self.names, self.arrays, self._shapes, self._leaves(data)):
            value = _leaves.as_array(leaf, value)
            if value.dtype != array.dtype:
                raise _leaves.other_dtype(leaf, array.dtype, list(shape), value, True, count)
            if value.ndim == 0 or value.shape[1:] != shape or count not in (None, value.shape[0]):
                raise _leaves.other_shape(leaf, array.dtype, list(shape), value, True, count)
            count = value.shape[0]
            values.append(value)
        assert count is not None
        if count > self.places - self.filled:
            raise self._is_full(count)
        for array, value in zip(self.arrays, values):
            if not self._one:
                array[self.filled : self.filled + count] = value
            elif count:
                array[...] = value[0]
        self.filled += count

    def _leaves(self, data: Any) -> list[Any]:
        leaves, treespec = optree.tree_flatten(data)
        if treespec == self._treespec:
            return leaves
        found = [self.name if leaf == "." else f"{self.name}/{leaf}" for leaf in _tree.names(treespec)]
        missing = [leaf for leaf in self.names if leaf not in found]
        extra = [leaf for leaf in found if leaf not in self.names]
        raise _errors.StructureError(
            f"the data is not what time scale {self.name!r} holds: {treespec} instead of {self._treespec}",
            missing=missing,
            extra=extra,
        )

    def _fitting(self, leaf: str, array: np.ndarray[Any, Any], shape: tuple[int, ...], value: Any) -> Any:
        if type(value) in (bool, int, float, complex):
            if shape:
                raise _leaves.other_shape(leaf, array.dtype, list(shape), np.asarray(value), False, None)
            return _leaves.number(leaf, array.dtype, value)
        value = _leaves.as_array(leaf, value)
        if value.dtype != array.dtype:
            raise _leaves.other_dtype(leaf, array.dtype, list(shape), value, False, None)
        if value.shape != shape:
            raise _leaves.other_shape(leaf, array.dtype, list(shape), value, False, None)
        return value

    def _is_full(self, more: int) -> _errors.FullError:
        return _errors.FullError(
            f"time scale {self.name!r} has {self.filled} of its {self.places} places filled, and {more} more were given: "
            "build() the sample, or reset()",
            scale=self.name,
            filled=self.filled,
            places=self.places,
        )


def _array(value: Any) -> Any:
    return np.asarray(value) if type(value) in (bool, int, float, complex) else value
