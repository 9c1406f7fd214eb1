"""Publishers of latest tables: values in, each as the newest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _native
from ._asyncio import run

if TYPE_CHECKING:
    from ._connection import Table


class Publisher(_native.Publisher):
    """The right to publish values of a latest table: `publish`, `claim`, `finish`.

    A table has one at a time: another one can attach when it has finished or is gone, also one that was pickled to another
    process. Threads may share one, a call at a time. A context manager: leaving the block finishes it, unless the block
    raised.
    """

    table: Table
    _timeout: float | None

    def __new__(cls, table: Table, timeout: float | None = None) -> Publisher:
        publisher = super().__new__(cls, table.connection._client, table.name, table._structure, timeout)
        publisher.table = table
        publisher._timeout = timeout
        return publisher

    async def publish_async(self, value: Any, *, timeout: float | None = None) -> int:
        """As `publish`, for asyncio. If it is cancelled the value may have been published or not."""
        version: int = await run(self, self.publish, (value,), {"timeout": timeout})
        return version

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, exc_type: Any, exc: Any, traceback: Any) -> None:
        if exc_type is None:
            self.finish()

    def __reduce__(self) -> Any:
        return Publisher, (self.table, self._timeout)

    def __repr__(self) -> str:
        version, does = self._said()
        said = does if version is None else f"version {version}, {does}" if version else f"nothing published yet, {does}"
        return f"<echod.Publisher of {self.table.name!r}: {said}>"
