"""What id-echo says with each batch."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import NamedTuple

from ..._connection import Table
from ..._errors import Error
from ..._writer import Writer


@dataclass(frozen=True)
class HistSnapshot:
    """A histogram in nanoseconds, of which there is none: zeros."""

    count: int = 0
    min_ns: int = 0
    max_ns: int = 0
    mean_ns: float = 0.0
    p50_ns: int = 0
    p90_ns: int = 0
    p99_ns: int = 0


_ZEROS = HistSnapshot()


class Counts(NamedTuple):
    """A server's numbers at one time."""

    store_size: int
    active_connections: int
    push_blocked_count: int
    samples_inserted_total: int
    notify_count: int


class Counter:
    """Counts for one server. It outlives the server's daemon, with what that said last."""

    def __init__(self, table: Table) -> None:
        self._table: Table | None = table
        self._said = table.info()
        self._submitted = 0
        self._lock = threading.Lock()
        # Of its own, since the other one is held while the daemon is asked.
        self._sampling = threading.Lock()
        self.sampled = 0
        # That of `submit`, which is no client.
        self.submitter: Writer | None = None

    def add_sampled(self, n: int) -> None:
        """Counts a batch, while other threads may count theirs."""
        with self._sampling:
            self.sampled += n

    def count(self) -> Counts:
        with self._lock:
            sampled = self.sampled
            if self._table is not None:
                self._said = self._table.info()
                self._submitted = 0 if self.submitter is None else self.submitter.committed
            committed, writers = self._said["samples_committed"], self._said["writers"]
            return Counts(
                store_size=committed - sampled,
                active_connections=writers - (self.submitter is not None),
                push_blocked_count=sum(member["waits"] for member in self._said["members"] if member["writer"]),
                samples_inserted_total=committed - self._submitted,
                notify_count=committed // self._said["batch_size"],
            )

    def end(self) -> None:
        """Asks the daemon for the last time."""
        try:
            self.count()
        except Error:
            pass  # it is gone: what it said before is as good as it gets
        with self._lock:
            self._table = None


class SampleInfo:
    """Numbers about the ring and those who write into it, counted when one of them is first looked at."""

    __slots__ = ("_counter", "_counts")

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._counts: Counts | None = None

    def _get(self) -> Counts:
        if self._counts is None:
            self._counts = self._counter.count()
        return self._counts

    @property
    def store_size(self) -> int:
        """Samples in the ring that `sample()` has not returned, those of the batch that is being filled included."""
        return self._get().store_size

    @property
    def active_connections(self) -> int:
        """Clients that are attached."""
        return self._get().active_connections

    @property
    def push_blocked_count(self) -> int:
        """How often the clients that are attached, of the first 64, have waited for room."""
        return self._get().push_blocked_count

    @property
    def samples_inserted_total(self) -> int:
        """Samples that clients have sent: without those of `submit`."""
        return self._get().samples_inserted_total

    @property
    def notify_count(self) -> int:
        """Batches that were filled."""
        return self._get().notify_count

    @property
    def queue_depth_sum(self) -> int:
        """0: there are no queues."""
        return 0

    queue_depth_max = cas_success_total = cas_failure_total = reservation_retries_total = queue_depth_sum

    @property
    def drain_round(self) -> HistSnapshot:
        """Zeros: it is not measured."""
        return _ZEROS

    memcpy = queue_dwell = drain_round

    def __repr__(self) -> str:
        return f"SampleInfo({', '.join(f'{name}={value}' for name, value in self._get()._asdict().items())})"
