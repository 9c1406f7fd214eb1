"""Connections, and tables."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any, Callable, Sequence

import optree

from . import _native, _progress, _reprs, _tree
from ._errors import GoneError, InvalidSpecError, NoSuchTableError, WrongKindError
from ._latest import LatestReader
from ._publisher import Publisher
from ._reader import Reader
from ._tree import Leaf
from ._writer import Writer

if TYPE_CHECKING:
    from ._replay import Prioritized, ReplayTable, SampleToInsertRatio


def connect(path: str | os.PathLike[str] | None = None, *, name: str | None = None, timeout: float = 30.0) -> Connection:
    """Connects to the daemon.

    `path` is its socket; without one it is that of `ECHO_SOCKET`, else the first that exists of
    `$XDG_RUNTIME_DIR/echo/echod.sock` and `/run/echo/echod.sock`. `name` is what echoctl calls this client. Connecting and
    every call may take `timeout` seconds, and so may a writer's waits unless it is told otherwise.
    """
    return Connection(path, name=name, timeout=timeout)


class Connection:
    """A connection to the daemon: makes tables and finds them. Threads may share it. A context manager: leaving the block
    closes it.

    Pickled to a worker process it connects anew there, once in a process, and is called by the process's name as well.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, name: str | None = None, timeout: float = 30.0
    ) -> None:
        if name is None:
            name = os.path.basename(sys.argv[0] if sys.argv and sys.argv[0] not in ("", "-c") else sys.executable)
        self._open: _native.Client | None = _native.Client(None if path is None else os.fspath(path), name, timeout)
        self._path = os.fspath(self._open.socket)
        self._name, self._timeout = name, timeout

    @property
    def _client(self) -> _native.Client:
        if self._open is None:
            raise GoneError("this connection was closed: connect again", reason="this connection was closed")
        return self._open

    @property
    def path(self) -> str:
        """The daemon's socket."""
        return self._path

    def close(self) -> None:
        """Closes it: whatever asks the daemon by it, or attaches to one of its tables, raises `GoneError` from then on.
        Calling it again does nothing.

        Writers and readers that are attached keep what they need of it until they are gone themselves.
        """
        self._open = None

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def create_table(
        self,
        name: str,
        *,
        example: Any,
        batch_size: int,
        capacity: int,
        max_capacity: int | None = None,
        pin: str = "best-effort",
        huge_pages: str = "auto",
        access: Sequence[str] | None = None,
        progress: bool | Callable[[int, int], object] = True,
    ) -> Table:
        """Makes a table for samples such as `example`, or attaches to one of that name with the same spec.

        `example` is a pytree of arrays, numpy scalars or Python numbers (which are taken as bool, int64, float64 and
        complex128). `batch_size` is in samples and `capacity` in batches. `pin` says whether the pages must be locked
        ("required", "best-effort", "off"), `huge_pages` whether large arrays must be on huge pages ("auto", "required",
        "off"), `access` who else may do what, such as `["group:ml=read,write"]`; by default others may look.

        A table of that name that has ended, that was read, and to which nobody is attached any more has served: a new one takes
        its place, so that a program can be run again. Let late-comers of a run be given the table, or its name for `table()`.

        Returns when the memory is resident, which takes a second a GiB. If that takes long it is shown on a terminal or in
        a notebook, by tqdm if that is installed, unless `progress` is False. With a function it is called instead, with the
        bytes that are resident and how many there will be, in the end with all of them.
        """
        return self._create("queue", name, example, batch_size, capacity, max_capacity, pin, huge_pages, access, progress)

    def create_latest(
        self,
        name: str,
        *,
        example: Any,
        capacity: int = 4,
        pin: str = "best-effort",
        huge_pages: str = "auto",
        access: Sequence[str] | None = None,
        progress: bool | Callable[[int, int], object] = True,
    ) -> Table:
        """Makes a latest table for values such as `example`, or attaches to one of that name with the same spec.

        One publishes values, such as the weights of a policy, and every reader takes the newest where it lies: `publisher`,
        `latest`. A value is a pytree, as a sample is, and has a version, counted from 1.

        `capacity` is in values: one is the newest, one the next, and the others are room for what readers still hold, since
        a publisher waits while readers hold every older value. All else is as `create_table` has it.
        """
        return self._create("latest", name, example, 1, capacity, None, pin, huge_pages, access, progress)

    def create_replay(
        self,
        name: str,
        *,
        example: Any,
        max_size: int,
        batch_size: int = 256,
        sampler: str | Prioritized = "uniform",
        remover: str | Prioritized = "fifo",
        max_times_sampled: int = 0,
        rate_limiter: str | SampleToInsertRatio = "min-size:1",
        max_staleness: int | None = None,
        staleness_decay: float | None = None,
        samples_per_version: int | None = None,
        max_running: int | None = None,
        pin: str = "best-effort",
        huge_pages: str = "auto",
        access: Sequence[str] | None = None,
        progress: bool | Callable[[int, int], object] = True,
    ) -> ReplayTable:
        """Makes a replay table for samples such as `example`, or attaches to one of that name with the same spec.

        It holds `max_size` items. `sampler` says which are chosen, and `remover` which makes room in a full table: "fifo",
        "lifo", "uniform", "prioritized:0.6" (or `Prioritized(0.6)`), "min-heap" or "max-heap" (by priority). An item that was
        sampled `max_times_sampled` times is removed; 0 is never. `batch_size` is what readers get unless they say otherwise.

        `rate_limiter` says who waits for whom: "min-size:1000" (sampling, until so many items are there),
        `SampleToInsertRatio(4, min_size=1000, error_buffer=100)` (either side, to keep to a ratio; as text
        "ratio:4:1000:100"), "queue:100" or "stack:100". Settings with which somebody would wait for ever are refused, by
        `InvalidSpecError` with the interval that was computed.

        Samples may have the version of the policy that made them, and a reader states the trainer's. Items that lag by more
        than `max_staleness` versions are removed and never sampled; `staleness_decay` is a factor of their weights for each
        version; with `samples_per_version` and `max_running`, workers are only let in with what can still be used in time.

        All else is as `create_table` has it.
        """
        from . import _replay

        settings = _replay.settings(
            max_size, batch_size, sampler, remover, max_times_sampled, rate_limiter, max_staleness, staleness_decay,
            samples_per_version, max_running,
        )  # fmt: skip
        table = self._create(
            "replay", name, example, batch_size, max_size, None, pin, huge_pages, access, progress, settings
        )
        assert isinstance(table, _replay.ReplayTable)
        return table

    def _create(
        self,
        kind: str,
        name: str,
        example: Any,
        batch_size: int,
        capacity: int,
        max_capacity: int | None,
        pin: str,
        huge_pages: str,
        access: Sequence[str] | None,
        progress: bool | Callable[[int, int], object],
        replay: dict[str, Any] | None = None,
    ) -> Table:
        leaves, treespec = _tree.spec(example)
        rules = None if access is None else _rules(access)
        sizes = {"batch_size": batch_size, "capacity": capacity, "max_capacity": max_capacity} if replay is None else {}
        for what, size in sizes.items():
            # What is between is for the daemon to judge.
            if size is not None and not 1 <= size < 1 << 32:
                raise InvalidSpecError(f"{what} is {size}, and must be 1 to {(1 << 32) - 1}", kind="invalid_spec")
        with _progress.shown(f"table {name!r}") if progress is True else contextlib.nullcontext(progress or None) as told:
            self._client.create_table(
                name, _arrays(leaves), batch_size, capacity, max_capacity, pin, huge_pages, rules, told, kind, replay
            )
        return _class_of(kind)(self, name, leaves, batch_size, capacity, treespec, kind)

    def table(self, name: str, *, example: Any = None) -> Table:
        """The table of that name: a `ReplayTable`, if it is one. `example` gives its samples their structure, which its
        leaves must have."""
        try:
            shown = self._client.show_table(name)
        except NoSuchTableError as error:
            raise NoSuchTableError(f"{error}; {self._there_are()}", kind=error.kind) from None
        leaves = [Leaf(name, dtype, tuple(shape)) for name, dtype, shape in shown["arrays"]]
        treespec = None if example is None else optree.tree_structure(example)
        replay = shown["replay"]
        batch_size, capacity = shown["batch_size"], shown["capacity"]
        if replay is not None:
            batch_size, capacity = replay["batch_size"], replay["max_size"]
        kind = shown["kind"]
        return _class_of(kind)(self, name, leaves, batch_size, capacity, treespec, kind)

    def tables(self) -> list[str]:
        """The names of all tables."""
        return self._client.list_tables()

    def drop_table(self, name: str) -> None:
        """Ends a table for everybody; samples that were not read are lost."""
        self._client.drop_table(name)

    def _there_are(self) -> str:
        """A few of the tables, for one who asks for another."""
        names = self.tables()
        if not names:
            return "there are no tables yet"
        return "there are " + ", ".join(map(repr, names[:_SOME])) + (f" and {more} more" if (more := len(names) - _SOME) > 0 else "")

    def __reduce__(self) -> Any:
        return _connect_again, (self.path, self._name, self._timeout)

    def __repr__(self) -> str:
        state = ""
        if self._open is None:
            return f"<echod.Connection to {self.path}: {self._name!r}, closed>"
        if self._client.is_elsewhere:
            state = ", of no use in a forked process"
        elif self._client.gone is not None:
            state = f", gone: {self._client.gone}"
        return f"<echod.Connection to {self.path}: client {self._client.id}, {self._name!r}{state}>"


