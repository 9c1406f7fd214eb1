"""Writers: samples in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _native
from ._asyncio import run
from ._reprs import count

if TYPE_CHECKING:
    from ._connection import Table


class Writer(_native.Writer):
    """The right to write samples into a table: `append`, `append_many`, `claim`, `finish`.

    Threads may share one, a call at a time; a writer each is faster. Pickled to another process it attaches anew there.
    A context manager: leaving the block finishes it, unless the block raised.
    """

    table: Table
    _timeout: float | None

    def __new__(cls, table: Table, timeout: float | None = None) -> Writer:
        client = table.connection._client
        writer = super().__new__(cls, client, table.name, table._structure, timeout, table._arrays)
        writer.table = table
        writer._timeout = timeout
        return writer

    async def append_async(self, sample: Any, *, timeout: float | None = None) -> None:
        """As `append`, for asyncio. If it is cancelled the sample may have been written or not."""
        await run(self, self.append, (sample,), {"timeout": timeout})

    async def append_many_async(self, samples: Any, *, timeout: float | None = None) -> None:
        """As `append_many`, for asyncio. If it is cancelled some samples may have been written."""
        await run(self, self.append_many, (samples,), {"timeout": timeout})

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, exc_type: Any, exc: Any, traceback: Any) -> None:
        if exc_type is None:
            self.finish()

    def __reduce__(self) -> Any:
        return Writer, (self.table, self._timeout)

    def __repr__(self) -> str:
        written, does = self._said()
        said = does if written is None else f"{count(written, 'sample')} written, {does}"
        return f"<echod.Writer of {self.table.name!r}: {said}>"
