"""The learner's side: a private daemon, its table, and batches out of it."""

from __future__ import annotations

import collections
import math
import threading
from typing import Any, Callable, Generator, NamedTuple

from ... import _errors
from ..._local import local
from ..._native import Batch, Token
from ._closed import ConnectionClosedError, told
from ._example import expect_arrays
from ._info import Counter, SampleInfo
from ._port import Place, Port

_TABLE = "samples"
# A reader's prefetch is of 16 bits.
_MOST_AHEAD = 0xFFFF


class Sample(NamedTuple):
    """A batch, as the pytree of read-only arrays with samples first, and numbers about the ring."""

    batch: Any
    info: SampleInfo


class TcpTransport:
    """The port of a server; 0 for any that is free. Nothing runs in `num_threads`."""

    def __init__(self, port: int, num_threads: int = 8) -> None:
        if not 0 <= port <= 0xFFFF:
            raise OverflowError(f"a port is 0 to 65535, not {port}")
        self.port = port
        self.num_threads = num_threads


class Server:
    """Batches of `batch_size` samples such as `example`, a pytree of arrays, from clients or from `submit`.

    The ring has `num_buffers` batches (2 or more). With `pin_host_memory` it is page-locked for CUDA, or `RuntimeError` is
    raised. `num_drainers` and `producer_queue_size` say nothing here.
    """

    def __init__(
        self,
        example: Any,
        batch_size: int,
        transport: TcpTransport | None = None,
        num_buffers: int = 3,
        num_drainers: int = 8,
        producer_queue_size: int = 8,
        pin_host_memory: bool = False,
    ) -> None:
        del num_drainers, producer_queue_size
        if batch_size < 1:
            raise ValueError(f"batch_size is 1 or more, not {batch_size}")
        if num_buffers < 2:
            raise ValueError(f"num_buffers is 2 or more, not {num_buffers}: one is read while the next one fills")
        expect_arrays(example, "example")
        self._transport = transport
        self._port: Port | None = None
        # As many clients as there can be; at its end they are not waited for.
        self._daemon = local(max_clients=1 << 16, drain_timeout="0s")
        try:
            self._table = self._daemon.create_table(_TABLE, example=example, batch_size=batch_size, capacity=num_buffers)
            self._reader = self._table.reader(min(num_buffers, _MOST_AHEAD), pin=pin_host_memory)
        except _errors.PinError as error:
            self._daemon.close()
            raise RuntimeError(str(error)) from error
        except BaseException:
            self._daemon.close()
            raise
        self._counter = Counter(self._table)
        self._token = Token()
        self._lock = threading.Lock()
        # Once it is closed: the batches that are left.
        self._left: collections.deque[Batch] | None = None

    def start(self) -> None:
        """Listens on the transport's port."""
        with self._lock:
            if self._transport is None:
                raise RuntimeError("no transport configured; pass TcpTransport to __init__")
            if self._left is not None:
                raise RuntimeError("failed to start transport: the server is closed")
            if self._port is not None:
                raise RuntimeError("failed to start transport: it is started already")
            try:
                self._port = Port(self._transport.port, Place(self._daemon.path, _TABLE))
            except OSError as error:
                raise RuntimeError(f"failed to start transport: {error}") from error

    @property
    def port(self) -> int:
        """The port that it listens on, after `start`."""
        if self._transport is None:
            raise RuntimeError("no transport configured; pass TcpTransport to __init__")
        port = self._port
        if port is None:
            raise RuntimeError("transport not started; call start() first")
        return port.number

    def sample(self) -> Sample | None:
        """Waits for the next batch. None when the server is closed and all complete batches are out."""
        return self._next(lambda batch: batch.data)

    def dataset_iter(self, *, copy: bool = False) -> Generator[Sample, None, None]:
        """Batches until the server is closed. With `copy`, arrays of your own, which hold nothing of the ring."""
        # No name in this frame keeps a batch.
        yield from iter(lambda: self._next(Batch.copy if copy else lambda batch: batch.data), None)

    def submit(self, data: Any) -> None:
        """Writes one sample. Waits while the ring is full."""
        with self._lock:
            if self._left is not None:
                raise ConnectionClosedError("the server is closed")
            if self._counter.submitter is None:
                self._counter.submitter = self._table.writer(timeout=math.inf)
            writer = self._counter.submitter
        with told("the server"):
            writer.append(data, _token=self._token)

    def close(self) -> None:
        """Ends it: clients are told, and `sample()` returns the batches that are complete, then None. A batch that is not
        complete is lost."""
        with self._lock:
            if self._left is not None:
                return
            self._left = collections.deque()
            if self._port is not None:
                self._port.close()
                self._port = None
            # Who waits comes back, and waits for this lock.
            self._token.cancel()
            self._reader._wake()
            if self._counter.submitter is not None:
                self._counter.submitter._wake()
            try:
                while True:
                    self._left.append(self._reader.next(timeout=0))
            except _errors.Error:
                pass  # there is no other one: none is complete, or all are held, or the daemon is gone
            self._counter.end()
            try:
                self._table.drop()
            except _errors.Error:
                pass  # the daemon is gone
            self._daemon.close()

    def reset_histograms(self) -> None:
        """Does nothing: there are none."""

    def __repr__(self) -> str:
        state = "closed" if self._left is not None else f"at {self._daemon.path}"
        return f"<echod.compat.idecho.Server {state}: {self._table!r}>"

    def _next(self, data: Callable[[Batch], Any]) -> Sample | None:
        batch = self._wait()
        if batch is None:
            return None
        self._counter.add_sampled(len(batch))
        return Sample(data(batch), SampleInfo(self._counter))

    def _wait(self) -> Batch | None:
        if self._left is None:
            try:
                return self._reader.next(_token=self._token)
            except _errors.Error:
                if self._left is None:
                    raise
        # It was closed, meanwhile or before.
        with self._lock:
            return self._left.popleft() if self._left else None