def _arrays(leaves: Sequence[Leaf]) -> list[tuple[str, str, list[int]]]:
    return [(leaf.name, leaf.dtype, list(leaf.shape)) for leaf in leaves]


def _rules(access: Sequence[str]) -> list[str]:
    if isinstance(access, str):
        raise TypeError(f"access is a list of rules, such as [{access!r}]")
    return list(access)


# Tables that are named to one who asks for another.
_SOME = 5

# One for each socket and name in a process, so that ten tables that are pickled to it make one connection.
_again: dict[tuple[int, str, str, float], Connection] = {}


def _connect_again(path: str, name: str, timeout: float) -> Connection:
    key = (os.getpid(), path, name, timeout)
    known = _again.get(key)
    client = None if known is None else known._open
    if known is None or client is None or client.is_elsewhere or not client.is_alive:
        known = _again[key] = Connection(path, name=_name_here(name), timeout=timeout)
    return known


def _name_here(name: str) -> str:
    """That of a connection which was pickled to this process: what multiprocessing calls the process tells workers apart."""
    process = sys.modules.get("multiprocessing.process")
    here = "MainProcess" if process is None else process.current_process().name
    return name if here == "MainProcess" or name.endswith(f" {here}") else f"{name} {here}"


def _class_of(kind: str) -> type[Table]:
    if kind != "replay":
        return Table
    from ._replay import ReplayTable

    return ReplayTable


