"""cpprb's ReplayBuffer, in one process: a batch is added sample by sample, and one is drawn."""

import time

from stage import Part
from workload import look


def version():
    """None if it is not installed."""
    try:
        import cpprb  # noqa: F401
    except ImportError:
        return None
    import importlib.metadata

    return importlib.metadata.version("cpprb")


def _play(cue, workload, n, many):
    import cpprb

    leaves = {leaf: {"shape": shape or 1, "dtype": dtype} for leaf, dtype, shape in workload.leaves}
    buffer = cpprb.ReplayBuffer(workload.batch * workload.capacity, leaves)
    pieces = workload.samples() if many == 1 else workload.stacks(many)
    cue.ready()
    began, i = time.monotonic(), 0
    for _ in range(n // workload.batch):
        for _ in range(workload.batch // many):
            buffer.add(**pieces[i])
            i = (i + 1) % len(pieces)
        look(buffer.sample(workload.batch))
    return n / (time.monotonic() - began)


def in_process(workload, n, many=1):
    """Samples a second."""
    part = Part(_play, workload, n, many)
    part.wait_ready()
    part.go()
    return part.result()
