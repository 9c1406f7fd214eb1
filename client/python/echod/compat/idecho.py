"""The interface of id-echo 0.2 over a private daemon: ``from echod.compat.idecho import Server, TcpClient, TcpTransport``.

A program that was written for it changes its import. What is different, and why:

- Samples move through shared memory, so a client must run on the server's machine, and as its user. The port that a
  `TcpTransport` opens, on the loopback interface alone, only tells clients where the daemon is.
- Each sample is compared with the example: its structure, its dtypes, its shapes. There, only the sum of its bytes is.
- A batch stays as it is for as long as an array over it is alive, also behind the next `sample()`. Who keeps all
  `num_buffers` of them gets `echod.AllHeldError`; there, what they hold would change.
- When `send` returns, the sample will be delivered; `wait` has nothing to wait for.
- A client or a `submit` whose server is gone raises `ConnectionClosedError`; nothing waits for ever, nothing is dropped
  silently.
- A `TrajectoryAccumulator` builds only what is full, and converts and broadcasts nothing.
- There are no queues and no drainers: `num_drainers`, `producer_queue_size`, `num_threads` and `max_inflight_msgs` are
  checked and do nothing, and the counters of queues and the histograms of `SampleInfo` stay at zero.
"""

from __future__ import annotations

import json
import math
import os
import socket
import threading
from typing import Any, Generator, NamedTuple

import numpy as np
import optree

from .. import _errors
from .._accumulator import Accumulator
from .._connection import connect
from .._local import local

__all__ = [
    "ConnectionClosedError",
    "HistSnapshot",
    "Sample",
    "SampleInfo",
    "Server",
    "TcpClient",
    "TcpTransport",
    "TrajectoryAccumulator",
]

_TABLE = "samples"
# What a server says to whoever connects: this word, and where its daemon is.
_GREETING = "echod.compat.idecho"


class ConnectionClosedError(ConnectionError):
    """The server is gone."""


class HistSnapshot(NamedTuple):
    """A histogram of times; nothing is measured here."""

    count: int = 0
    min_ns: int = 0
    max_ns: int = 0
    mean_ns: float = 0.0
    p50_ns: int = 0
    p90_ns: int = 0
    p99_ns: int = 0


class SampleInfo(NamedTuple):
    """The server's counters when a batch was taken."""

    store_size: int
    """Samples that are stored, this batch not among them."""
    active_connections: int
    """Clients."""
    samples_inserted_total: int
    """Samples that clients have sent; those of `submit` are not counted."""
    notify_count: int
    """Batches that have become complete."""
    queue_depth_sum: int = 0
    queue_depth_max: int = 0
    push_blocked_count: int = 0
    cas_success_total: int = 0
    cas_failure_total: int = 0
    reservation_retries_total: int = 0
    drain_round: HistSnapshot = HistSnapshot()
    memcpy: HistSnapshot = HistSnapshot()
    queue_dwell: HistSnapshot = HistSnapshot()


class Sample(NamedTuple):
    """A batch: the example's pytree with a leading axis of `batch_size`, and the counters."""

    batch: Any
    info: SampleInfo


class TcpTransport:
    """Lets clients of other processes find a server by a port of this machine; with 0 the kernel chooses one."""

    def __init__(self, port: int, num_threads: int = 8) -> None:
        if not 0 <= port < 1 << 16:
            raise ValueError(f"port {port} is not 0 to 65535")
        _at_least(1, num_threads=num_threads)
        self.port = port
        self.num_threads = num_threads


class Server:
    """Assembles samples into batches, for one trainer."""

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
        _at_least(1, batch_size=batch_size, num_drainers=num_drainers, producer_queue_size=producer_queue_size)
        _at_least(2, num_buffers=num_buffers)
        _check_arrays(example)
        self._transport = transport
        self._door: _Door | None = None
        self._batch_size = batch_size
        self._closed = threading.Event()
        self._daemon = local()
        try:
            self._table = self._daemon.create_table(
                _TABLE, example=example, batch_size=batch_size, capacity=num_buffers
            )
            # It never finishes, so that the table does not end with its last client.
            self._writer = self._table.writer(timeout=math.inf)
            self._reader = self._table.reader(prefetch=num_buffers, pin=pin_host_memory)
        except _errors.PinError as error:
            self._daemon.close()
            raise RuntimeError(str(error)) from error
        except BaseException:
            self._daemon.close()
            raise

    def start(self) -> None:
        """Lets clients find it."""
        if self._transport is None:
            raise RuntimeError("no transport configured; pass TcpTransport to __init__")
        if self._closed.is_set():
            raise ConnectionClosedError("the server is closed")
        if self._door is None:
            self._door = _Door(self._transport.port, self._daemon.path)

    @property
    def port(self) -> int:
        """Where clients find it."""
        if self._transport is None:
            raise RuntimeError("no transport configured; pass TcpTransport to __init__")
        if self._door is None:
            raise RuntimeError("transport not started; call start() first")
        return self._door.port

    def submit(self, data: Any) -> None:
        """Writes one sample from this process. Waits for room if there is none."""
        try:
            self._writer.append(data)
        except (_errors.GoneError, _errors.ClosedError, _errors.CancelledError) as error:
            raise ConnectionClosedError("the server is closed") from error

    def sample(self) -> Sample | None:
        """The next batch, as read-only views; None once the server is closed. Waits for it."""
        try:
            batch = self._reader.next()
            info = self._info()
        except (_errors.GoneError, _errors.ClosedError, _errors.CancelledError):
            # The daemon is this server's own, and ends before it by an accident alone.
            if not self._closed.is_set():
                raise
            return None
        return Sample(batch.data, info)

    def dataset_iter(self, *, copy: bool = False) -> Generator[Sample, None, None]:
        """The batches until the server is closed; with `copy`, as arrays of their own, which may be kept."""
        while (sample := self.sample()) is not None:
            if copy:
                copied = optree.tree_map(np.array, sample.batch)
                sample = Sample(copied, sample.info)
            yield sample
            # Not held while the next one is waited for.
            del sample

    def reset_histograms(self) -> None:
        """Nothing is measured here."""

    def close(self) -> None:
        """Ends it: whoever waits in `sample` gets None. What was not read is lost."""
        if self._closed.is_set():
            return
        self._closed.set()
        if self._door is not None:
            self._door.close()
        try:
            self._table.drop()
        except _errors.Error:
            pass  # the daemon is gone already
        self._daemon.close()

    def _info(self) -> SampleInfo:
        said = self._table.info()
        own = self._writer.committed
        taken = said["samples_delivered"] + self._reader.held * self._batch_size
        return SampleInfo(
            store_size=max(0, said["samples_committed"] - taken),
            active_connections=said["writers"] - 1,
            samples_inserted_total=max(0, said["samples_committed"] - own),
            notify_count=said["samples_committed"] // self._batch_size,
        )


