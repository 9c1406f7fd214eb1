"""Accumulators: a rollout's parts, which come at different times, as one sample.

What always holds: an item is checked as a whole before any of it is written, so that a time scale never has half of one; and
what is built has every item once. Lengths are said and not guessed from an example's axes: of an array of 5 nobody can
tell whether it is five steps or one vector.
"""

from __future__ import annotations

import contextlib
from typing import Any, Iterator, Mapping, Sequence

import numpy as np
import optree

from . import _dtypes, _errors, _leaves, _tree
from ._tree import Leaf

_NUMBERS = (bool, int, float, complex)


class Accumulator:
    """Collects a rollout whose parts come at different times, and makes it one sample.

    `items` has the time scales by name, and for each the pytree that is added at a time. `lengths` says how many items
    make a rollout; a time scale that is not in it has one, without an axis for it::

        step = {"obs": np.zeros(4, np.float32), "reward": np.float32(0)}
        rollout = echod.Accumulator(
            {"steps": step, "target": np.float32(0), "last": {"obs": np.zeros(4, np.float32)}},
            lengths={"steps": 128, "target": 32},
        )
        # rollout.example: steps/obs float32[128, 4], steps/reward float32[128], target float32[32], last/obs float32[4]
        table = connection.create_table("rollouts", example=rollout.example, batch_size=16, capacity=8)
        writer = table.writer()

        rollout.add("steps", step)              # 128 times
        rollout.extend("target", targets)       # float32[32]: several at a time
        rollout.add("last", {"obs": obs})
        writer.append(rollout.build())          # raises NotFullError if something is missing

    Without a copy of its own, straight into the table::

        with writer.claim() as slot, rollout.into(slot.data):
            rollout.add("steps", step)          # ...

    Leaves are checked as by a writer: dtype and shape, nothing is converted, and the error names the leaf; then nothing of
    the item is kept. What is full takes no more (`FullError`). One thread uses it at a time.

    With `envs`, as many rollouts are collected side by side, as a vectorised environment plays them. What is added has the
    environments as its first axis (steps/obs above: [envs, 4]), and so has the built pytree ([envs, 128, 4]), which
    is one for `append_many`, or for a claim of as many samples.
    """

    def __init__(
        self, items: Mapping[str, Any], lengths: Mapping[str, int] | None = None, *, envs: int | None = None
    ) -> None:
        lengths = {} if lengths is None else dict(lengths)
        if not isinstance(items, Mapping) or not all(isinstance(name, str) for name in items):
            raise TypeError("items is a dict: the time scales by name, each with what is added at a time")
        unknown = [name for name in lengths if name not in items]
        if unknown:
            raise ValueError(f"lengths has {unknown[0]!r}, which items has not")
        for name, length in lengths.items():
            if not length >= 1:
                raise ValueError(f"the length of {name!r} is 1 or more, not {length}")
        if envs is not None and not envs >= 1:
            raise ValueError(f"envs is 1 or more, not {envs}")
        self._envs = envs
        self._scales = {name: _Scale(name, item, lengths.get(name), envs) for name, item in items.items()}
        names = [leaf.name for scale in self._scales.values() for leaf in scale.leaves]
        # Which of these each leaf of the whole tree is.
        treespec = optree.tree_structure(self.example)
        self._treespec, self._places = treespec, _tree.order(_tree.names(treespec), names)
        self._own: Any = None
        self._tree: Any = None
        self._is_built = False

    @property
    def example(self) -> Any:
        """One sample, of zeros: for `create_table`. Leaves have their time scale's length as an axis before their own."""
        return {name: scale.zeros(None) for name, scale in self._scales.items()}

    @property
    def filled(self) -> dict[str, int]:
        """How many items each time scale has."""
        return {name: 0 if self._is_built else scale.filled for name, scale in self._scales.items()}

    @property
    def full(self) -> bool:
        """Whether nothing is missing."""
        return not self._is_built and not any(scale.missing for scale in self._scales.values())

    def add(self, name: str, item: Any) -> None:
        """Puts the next item into time scale `name`: a pytree with the leaves and shapes of its `items`.

        Python numbers are taken for leaves that are scalars, if they are of its kind and fit. Raises `FullError` if it has
        all its items.
        """
        scale = self._scale(name)
        scale.expect_room(1)
        values = [leaf.checked(value) for leaf, value in zip(scale.leaves, scale.take_apart(item))]
        scale.put(values)

    def extend(self, name: str, items: Any) -> None:
        """Puts several items into time scale `name`: leaves have an axis of items before their own (with `envs`, after
        the environments'), such as advantages that are known at the end of a rollout: float32[128].
        """
        scale = self._scale(name)
        if scale.length is None:
            raise ValueError(f"time scale {name!r} has one item, without an axis: add it")
        count: int | None = None
        values = []
        for leaf, value in zip(scale.leaves, scale.take_apart(items)):
            values.append(leaf.checked_many(value, count))
            count = values[-1].shape[leaf.axis]
        assert count is not None, "a time scale has leaves"
        scale.expect_room(count)
        scale.put(values, count)

    def build(self) -> Any:
        """The rollout: a pytree like `example` (with `envs`, with their axis first). Raises `NotFullError` if it is not full.

        The arrays are the accumulator's own, or those given to `into`: append them before the next `add`, which
        starts the next rollout.
        """
        if not self._is_built:
            missing = [scale for scale in self._scales.values() if scale.missing]
            if missing:
                said = ", ".join(f"{scale.name!r} has {scale.filled} of {scale.needed} items" for scale in missing)
                first = missing[0]
                raise _errors.NotFullError(
                    f"the rollout is not full: {said}", scale=first.name, filled=first.filled, needed=first.needed
                )
            self._is_built = True
        return self._tree

    def reset(self) -> None:
        """Forgets what was added, such as when an episode is given up."""
        for scale in self._scales.values():
            scale.filled = 0
        self._is_built = False

    @contextlib.contextmanager
    def into(self, tree: Any) -> Iterator[Accumulator]:
        """Within the block, what is added is written into `tree`: arrays of the built pytree's shapes, as `slot.data` has.

        Starts a rollout. At its end the block raises `NotFullError` if something is missing, so that a claim is given up.
        A batch is complete only when its claims have ended: a claim that is held for a rollout makes the trainer wait
        for it, as it would anyway if each batch needs each worker.
        """
        self._write_into(tree)
        try:
            yield self
            self.build()
        finally:
            self._tree = None
            for scale in self._scales.values():
                scale.targets = []
            self.reset()

    def _scale(self, name: str) -> _Scale:
        scale = self._scales.get(name)
        if scale is None:
            known = ", ".join(map(repr, self._scales))
            raise _errors.StructureError(f"there is no time scale {name!r}; there are {known}", missing=[], extra=[name])
        if self._tree is None:
            if self._own is None:
                self._own = {name: scale.zeros(self._envs) for name, scale in self._scales.items()}
            self._write_into(self._own)
        elif self._is_built and self._tree is self._own:
            self.reset()
        elif self._is_built:
            raise _errors.FullError(
                "the rollout was built in place: leave the block first",
                scale=name,
                filled=scale.filled,
                needed=scale.needed,
            )
        return scale

    def _write_into(self, tree: Any) -> None:
        targets = self._targets(tree)
        at = 0
        for scale in self._scales.values():
            scale.targets = targets[at : at + len(scale.leaves)]
            at += len(scale.leaves)
        self._tree = tree
        self.reset()

    def _targets(self, tree: Any) -> list[np.ndarray[Any, Any]]:
        """The tree's arrays, time scale by time scale."""
        found, treespec = optree.tree_flatten(tree)
        leaves = [(scale, leaf) for scale in self._scales.values() for leaf in scale.leaves]
        if treespec == self._treespec:
            places = self._places
        else:
            names = [leaf.name for _, leaf in leaves]
            places = _tree.order(_tree.names(treespec), names, "what is to be written into", "the rollout")
        targets: list[Any] = [None] * len(leaves)
        for place, target in zip(places, found):
            scale, leaf = leaves[place]
            shape = scale.shape(leaf, self._envs)
            if not isinstance(target, np.ndarray) or not target.flags.writeable:
                raise _errors.LeafDTypeError(
                    f"leaf {leaf.name!r} is no array that can be written: it is to be written into",
                    leaf=leaf.name,
                    expected="a writable array",
                    got=type(target).__name__,
                )
            if target.dtype != leaf.dtype:
                raise _leaves.other_dtype(leaf.name, leaf.dtype, list(shape), target, False, None)
            if target.shape != shape:
                raise _leaves.other_shape(leaf.name, leaf.dtype, list(shape), target, False, None, False)
            targets[place] = target
        return targets

    def __repr__(self) -> str:
        counts = ", ".join(f"{name} {self.filled[name]} of {scale.needed}" for name, scale in self._scales.items())
        envs = "" if self._envs is None else f" of {self._envs} environments"
        return f"<echod.Accumulator{envs}: {counts}>"


