"""Readers of latest tables: the newest value out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _native, _reprs
from ._asyncio import run
from ._reader import Pinned, library, vendor_roots

if TYPE_CHECKING:
    from ._connection import Table


class LatestReader(_native.LatestReader):
    """The right to take the newest value of a latest table: `get`, `newer_than`, `wait_newer_than`.

    Readers disturb neither the publisher nor each other. One may hold four different values at a time. Threads may share one.
    Pickled to another process it attaches anew there.
    """

    table: Table
    _options: dict[str, Any]

    def __new__(
        cls, table: Table, pin: bool | str = False, poll: float = 0.0, copy: bool = False, example: Any = None
    ) -> LatestReader:
        structure = table._structure_of(example)
        reader = super().__new__(cls, table.connection._client, table.name, structure, bool(pin), poll, copy)
        reader.table = table
        reader._options = {"pin": pin, "poll": poll, "copy": copy, "example": example}
        if pin:
            reader._pin(library(pin), vendor_roots())
        return reader

    @property
    def pinned(self) -> Pinned | None:
        """What is page-locked for CUDA, if the reader was made with `pin=True`."""
        pinned = self._pinned()
        return None if pinned is None else Pinned(*pinned)

    async def wait_newer_than_async(self, version: int, timeout: float | None = None) -> _native.Value:
        """As `wait_newer_than`, for asyncio. If it is cancelled no value stays held."""
        value: _native.Value = await run(self, self.wait_newer_than, (version, timeout), {}, _native.Value.release)
        return value

    def __reduce__(self) -> Any:
        return _attach, (self.table, self._options)

    def __repr__(self) -> str:
        pinned, pending = self.pinned, self._pending()
        said = f", {pending} of them until their events have happened" if pending else ""
        said += ", copies" if self._options["copy"] else ""
        said += f"; {_reprs.size(pinned.bytes)} page-locked by {pinned.library}" if pinned else ""
        return f"<echod.LatestReader of {self.table.name!r}: holds {_reprs.count(self.held, 'value')}{said}>"


def _attach(table: Table, options: dict[str, Any]) -> LatestReader:
    return LatestReader(table, **options)
