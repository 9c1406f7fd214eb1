"""What id-echo 0.2 publishes, over a local echo daemon: its users change an import.

::

    from echod.compat.idecho import Server, TcpClient, TcpTransport, TrajectoryAccumulator    # was: from echo import ...

A ``Server`` starts a private daemon, whose table is its ring. Clients write into that memory themselves; the port is only
where they learn of it. Samples, batches, structures, what ``sample()`` returns and when, and the signatures are as
id-echo's. What differs:

One machine
    ``TcpTransport`` listens on 127.0.0.1 alone, and a ``TcpClient`` of a host that is not this machine raises
    ``RemoteHostError``. Clients must run under the server's user. The ring takes half of the machine's memory at most.
Samples are checked
    id-echo compares sizes in bytes. Here ``TcpClient`` compares names, dtypes and shapes with the server's
    (``echod.SpecMismatchError``, a ``ValueError``), and ``send`` and ``submit`` do so with each sample
    (``echod.SampleError``: of wrong shapes and structures it is a ``ValueError`` too, of wrong dtypes a ``TypeError``).
    Arrays of objects, strings, times and swapped bytes are refused; Python and numpy numbers are taken for 0-d leaves.
``send`` writes
    When it returns, the sample is in its batch: there is nothing in flight, ``wait()`` returns at once, and
    ``max_inflight_msgs`` only has to be 1 or more. It waits while the ring is full.
Nothing hangs
    A ``send`` or ``submit`` whose server is closed or gone raises ``ConnectionClosedError``, also one that waits, and also
    after ``close``. ``sample()`` and the others can be interrupted with Ctrl-C. ``sample()`` returns None only after
    ``close``, when all complete batches are out; if the daemon ends by itself it raises ``echod.GoneError`` or
    ``echod.ClosedError``.
Views stay
    The arrays of a batch are valid for as long as they are there, not only until the next ``sample()``, also without
    the server. They hold their part of the ring meanwhile: who holds all ``num_buffers`` batches and asks for another gets
    ``echod.AllHeldError``, where id-echo would have overwritten the first.
A server ends once
    ``start`` after ``close`` raises ``RuntimeError``.
``SampleInfo``
    is counted by the daemon, when it is first looked at. There are no queues and no drainers: the numbers about them
    are 0, as are the histograms and the ``cas_`` counters, which are 0 in the published id-echo too;
    ``num_drainers``, ``producer_queue_size`` and ``num_threads`` say nothing.
Wrong arguments
    are a ``ValueError`` where id-echo panics.
``TrajectoryAccumulator``
    converts and broadcasts nothing, ``build`` raises ``echod.NotFullError`` while something is missing, and ``add`` with
    an item too many raises ``echod.FullError``, an ``IndexError`` as before. ``echod.Accumulator`` can do more.
"""

from ... import __version__
from ._client import TcpClient
from ._closed import ConnectionClosedError
from ._info import HistSnapshot, SampleInfo
from ._port import RemoteHostError
from ._server import Sample, Server, TcpTransport
from ._trajectory import TrajectoryAccumulator

__all__ = [
    "ConnectionClosedError",
    "HistSnapshot",
    "RemoteHostError",
    "Sample",
    "SampleInfo",
    "Server",
    "TcpClient",
    "TcpTransport",
    "TrajectoryAccumulator",
    "__version__",
]
