"""The worker's side: samples in."""

from __future__ import annotations

import math
from typing import Any

from ... import _errors, _tree
from ..._connection import Connection, Table
from ..._native import Token
from ._closed import ConnectionClosedError, told
from ._example import expect_arrays
from ._port import ask


class TcpClient:
    """Writes samples such as `data_sample`, a pytree of arrays, into the ring of the server that has that port.

    In another process than the server's, in a forked one too, or in the same; `host` is a name of this machine. There is
    never anything in flight, so that `max_inflight_msgs` bounds nothing.
    """

    def __init__(self, host: str, port: int, data_sample: Any, max_inflight_msgs: int = 32) -> None:
        if max_inflight_msgs < 1:
            raise ValueError(f"max_inflight_msgs is 1 or more, not {max_inflight_msgs}")
        expect_arrays(data_sample, "data_sample")
        self._peer = f"{host}:{port}"
        place = ask(host, port)
        with told(f"the server at {self._peer}"):
            connection = Connection(place.socket)
            table = _matching(connection.table(place.table), data_sample)
            self._writer: Any = table.writer(timeout=math.inf)
        self._token = Token()

    def send(self, data: Any) -> None:
        """Writes one sample. When it returns the sample is in its batch. Waits while the ring is full.

        Raises `ConnectionClosedError` when this client or its server is closed, and `echod.SampleError` for what is no
        sample of the server's.
        """
        writer = self._writer
        if writer is None:
            raise ConnectionClosedError(f"TcpClient for {self._peer} is closed")
        with told(f"TcpClient for {self._peer}"):
            writer.append(data, _token=self._token)

    def wait(self) -> None:
        """Returns at once: what was sent was written."""

    def close(self) -> None:
        """Ends it, and a `send` that waits in another thread. Calling it again does nothing."""
        writer, self._writer = self._writer, None
        self._token.cancel()
        if writer is not None:
            writer._wake()


def _matching(table: Table, sample: Any) -> Table:
    """The table, for samples of that structure."""
    leaves, treespec = _tree.spec(sample)
    theirs, ours = {leaf.name: leaf for leaf in table.leaves}, {leaf.name: leaf for leaf in leaves}
    differing = [name for name in {**theirs, **ours} if theirs.get(name) != ours.get(name)]
    if differing:
        said = "; ".join(
            f"{name!r} is {theirs.get(name, 'absent')} there and {ours.get(name, 'absent')} here" for name in differing[:8]
        )
        raise _errors.SpecMismatchError(f"Server spec mismatch: {said}", kind="spec_mismatch")
    return Table(table.connection, table.name, table.leaves, table.batch_size, table.capacity, treespec)