# What a table of the other kind has for it.
_INSTEAD = {
    "writer()": "publisher()",
    "reader()": "latest()",
    "publisher()": "writer()",
    "latest()": "reader()",
    "add_group()": "latest()",
    "remove_group()": "latest()",
    "rewind_group()": "latest()",
}


class Table:
    """A table: who puts something in, who takes it out, and what it holds. Pickled to another process it attaches anew there.

    One of `kind` "queue" has `writer` and `reader`, and one of kind "latest" has `publisher` and `latest`; one of kind "replay"
    is a `ReplayTable`.

    If it was dropped and made anew with another spec meanwhile, `writer` and `reader` raise `SpecMismatchError`, whose message
    shows what differs: ask the connection for the table again.
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        leaves: Sequence[Leaf],
        batch_size: int,
        capacity: int,
        treespec: Any = None,
        kind: str = "queue",
    ) -> None:
        self.connection = connection
        self.name = name
        self.leaves = tuple(leaves)
        self.batch_size = batch_size
        self.capacity = capacity
        self.kind = kind
        self._treespec = treespec
        self._arrays = _arrays(self.leaves)
        names = [leaf.name for leaf in self.leaves]
        self._structure = None if treespec is None else _tree.structure(treespec, names)

    def writer(self, *, timeout: float | None = None) -> Writer:
        """The right to write samples. A call waits for room for `timeout` seconds, by default the connection's.

        A table ends when every writer that is attached has finished. A worker that comes later is refused then, so the
        trainer keeps a writer of its own, `keep = table.writer()`, until all have started, and then calls `keep.finish()`.
        One that has crashed, or was killed, counts no more: while `keep` is there the table does not end by that, and
        `reader.next(timeout=...)` says by a `TimeoutError` that nothing comes; `table.why()` says more.
        """
        self._must_be("queue", "writer()")
        return Writer(self, timeout)

    def reader(
        self,
        prefetch: int = 2,
        pin: bool | str = False,
        poll: float = 0.0,
        copy: bool = False,
        *,
        group: str = "default",
        patience: float | None = 30.0,
        example: Any = None,
    ) -> Reader:
        """The right to read batches.

        `prefetch` is how many it can have at a time, those that you hold included; with 2, the next one fills while one is
        read. `pin` page-locks the table for CUDA, or raises `PinError`: call it in the thread that uses the GPU, after the
        framework has chosen its device; the table's access list must give you the role `pin`; a path names the runtime's
        library. `poll` is for how many seconds a wait polls before it sleeps. With `copy`, batches are copied out and
        given back at once. `group` is whose reader it is: each batch goes to one reader of every group (`add_group`).
        `patience` is for how many seconds a wait bears that this program holds every batch and gives none
        back, before it raises `AllHeldError`: one at most where no other thread of Python's could give one back; None is for
        ever. A loop holds its batch while it asks for the next one, so with a prefetch of 1 it ends in that error.
        `example` gives the batches another structure.
        """
        self._must_be("queue", "reader()")
        return Reader(self, prefetch, pin, poll, copy, patience, example, group)

    def add_group(self, name: str, start: str = "oldest", max_lag: int | None = None) -> None:
        """Has another group read this queue table: each batch goes to one reader of every group, and its memory goes back to
        the workers once all groups are done with it. (A table begins with the group "default".)

        The group reads from the "oldest" batch that is still there, or with `start="newest"` from the next one that is begun.
        `max_lag` is by how many bytes of batches it may lag: beyond that it skips the oldest, so that it holds up nobody; at
        least one batch. Raises `RefusedError` if there is such a group, or if there are eight.
        """
        self._must_be("queue", "add_group()")
        if start not in ("oldest", "newest"):
            raise ValueError(f"start is {start!r}, and must be 'oldest' or 'newest'")
        if max_lag is not None and not 0 <= max_lag < 1 << 64:
            raise ValueError(f"max_lag is {max_lag}, and must be a number of bytes")
        self.connection._client.add_group(self.name, name, start == "newest", max_lag)

    def remove_group(self, name: str) -> None:
        """Lets a group go, so that nobody waits for it any more. Raises `RefusedError` while it has readers, and if it is the
        last one."""
        self._must_be("queue", "remove_group()")
        self.connection._client.remove_group(self.name, name)

    def rewind_group(self, name: str) -> int:
        """Has a group read once more what is still there, since other groups are not done with it: how many batches."""
        self._must_be("queue", "rewind_group()")
        return self.connection._client.rewind_group(self.name, name)

    def publisher(self, *, timeout: float | None = None) -> Publisher:
        """The right to publish values of a latest table, of which there is one at a time.

        A call waits for room for `timeout` seconds, by default the connection's.
        """
        self._must_be("latest", "publisher()")
        return Publisher(self, timeout)

    def latest(
        self, pin: bool | str = False, poll: float = 0.0, copy: bool = False, *, example: Any = None
    ) -> LatestReader:
        """The right to take the newest value of a latest table. The options are those of `reader`."""
        self._must_be("latest", "latest()")
        return LatestReader(self, pin, poll, copy, example)

    def _must_be(self, kind: str, what: str) -> None:
        if self.kind != kind:
            have = _INSTEAD[what]
            message = f"table {self.name!r} is a {self.kind} table, which has no {what}: call {have}"
            raise WrongKindError(message, table=self.name, kind=self.kind)

    def info(self) -> dict[str, Any]:
        """What the daemon says of it now: its state, its members, where its samples are."""
        return self.connection._client.show_table(self.name)

    def why(self) -> list[str]:
        """What is being waited for, and who holds it up, longest first. `echoctl why` says it better."""
        return self.connection._client.why(self.name)

    def set_access(self, access: Sequence[str]) -> None:
        """Says anew who may do what with it, beside its owner, such as `["group:ml=read,write"]`."""
        self.connection._client.set_access(self.name, _rules(access))

    def drop(self) -> None:
        """Ends it for everybody; samples that were not read are lost."""
        self.connection.drop_table(self.name)

    def _structure_of(self, example: Any) -> Any:
        if example is None:
            return self._structure
        return _tree.learn([leaf.name for leaf in self.leaves], example)

    def __reduce__(self) -> Any:
        state = (self.connection, self.name, self.leaves, self.batch_size, self.capacity, self._treespec, self.kind)
        return type(self), state

    def __repr__(self) -> str:
        bytes = self.capacity * self.batch_size * sum(leaf.nbytes for leaf in self.leaves)
        if self.kind == "latest":
            holds = f"the latest of {_reprs.count(self.capacity, 'value')}"
        else:
            holds = f"{_reprs.count(self.capacity, 'batch')} of {_reprs.count(self.batch_size, 'sample')}"
        leaves = _reprs.leaves([str(leaf) for leaf in self.leaves])
        return f"<echod.Table {self.name!r}: {holds}, {_reprs.size(bytes)}; {leaves}>"