class _Scale:
    """A time scale: what an item of it is, how many there are, and where they go."""

    def __init__(self, name: str, item: Any, length: int | None, envs: int | None) -> None:
        leaves, self.treespec = _tree.spec(item, under=name)
        self.name, self.length, self.envs = name, length, envs
        self.leaves = [_Item(leaf, envs) for leaf in leaves]
        self.targets: Sequence[np.ndarray[Any, Any]] = []
        self.filled = 0

    @property
    def needed(self) -> int:
        return 1 if self.length is None else self.length

    @property
    def missing(self) -> int:
        return self.needed - self.filled

    def shape(self, leaf: _Item, envs: int | None) -> tuple[int, ...]:
        """Of all items' leaf, in one sample or in those of all environments."""
        return (*(() if envs is None else (envs,)), *(() if self.length is None else (self.length,)), *leaf.shape)

    def zeros(self, envs: int | None) -> Any:
        arrays = [np.zeros(self.shape(leaf, envs), leaf.dtype) for leaf in self.leaves]
        return optree.tree_unflatten(self.treespec, arrays)

    def take_apart(self, item: Any) -> Sequence[Any]:
        found, treespec = optree.tree_flatten(item)
        if treespec == self.treespec:
            return found
        # Another tree, maybe, with leaves of the same names.
        names = [_tree.below(self.name, name) for name in _tree.names(treespec)]
        places = _tree.order(names, [leaf.name for leaf in self.leaves], "the item", f"time scale {self.name!r}")
        values: list[Any] = [None] * len(found)
        for place, value in zip(places, found):
            values[place] = value
        return values

    def expect_room(self, count: int) -> None:
        if count > self.missing:
            given = "another one" if count == 1 else f"{count} more"
            raise _errors.FullError(
                f"time scale {self.name!r} has {self.filled} of {self.needed} items, and {given} came",
                scale=self.name,
                filled=self.filled,
                needed=self.needed,
            )

    def put(self, values: Sequence[Any], count: int | None = None) -> None:
        """Writes what was checked: one item, or `count` of them with an axis."""
        at: Any = ...
        if self.length is not None:
            at = self.filled if count is None else slice(self.filled, self.filled + count)
            at = at if self.envs is None else (slice(None), at)
        try:
            for target, value in zip(self.targets, values):
                target[at] = value
        except ValueError:
            if all(target.flags.writeable for target in self.targets):
                raise
            raise _errors.ClaimError("the claim that was written into has ended") from None
        self.filled += 1 if count is None else count


