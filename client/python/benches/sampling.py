"""Batches out of a replay buffer that is full: by echo, by cpprb in one process, and numpy's gather alone.

The trainer draws a batch, looks at it, and for prioritized replay weighs it and sets new priorities. echo draws and gathers the
next batches meanwhile.
"""

import time

import echo_table
import numpy as np
from stage import Part
from workload import look

ALPHA, BETA = 0.6, 0.4
AHEAD = 4


def _pieces(workload, items):
    """All items, some at a time, as pytrees with a leading axis."""
    rng = np.random.default_rng(0)
    piece = max(1, min(items, (8 << 20) // workload.sample_bytes))
    made = {
        name: rng.integers(0, 2 if dtype == "bool" else 100, (piece, *shape)).astype(dtype)
        for name, dtype, shape in workload.leaves
    }
    for first in range(0, items, piece):
        n = min(piece, items - first)
        yield n, {name: leaf[:n] for name, leaf in made.items()}


def priorities(n):
    return np.random.default_rng(1).random(n) + 0.01


def rate(draw, batch, n):
    """Samples a second, once everything is warm."""
    for _ in range(20):
        draw()
    began = time.monotonic()
    for _ in range(n):
        draw()
    return n * batch / (time.monotonic() - began)


def _sample(cue, table, n, prioritized):
    reader = table.reader(prefetch=AHEAD)
    errors = priorities(reader.batch_size)

    def draw():
        batch = reader.next()
        look(batch.data)
        if prioritized:
            batch.weights(BETA)
            reader.update_priorities(batch.info.keys, errors)

    cue.ready()
    return rate(draw, reader.batch_size, n)


def echo(workload, items, n, prioritized):
    """Samples a second of one trainer, beside whom nobody writes."""
    name = f"sample-{workload.name}"
    table = echo_table.room_for(name).create_replay(
        name, example=workload.example(), max_size=items, batch_size=workload.batch,
        sampler=f"prioritized:{ALPHA}" if prioritized else "uniform",
    )  # fmt: skip
    try:
        writer = table.writer()
        for many, piece in _pieces(workload, items):
            writer.append_many(piece, priorities(many))
        return _alone(_sample, table, n, prioritized)
    finally:
        table.drop()


def _sample_cpprb(cue, workload, items, n, prioritized):
    import cpprb

    leaves = {leaf: {"shape": shape or 1, "dtype": dtype} for leaf, dtype, shape in workload.leaves}
    if prioritized:
        buffer = cpprb.PrioritizedReplayBuffer(items, leaves, alpha=ALPHA)
        for many, piece in _pieces(workload, items):
            buffer.add(**piece, priorities=priorities(many))
    else:
        buffer = cpprb.ReplayBuffer(items, leaves)
        for _, piece in _pieces(workload, items):
            buffer.add(**piece)
    errors, names = priorities(workload.batch), [leaf for leaf, _, _ in workload.leaves]

    def draw():
        batch = buffer.sample(workload.batch, BETA) if prioritized else buffer.sample(workload.batch)
        look({name: batch[name] for name in names})
        if prioritized:
            buffer.update_priorities(batch["indexes"], errors)

    cue.ready()
    return rate(draw, workload.batch, n)


def cpprb(workload, items, n, prioritized):
    """Samples a second."""
    return _alone(_sample_cpprb, workload, items, n, prioritized)


def _gather(cue, workload, items, n):
    arrays = {name: np.empty((items, *shape), dtype) for name, dtype, shape in workload.leaves}
    first = 0
    for many, piece in _pieces(workload, items):
        for name, leaf in piece.items():
            arrays[name][first : first + many] = leaf
        first += many
    rng = np.random.default_rng(2)
    into = {name: np.empty((workload.batch, *leaf.shape[1:]), leaf.dtype) for name, leaf in arrays.items()}

    def draw():
        chosen = rng.integers(0, items, workload.batch)
        for name, leaf in arrays.items():
            np.take(leaf, chosen, axis=0, out=into[name], mode="clip")
        look(into)

    cue.ready()
    return rate(draw, workload.batch, n)


def gather(workload, items, n):
    """Samples a second of what is chosen uniformly and copied, with no buffer around it."""
    return _alone(_gather, workload, items, n)


def _alone(part, *args):
    part = Part(part, *args)
    part.wait_ready()
    part.go()
    return part.result()


def items_of(workload, wanted):
    """So many items, or as many as leave half of the memory that is free now."""
    with open("/proc/meminfo") as meminfo:
        free = next(int(line.split()[1]) << 10 for line in meminfo if line.startswith("MemAvailable"))
    return max(1, min(wanted, free // 2 // workload.sample_bytes))
