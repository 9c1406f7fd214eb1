"""What describes samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import optree

from ... import _tree


def expect_arrays(tree: Any, what: str) -> None:
    """Its leaves are arrays, since numbers have no dtype of their own."""
    leaves, treespec = optree.tree_flatten(tree)
    for name, leaf in zip(_tree.names(treespec), leaves):
        if not isinstance(leaf, np.ndarray):
            raise TypeError(f"All leaves of {what} must be numpy arrays, and {name!r} is a {type(leaf).__name__}")
