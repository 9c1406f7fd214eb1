"""The end of a connection, as id-echo says it."""

from __future__ import annotations

import contextlib
from typing import Iterator

from ..._errors import CancelledError, ClosedError, Error, GoneError


class ConnectionClosedError(Error, ConnectionError):
    """The client was closed, or its server is closed or gone."""


@contextlib.contextmanager
def told(who: str) -> Iterator[None]:
    """Says of an end that it is that."""
    try:
        yield
    except (CancelledError, ClosedError, GoneError) as error:
        raise ConnectionClosedError(f"{who} is closed: {error}") from error