class _Item:
    """A leaf of an item: its whole name, and what may be written into it."""

    def __init__(self, leaf: Leaf, envs: int | None) -> None:
        self.name = leaf.name
        self.dtype = _dtypes.dtype(leaf.dtype)
        self.shape = leaf.shape
        self.axis = 0 if envs is None else 1
        self.given = leaf.shape if envs is None else (envs, *leaf.shape)
        # Python numbers that need no closer look.
        self.number, self.least, self.most = _leaves.plain(self.dtype)

    def checked(self, value: Any) -> Any:
        """What was given for one item: an array of this dtype and shape, or a number that goes into one."""
        kind = type(value)
        if kind in _NUMBERS and self.given == ():
            if kind is self.number and self.least <= value <= self.most:
                return value
            return _leaves.number(self.name, self.dtype, value)
        if self.given == () and isinstance(value, _NUMBERS) and not isinstance(value, np.generic):
            # Of a class of its own, such as an IntEnum's, by its value.
            plain: Any = next(number for number in _NUMBERS if isinstance(value, number))
            return self.checked(plain.__new__(plain, value))
        array = self._array(value)
        if array.shape != self.given:
            raise _leaves.other_shape(self.name, self.dtype, list(self.given), array, False, None, False)
        return array

    def checked_many(self, value: Any, count: int | None) -> Any:
        """What was given for several items: as many as for the leaf before, if there is one."""
        array = self._array(value)
        axis, got = self.axis, array.shape
        if (*got[:axis], *got[axis + 1 :]) == self.given and len(got) > axis and count in (None, got[axis]):
            return array
        n: Any = "n" if count is None else count
        wanted = [*self.given[:axis], n, *self.given[axis:]]
        raise _leaves.other_shape(self.name, self.dtype, wanted, array, False, None, False)

    def _array(self, value: Any) -> Any:
        array: Any = value if type(value) is np.ndarray or isinstance(value, np.generic) else _leaves.as_array(self.name, value)
        if array.dtype is not self.dtype and array.dtype != self.dtype:
            raise _leaves.other_dtype(self.name, self.dtype, list(self.given), array, False, None)
        return array