class TcpClient:
    """Sends samples to a server of this machine."""

    def __init__(self, host: str, port: int, data_sample: Any, max_inflight_msgs: int = 32) -> None:
        _at_least(1, max_inflight_msgs=max_inflight_msgs)
        _check_arrays(data_sample)
        path = _find(host, port)
        try:
            self._connection = connect(path)
            self._writer = self._connection.table(_TABLE, example=data_sample).writer(timeout=math.inf)
        except (_errors.ConnectError, _errors.GoneError, _errors.ClosedError, _errors.NoSuchTableError) as error:
            raise ConnectionClosedError(f"the server at {host}:{port} is gone: {error}") from error
        self._closed = False

    def send(self, data: Any) -> None:
        """Sends one sample: when it returns the sample will be delivered. Waits for room if there is none."""
        if self._closed:
            raise ConnectionClosedError("the client is closed")
        try:
            self._writer.append(data)
        except (_errors.GoneError, _errors.ClosedError) as error:
            raise ConnectionClosedError(f"the server is gone: {error}") from error

    def wait(self) -> None:
        """Returns when everything that was sent has arrived, which it has."""

    def close(self) -> None:
        """Ends the connection."""
        if not self._closed:
            self._closed = True
            self._writer.finish()
            del self._writer, self._connection


class TrajectoryAccumulator(Accumulator):
    """Collects one sample whose parts come at different times; see `echod.Accumulator`.

    `add` raises KeyError for a time scale that is not there and IndexError for one that is full; `build`
    `echod.NotFullError` if something lacks.
    """

    def __init__(self, example: dict[str, Any]) -> None:
        super().__init__(example)

    def add(self, name: str, data: Any) -> None:
        """Fills the next place of a time scale."""
        super().add(name, data)


class _Door:
    """Tells whoever connects where the daemon is."""

    def __init__(self, port: int, path: str) -> None:
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port: int = self._socket.getsockname()[1]
        self._greeting = json.dumps({"this": _GREETING, "socket": path}).encode()
        self._thread = threading.Thread(target=self._serve, name="echod-idecho-door", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return  # closed
            with client:
                try:
                    # Fits into the socket's buffer: it waits for nobody.
                    client.sendall(self._greeting)
                except OSError:
                    pass  # it did not stay to hear it

    def close(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        except OSError:
            pass
        self._socket.close()
        self._thread.join()


def _find(host: str, port: int) -> str:
    """The socket of the daemon whose server is at that port."""
    if not _is_here(host):
        raise ConnectionError(
            f"{host} is another machine, and shared memory ends at this one: run the client where the server runs"
        )
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as door:
            said = b""
            while chunk := door.recv(1 << 12):
                said += chunk
                if len(said) > 1 << 16:
                    break
    except OSError as error:
        raise type(error)(error.errno, f"no server at port {port} of this machine: {error.strerror or error}") from error
    try:
        greeting = json.loads(said)
        if greeting["this"] == _GREETING:
            return os.fspath(greeting["socket"])
    except (ValueError, KeyError, TypeError):
        pass
    raise ConnectionError(f"who listens at port {port} is no server of echod.compat.idecho")


def _is_here(host: str) -> bool:
    """Whether an address of that name is one of this machine's."""
    for family, kind, protocol, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
        try:
            with socket.socket(family, kind, protocol) as trial:
                trial.bind(address)  # only addresses of one's own can be bound
        except OSError:
            continue
        return True
    return False


def _check_arrays(tree: Any) -> None:
    leaves = optree.tree_leaves(tree)
    if not leaves or not all(isinstance(leaf, np.ndarray) for leaf in leaves):
        raise TypeError("All leaves must be numpy arrays")


def _at_least(least: int, **given: int) -> None:
    for name, value in given.items():
        if value < least:
            raise ValueError(f"{name} is {value}, and must be at least {least}")
