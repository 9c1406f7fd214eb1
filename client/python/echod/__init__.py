"""Experience from rollout workers to trainers on one machine, through shared memory.

A daemon, ``echod``, owns tables: rings of batches in shared memory. Workers write samples straight into a table, trainers
read whole batches where they were written. ``echod`` and ``echoctl`` (what happens, and why something waits) are on the
path once this package is installed; ``python -m echod`` is the daemon too.

A worker::

    import echod
    table = echod.connect().table("rollouts")
    writer = table.writer()
    for sample in play():                    # a pytree of arrays and numbers, such as {"obs": ..., "reward": ...}
        writer.append(sample)
    writer.finish()

A trainer::

    import echod
    table = echod.connect().create_table("rollouts", example=sample, batch_size=256, capacity=64)
    for batch in table.reader(prefetch=2):
        loss = step(batch.data)              # the same pytree, with samples first: read-only views of the ring

What every worker wants the newest of, such as the weights of a policy, is in a latest table. One publishes::

    table = echod.connect().create_latest("weights", example=weights)
    publisher = table.publisher()
    publisher.publish(weights)               # its version: 1, 2, 3, ...; or write in place, in `with publisher.claim()`

and each worker takes the newest where it lies, without asking anybody::

    latest, version = echod.connect().table("weights").latest(), 0
    if value := latest.newer_than(version):  # or latest.wait_newer_than(version, timeout=60)
        use(value.data)                      # the same pytree: read-only views
        version = value.version

A trainer that uses samples more than once has a replay table: samples are chosen, read and put back::

    table = echod.connect().create_replay("replay", example=sample, max_size=1_000_000, sampler="prioritized:0.6",
                                          rate_limiter="min-size:1000")
    table.writer().append(sample, priority=1.0)     # in a worker; or without one, which is the largest that is there

    reader = table.reader(batch_size=256)
    for batch in reader:
        errors = step(batch.data, batch.weights(beta=0.4))
        reader.update_priorities(batch.info.keys, abs(errors) + 1e-6)

What to know:

- A sample is a pytree (dicts, lists, tuples, namedtuples, whatever optree knows) of numpy arrays, numpy scalars, or
  Python numbers. Each sample must have the leaves of the table, with their dtypes and shapes: nothing is converted.
  Arrays that lie on the CPU and speak DLPack or the buffer protocol are taken too.
- A dict comes back with its keys sorted, as optree has them, whatever their order in the sample; an OrderedDict keeps its
  order.
- A leaf is called by its path, such as ``obs/camera``. Readers get the structure of ``example``; those that only know the
  table's name get dicts and lists made of the names, or the structure of the ``example=`` that they give.
- ``batch.torch()``, ``batch.jax()`` and ``batch.dlpack()`` are the same memory for other frameworks, ``batch.copy()`` is yours.
- A view keeps its batch. A block goes back to the workers when the batch and all arrays over it are gone, or at
  ``batch.release()``. A reader has ``prefetch`` batches at most, counting those that you hold; a loop holds one while it
  asks for the next.
- A value of a latest table is held in the same way, by itself and all arrays over it. A reader may hold four different ones,
  and a publisher waits while readers hold every older value (``create_latest(capacity=...)`` is how many there can be).
- A batch of a replay table is a copy in memory of this process's own, held in the same way; while it is held no worker
  waits. ``batch.info`` says of each sample its key, probability, priority, age and more.
- A rollout whose parts come at different times (each step, each n steps, once an episode) is collected in an
  ``Accumulator``, which can write straight into the table.
- Who used id-echo changes an import: ``echod.compat.idecho``.
- A queue table ends when every writer that is attached has finished, also for workers that come later: the trainer keeps one of its
  own, ``keep = table.writer()``, until all have started. ``reader.next(timeout=...)`` ends a wait for workers that have
  crashed, and ``table.why()`` says who waits for whom.
- Every wait can be interrupted, has a timeout, and ends when the daemon is gone. For asyncio there are ``append_async``,
  ``append_many_async``, ``claim_async``, ``finish_async``, ``next_async``, ``publish_async`` and ``wait_newer_than_async``.
- When the daemon is gone, writers may go on for as long as there is room that it had allowed: readers that were granted those
  batches before still read them. Then everything raises ``GoneError``.
- Views of a claim's arrays must not be written to once it is committed: the room is no longer yours (see ``Claim.commit``).
- Connections, tables, writers, readers and the like can be pickled to a spawned process, where they attach anew. In a
  forked one everything raises ``ForkedError``: connect again there, or use ``multiprocessing.get_context("spawn")``. The tables' memory is
  not in the child at all, so that one which looks at an array of the parent's, a view of a batch or of a claim, is ended by a
  SIGSEGV: hand it copies (``batch.copy()``).

``echod.local()`` starts a private daemon that ends with this process: for tests, notebooks, and to try things.
"""

from ._accumulator import Accumulator
from ._columns import Counted, SampleInfo
from ._connection import Connection, Table, connect
from ._errors import (
    AllHeldError,
    BudgetError,
    CancelledError,
    ClaimError,
    ClosedError,
    ConnectError,
    Error,
    FinishedError,
    ForkedError,
    FullError,
    GoneError,
    InvalidSpecError,
    LeafDTypeError,
    LeafShapeError,
    LeafValueError,
    NoDaemonError,
    NoSamplesError,
    NoSuchTableError,
    NotFullError,
    NotPermittedError,
    PartlyError,
    PinError,
    PriorityError,
    RefusedError,
    ReleasedError,
    SampleError,
    SpecMismatchError,
    SpoiltError,
    StructureError,
    TimeoutError,
    TooManyHeldError,
    VersionError,
    ViewsAliveError,
    WrongKindError,
)
from ._latest import LatestReader
from ._local import Local, local
from ._native import Batch, Claim, ReplayClaim, SampledBatch, Value, ValueClaim
from ._publisher import Publisher
from ._reader import Pinned, Reader
from ._replay import Prioritized, ReplayTable, ReplayWriter, Sampler, SampleToInsertRatio
from ._tree import Leaf
from ._writer import Writer

__version__ = "0.1.0"

__all__ = [
    "Accumulator",
    "AllHeldError",
    "Batch",
    "BudgetError",
    "CancelledError",
    "Claim",
    "ClaimError",
    "ClosedError",
    "ConnectError",
    "Connection",
    "Counted",
    "Error",
    "FinishedError",
    "ForkedError",
    "FullError",
    "GoneError",
    "InvalidSpecError",
    "LatestReader",
    "Leaf",
    "LeafDTypeError",
    "LeafShapeError",
    "LeafValueError",
    "Local",
    "NoDaemonError",
    "NoSamplesError",
    "NoSuchTableError",
    "NotFullError",
    "NotPermittedError",
    "PartlyError",
    "PinError",
    "Pinned",
    "Prioritized",
    "PriorityError",
    "Publisher",
    "Reader",
    "RefusedError",
    "ReleasedError",
    "ReplayClaim",
    "ReplayTable",
    "ReplayWriter",
    "SampleError",
    "SampleInfo",
    "SampleToInsertRatio",
    "SampledBatch",
    "Sampler",
    "SpecMismatchError",
    "SpoiltError",
    "StructureError",
    "Table",
    "TimeoutError",
    "TooManyHeldError",
    "Value",
    "ValueClaim",
    "VersionError",
    "ViewsAliveError",
    "Writer",
    "WrongKindError",
    "connect",
    "local",
]

# What is public is called by its public name, in tracebacks too.
for _name in __all__:
    if globals()[_name].__module__.startswith("echod._"):
        globals()[_name].__module__ = "echod"
del _name
