"""What can go wrong. Every error is an `Error`; its numbers are attributes."""

from __future__ import annotations

import builtins
from typing import Any


class Error(Exception):
    """Something that echod could not do."""

    def __init__(self, message: str, **attributes: Any) -> None:
        super().__init__(message)
        self._attributes = attributes
        for name, value in attributes.items():
            setattr(self, name, value)

    def __reduce__(self) -> Any:
        return _again, (type(self), self.args[0], self._attributes)


def _again(cls: type[Error], message: str, attributes: dict[str, Any]) -> Error:
    return cls(message, **attributes)


class ConnectError(Error, ConnectionError):
    """No connection to the daemon. `path` is its socket."""

    path: str


class NoDaemonError(ConnectError):
    """No daemon was found. `tried` says where."""

    tried: str


class VersionError(Error):
    """The daemon and this package are of versions that do not understand each other."""


class GoneError(Error, ConnectionError):
    """The daemon is gone, or the connection was closed. `reason` says how."""

    reason: str


class RefusedError(Error):
    """The daemon refused. `kind` is a word that stays, such as "limit"."""

    kind: str


class NoSuchTableError(RefusedError, LookupError):
    """There is no table of that name."""


class SpecMismatchError(RefusedError, ValueError):
    """There is a table of that name with another spec; the message shows what differs."""


class InvalidSpecError(RefusedError, ValueError):
    """No table can have such a spec."""


class BudgetError(RefusedError, MemoryError):
    """There is no memory for the table: a budget is used up (`kind` "budget"), or the kernel refused ("memory")."""


class NotPermittedError(RefusedError, PermissionError):
    """The table's access list does not allow it."""

    def __str__(self) -> str:
        return str(self.args[0])


class TimeoutError(Error, builtins.TimeoutError):  # noqa: A001
    """It took longer than `after` seconds. `what` says what was waited for; the message has the table, and what to do."""

    what: str
    after: float

    def __str__(self) -> str:
        return str(self.args[0])


class NoSamplesError(TimeoutError):
    """Nothing was sampled within `after` seconds. `why` is the inequality of the rate limiter that does not hold."""

    why: str


class CancelledError(Error):
    """The call was cancelled."""


class ForkedError(Error):
    """This process was forked from the one that connected: connect again here, or start processes by "spawn":
    `multiprocessing.get_context("spawn").Process(...)`.

    Only calls can say so. The tables' memory is not in this process, and looking at an array of the parent's (a view of a
    batch or of a claim) ends it by a SIGSEGV.
    """


class ClosedError(Error, EOFError):
    """The table has ended. `reason` is "finished", "dropped", "draining" (the daemon stops) or "poisoned"."""

    table: str
    reason: str


class WrongKindError(Error, TypeError):
    """Table `table` is of kind `kind`, "queue", "latest" or "replay", which has others than what was asked for."""

    table: str
    kind: str


class FinishedError(Error):
    """This writer or publisher has finished: attach another, for as long as the table has not ended."""


class ClaimError(Error):
    """A claim of this writer or publisher is open, or the claim has ended."""


class PartlyError(Error):
    """Of `of` samples, `done` were written. The cause says why not the others."""

    done: int
    of: int


class SpoiltError(Error):
    """The table's memory cannot be used, or another worker spoilt it."""


class SampleError(Error):
    """A sample is not what the table holds."""


class StructureError(SampleError, ValueError):
    """A sample has other leaves than the table: `missing` are the table's, `extra` are the sample's."""

    missing: list[str]
    extra: list[str]


class LeafDTypeError(SampleError, TypeError):
    """Leaf `leaf` is of dtype `got` (or of another type), and the table holds `expected`."""

    leaf: str
    expected: str
    got: str


class LeafShapeError(SampleError, ValueError):
    """Leaf `leaf` has shape `got`, and the table holds `expected`."""

    leaf: str
    expected: tuple[Any, ...]
    got: tuple[int, ...]


class LeafValueError(SampleError, OverflowError):
    """A number does not fit into leaf `leaf`, which is of dtype `expected`."""

    leaf: str
    expected: str


class PriorityError(Error, ValueError):
    """`priority` is not finite, or is negative: sample `number` of those that were given, or item `key`. Nothing was changed."""

    number: int
    priority: float
    key: int | None


class NotFullError(Error):
    """Time scale `scale` of an accumulator has `filled` of the `needed` items; the message names all that lack some."""

    scale: str
    filled: int
    needed: int


class FullError(Error, IndexError):
    """Time scale `scale` of an accumulator has `filled` of the `needed` items, and no room for what was added."""

    scale: str
    filled: int
    needed: int


class ReleasedError(Error):
    """The batch or value was released."""


class ViewsAliveError(Error):
    """A batch or value cannot be released while arrays over it are alive: of `views` looks at its data. `copy()` is yours."""

    views: int


class AllHeldError(Error):
    """This program holds all `held` batches that the reader can have, so no other can come.

    These are `prefetch`, or one more where batches are gathered (replay tables).
    """

    held: int
    prefetch: int


class TooManyHeldError(Error):
    """This reader holds `held` different values of a latest table, which is the most, so it can take no other."""

    held: int


class PinError(Error):
    """The memory could not be page-locked.

    `code` and `name` are CUDA's error, if it was one; `probes` are the libraries that were tried: (where it was looked
    for, which, why it is not used).
    """

    code: int | None
    name: str | None
    probes: list[tuple[str, str, str | None]]
