"""Replay tables: samples are chosen, read and put back, until they are removed."""

from __future__ import annotations

from typing import Any, NamedTuple

from . import _native, _reprs
from ._asyncio import run
from ._connection import Table
from ._errors import InvalidSpecError
from ._reader import Pinned, library, vendor_roots


class Prioritized(NamedTuple):
    """A selector: each item in proportion to its priority to the power of `exponent`, one of priority 0 never."""

    exponent: float

    def __str__(self) -> str:
        return f"prioritized:{float(self.exponent)!r}"


class SampleToInsertRatio(NamedTuple):
    """A rate limiter: each item is sampled `samples_per_insert` times on average, after the first `min_size` inserts.

    `error_buffer` is how far from that either side may be: a number b is `samples_per_insert * min_size` give or take b,
    and a pair is the interval itself, in which inserts * `samples_per_insert` - samples stays.
    """

    samples_per_insert: float
    min_size: int
    error_buffer: float | tuple[float, float]

    def __str__(self) -> str:
        around = self.error_buffer
        buffer = [*around] if isinstance(around, (tuple, list)) else [around]
        return ":".join(["ratio", repr(float(self.samples_per_insert)), str(self.min_size), *(repr(float(b)) for b in buffer)])


def settings(
    max_size: int,
    batch_size: int,
    sampler: str | Prioritized,
    remover: str | Prioritized,
    max_times_sampled: int,
    rate_limiter: str | SampleToInsertRatio,
    max_staleness: int | None,
    staleness_decay: float | None,
    samples_per_version: int | None,
    max_running: int | None,
) -> dict[str, Any]:
    """A replay table's settings, as the native module takes them."""
    if (samples_per_version is None) != (max_running is None):
        raise InvalidSpecError(
            "samples_per_version and max_running go together: both say how workers are let in", kind="invalid_spec"
        )
    admission = {"samples_per_version": samples_per_version, "max_running": max_running}
    numbers = {"max_size": max_size, "batch_size": batch_size, "max_times_sampled": max_times_sampled, **admission}
    for what, number in numbers.items():
        # What is between is for the daemon to judge.
        if number is not None and not 0 <= number < 1 << 32:
            raise InvalidSpecError(f"{what} is {number}, and must be 0 to {(1 << 32) - 1}", kind="invalid_spec")
    if max_staleness is not None and not 0 <= max_staleness < 1 << 63:
        raise InvalidSpecError(f"max_staleness is {max_staleness}, and must be 0 to 2**63 - 1", kind="invalid_spec")
    return {
        "max_size": max_size,
        "batch_size": batch_size,
        "sampler": str(sampler),
        "remover": str(remover),
        "max_times_sampled": max_times_sampled,
        "rate_limiter": str(rate_limiter),
        "max_staleness": max_staleness,
        "staleness_decay": staleness_decay,
        "admission": None if samples_per_version is None else (samples_per_version, max_running),
    }


class ReplayTable(Table):
    """A replay table: its writers and readers, and what it holds. Pickled to another process it attaches anew there.

    `batch_size` is what its readers get unless they say otherwise, and `capacity` how many items it holds.
    """

    def writer(self, *, timeout: float | None = None) -> ReplayWriter:  # type: ignore[override]
        """The right to write samples. A call waits for room for `timeout` seconds, by default the connection's."""
        return ReplayWriter(self, timeout)

    def reader(  # type: ignore[override]
        self,
        batch_size: int | None = None,
        prefetch: int = 2,
        threads: int = 1,
        pin: bool | str = False,
        copy: bool = False,
        *,
        poll: float = 0.0,
        patience: float | None = 1.0,
        example: Any = None,
    ) -> Sampler:
        """The right to sample.

        `batch_size` is in samples, by default the table's. `prefetch` is how many batches are asked for ahead: while one is
        used the next ones are gathered, by `threads` threads that do not need the interpreter; they were chosen by the
        priorities of when they were asked for. This program can hold one batch more than that. `pin` page-locks the memory
        that they are gathered into for CUDA, or raises `PinError`: call it in the thread that uses the GPU, after the
        framework has chosen its device; a path names the runtime's library. With `copy`, batches are copied out and their
        memory is used again at once. `poll` is for how many seconds a wait polls before it sleeps. `patience` is for how
        many seconds a wait bears that this program holds every batch, before it raises `AllHeldError`; None for ever.
        `example` gives the batches another structure.
        """
        return Sampler(self, batch_size, prefetch, threads, pin, copy, poll, patience, example)

    def reset(self) -> None:
        """Removes all items, and counts from zero."""
        self.connection._client.reset_table(self.name)

    def __repr__(self) -> str:
        bytes = self.capacity * sum(leaf.nbytes for leaf in self.leaves)
        leaves = _reprs.leaves([str(leaf) for leaf in self.leaves])
        return f"<echod.ReplayTable {self.name!r}: {_reprs.count(self.capacity, 'item')}, {_reprs.size(bytes)}; {leaves}>"


