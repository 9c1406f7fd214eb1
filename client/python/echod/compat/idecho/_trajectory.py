"""Rollouts of several time scales, as id-echo describes them: by an example whose leading axes are the lengths."""

from __future__ import annotations

from typing import Any

import optree

from ..._accumulator import Accumulator
from ._example import expect_arrays


class TrajectoryAccumulator:
    """Collects a rollout: `example` has the time scales by name, each a pytree of arrays.

    If all leaves of one have the same leading axis of N > 1, it is filled by N items; if one leaf is 0-d, or all have a
    leading axis of 1, it has one item. Items come without that axis, or with one of length 1.
    """

    def __init__(self, example: dict[str, Any]) -> None:
        if not isinstance(example, dict):
            raise TypeError("example must be a dict with timescale names as top-level keys")
        items: dict[str, Any] = {}
        lengths: dict[str, int] = {}
        for name, tree in example.items():
            expect_arrays(tree, f"timescale {name!r}")
            leaves = optree.tree_leaves(tree)
            if not leaves:
                raise ValueError(f"Timescale {name!r} has no array leaves")
            items[name] = tree
            if all(leaf.ndim > 0 for leaf in leaves) and any(leaf.shape[0] != 1 for leaf in leaves):
                found = sorted({leaf.shape[0] for leaf in leaves})
                if len(found) > 1:
                    raise ValueError(
                        f"All leaves in buffered timescale {name!r} must share the same leading dimension (got {found}); "
                        "make any leaf 0-d or all shape (1, ...) to mark the timescale single-item instead"
                    )
                lengths[name] = found[0]
                if found[0] > 0:
                    items[name] = optree.tree_map(lambda leaf: leaf[0], tree)
        self._accumulator = Accumulator(items, lengths)
        self._shapes = {name: [leaf.shape for leaf in optree.tree_leaves(item)] for name, item in items.items()}

    def add(self, name: str, data: Any) -> None:
        """Puts the next item into time scale `name`."""
        shapes = self._shapes.get(name)
        if shapes is None:
            raise KeyError(f"Unknown timescale {name!r}. Known: {list(self._shapes)}")
        leaves, treespec = optree.tree_flatten(data)
        if len(leaves) == len(shapes):
            data = optree.tree_unflatten(treespec, map(_fitted, leaves, shapes))
        self._accumulator.add(name, data)

    def build(self) -> dict[str, Any]:
        """The rollout, whose arrays are the accumulator's own: send it before the next `add`, which begins the next one."""
        built: dict[str, Any] = self._accumulator.build()
        return built

    def reset(self) -> None:
        """Forgets what was added."""
        self._accumulator.reset()


def _fitted(leaf: Any, shape: tuple[int, ...]) -> Any:
    """The leaf without a leading axis of 1 that it has too much, or with one that it lacks."""
    given = getattr(leaf, "shape", None)
    if given == (1, *shape):
        return leaf[0]
    if shape[:1] == (1,) and given == shape[1:]:
        return leaf[None]
    return leaf
