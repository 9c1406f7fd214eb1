"""Readers: batches out."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _native, _reprs
from ._asyncio import run

if TYPE_CHECKING:
    from ._connection import Table


class Pinned(NamedTuple):
    """What is page-locked: so many bytes, by which library, in how many pieces."""

    bytes: int
    library: str
    pieces: int


class Reader(_native.Reader):
    """The right to read batches out of a table: iterate it, or call `next` or `try_next`.

    Each batch goes to one reader. Threads may share one. Pickled to another process it attaches anew there.
    """

    table: Table
    _options: dict[str, Any]

    def __new__(
        cls,
        table: Table,
        prefetch: int = 2,
        pin: bool | str = False,
        poll: float = 0.0,
        copy: bool = False,
        patience: float | None = 1.0,
        example: Any = None,
    ) -> Reader:
        structure = table._structure_of(example)
        client = table.connection._client
        reader = super().__new__(
            cls, client, table.name, structure, prefetch, bool(pin), poll, copy, patience, table._arrays, table.batch_size
        )
        reader.table = table
        reader._options = {
            "prefetch": prefetch, "pin": pin, "poll": poll, "copy": copy, "patience": patience, "example": example,
        }  # fmt: skip
        if pin:
            reader._pin(library(pin), vendor_roots())
        return reader

    @property
    def pinned(self) -> Pinned | None:
        """What is page-locked for CUDA, if the reader was made with `pin=True`."""
        pinned = self._pinned()
        return None if pinned is None else Pinned(*pinned)

    async def next_async(self, timeout: float | None = None) -> _native.Batch:
        """As `next`, for asyncio. If it is cancelled no batch is lost."""
        batch: _native.Batch = await run(self, self.next, (timeout,), {}, self._keep)
        return batch

    def __aiter__(self) -> Reader:
        return self

    async def __anext__(self) -> _native.Batch:
        from ._errors import ClosedError

        try:
            return await self.next_async()
        except ClosedError as error:
            if error.reason == "finished":
                raise StopAsyncIteration from None
            raise

    def __reduce__(self) -> Any:
        return _attach, (self.table, self._options)

    def __repr__(self) -> str:
        pinned, pending = self.pinned, self._pending()
        said = f", {pending} of them until their events have happened" if pending else ""
        said += ", copies" if self._options["copy"] else ""
        said += f"; {_reprs.size(pinned.bytes)} page-locked by {pinned.library}" if pinned else ""
        batches = _reprs.count(self.prefetch, "batch")
        return f"<echod.Reader of {self.table.name!r}: holds {self.held} of {batches}{said}>"


def _attach(table: Table, options: dict[str, Any]) -> Reader:
    return Reader(table, **options)


def library(pin: object) -> str | None:
    """The CUDA runtime's file that `pin=` names, if it names one."""
    return os.fspath(pin) if isinstance(pin, (str, os.PathLike)) else None


def vendor_roots() -> list[str]:
    """Where NVIDIA's wheels are installed: every directory of the package `nvidia`, which is a namespace as a rule."""
    try:
        found = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return []
    return [] if found is None else [os.fspath(root) for root in found.submodule_search_locations or ()]