class ReplayWriter(_native.ReplayWriter):
    """The right to write samples into a replay table: `append`, `append_many`, `claim`, `finish`.

    Threads may share one, a call at a time; a writer each is faster. Pickled to another process it attaches anew there.
    A context manager: leaving the block finishes it, unless the block raised.
    """

    table: ReplayTable
    _timeout: float | None

    def __new__(cls, table: ReplayTable, timeout: float | None = None) -> ReplayWriter:
        writer = super().__new__(cls, table.connection._client, table.name, table._structure, timeout)
        writer.table = table
        writer._timeout = timeout
        return writer

    async def append_async(
        self, sample: Any, priority: float | None = None, version: int | None = None, *, timeout: float | None = None
    ) -> None:
        """As `append`, for asyncio. If it is cancelled the sample may have been written or not."""
        await run(self, self.append, (sample, priority, version), {"timeout": timeout})

    async def append_many_async(
        self, samples: Any, priorities: Any = None, versions: Any = None, *, timeout: float | None = None
    ) -> None:
        """As `append_many`, for asyncio. If it is cancelled some samples may have been written."""
        await run(self, self.append_many, (samples, priorities, versions), {"timeout": timeout})

    def __enter__(self) -> ReplayWriter:
        return self

    def __exit__(self, exc_type: Any, exc: Any, traceback: Any) -> None:
        if exc_type is None:
            self.finish()

    def __reduce__(self) -> Any:
        return ReplayWriter, (self.table, self._timeout)

    def __repr__(self) -> str:
        written, does = self._said()
        said = does if written is None else f"{_reprs.count(written, 'sample')} written, {does}"
        return f"<echod.ReplayWriter of {self.table.name!r}: {said}>"


class Sampler(_native.Sampler):
    """The right to sample a replay table: iterate it, or call `next` or `try_next`; `update_priorities`, `delete`.

    Threads may share one, and then share its batches. Pickled to another process it attaches anew there.
    """

    table: ReplayTable
    _options: dict[str, Any]

    def __new__(
        cls,
        table: ReplayTable,
        batch_size: int | None = None,
        prefetch: int = 2,
        threads: int = 1,
        pin: bool | str = False,
        copy: bool = False,
        poll: float = 0.0,
        patience: float | None = 1.0,
        example: Any = None,
    ) -> Sampler:
        structure = table._structure_of(example)
        client = table.connection._client
        sampler = super().__new__(
            cls, client, table.name, structure, batch_size, prefetch, threads, poll, copy, patience
        )
        sampler.table = table
        sampler._options = {
            "batch_size": batch_size, "prefetch": prefetch, "threads": threads, "pin": pin, "copy": copy, "poll": poll,
            "patience": patience, "example": example,
        }  # fmt: skip
        if pin:
            sampler._pin(library(pin), vendor_roots())
        return sampler

    @property
    def pinned(self) -> Pinned | None:
        """What is page-locked for CUDA, if it was made with `pin=True`."""
        pinned = self._pinned()
        return None if pinned is None else Pinned(*pinned)

    async def next_async(self, timeout: float | None = None) -> _native.SampledBatch:
        """As `next`, for asyncio. If it is cancelled no batch is lost."""
        batch: _native.SampledBatch = await run(self, self.next, (timeout,), {}, self._keep)
        return batch

    def __aiter__(self) -> Sampler:
        return self

    async def __anext__(self) -> _native.SampledBatch:
        return await self.next_async()

    def __reduce__(self) -> Any:
        return _attach, (self.table, self._options)

    def __repr__(self) -> str:
        pinned, pending = self.pinned, self._pending()
        said = f", {pending} of them until their events have happened" if pending else ""
        said += ", copies" if self._options["copy"] else ""
        said += f"; {_reprs.size(pinned.bytes)} page-locked by {pinned.library}" if pinned else ""
        batches = _reprs.count(self.prefetch + 1, "batch")
        samples = _reprs.count(self.batch_size, "sample")
        return f"<echod.Sampler of {self.table.name!r}: holds {self.held} of {batches} of {samples}{said}>"


def _attach(table: ReplayTable, options: dict[str, Any]) -> Sampler:
    return Sampler(table, **options)
