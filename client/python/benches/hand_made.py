"""What a careful user writes by hand over `multiprocessing.shared_memory`, for one writer, without any safety.

A ring of whole-batch blocks whose numbers go through two SimpleQueues, filled a sample at a time or by slices, and a ring of
single slots whose numbers go through a queue, from which the reader copies a batch together.
"""

import multiprocessing
from multiprocessing import shared_memory

import numpy as np
from stage import Part, Stopwatch, rate
from workload import look

_SPAWN = multiprocessing.get_context("spawn")


class Ring:
    """The memory: an array a leaf, `[blocks, batch, *shape]`. Pickled it is opened again."""

    def __init__(self, workload, name=None):
        self.workload = workload
        sizes = [np.dtype(d).itemsize * int(np.prod(s)) for _, d, s in workload.leaves]
        n = workload.batch * workload.capacity
        self.memory = shared_memory.SharedMemory(name, create=name is None, size=n * sum(-(-s // 64) * 64 for s in sizes))
        self.is_owner = name is None
        self.arrays, at = {}, 0
        for (leaf, dtype, shape), size in zip(workload.leaves, sizes):
            whole = (workload.capacity, workload.batch, *shape)
            self.arrays[leaf] = np.ndarray(whole, dtype, self.memory.buf, at)
            at += n * (-(-size // 64) * 64)
        if self.is_owner:
            for array in self.arrays.values():
                array[...] = 1  # every page is there before the measurement begins

    def __reduce__(self):
        return Ring, (self.workload, self.memory.name)

    def blocks(self):
        """For each block, its arrays by leaf."""
        return [{leaf: array[b] for leaf, array in self.arrays.items()} for b in range(self.workload.capacity)]

    def close(self):
        self.arrays.clear()
        self.memory.close()
        if self.is_owner:
            self.memory.unlink()


# One function a workload, with its leaves by name: what one writes who knows what is sent.


def _fill_tiny(samples, n, batch, blocks, free, full):
    i = batch
    for _ in range(n // len(samples)):
        for sample in samples:
            if i == batch:
                number, i = free.get(), 0
                obs, reward = blocks[number]["obs"], blocks[number]["reward"]
            obs[i] = sample["obs"]
            reward[i] = sample["reward"]
            i += 1
            if i == batch:
                full.put(number)


def _fill_atari(samples, n, batch, blocks, free, full):
    i = batch
    for _ in range(n // len(samples)):
        for sample in samples:
            if i == batch:
                number, i = free.get(), 0
                block = blocks[number]
                obs, action, reward, done = block["obs"], block["action"], block["reward"], block["done"]
            obs[i] = sample["obs"]
            action[i] = sample["action"]
            reward[i] = sample["reward"]
            done[i] = sample["done"]
            i += 1
            if i == batch:
                full.put(number)


def _fill_large(samples, n, batch, blocks, free, full):
    i = batch
    for _ in range(n // len(samples)):
        for sample in samples:
            if i == batch:
                number, i = free.get(), 0
                obs = blocks[number]["obs"]
            obs[i] = sample["obs"]
            i += 1
            if i == batch:
                full.put(number)


_FILL = {"tiny": _fill_tiny, "atari": _fill_atari, "large": _fill_large}


def _write_blocks(cue, ring, free, full, n, many):
    workload, blocks = ring.workload, ring.blocks()
    if many == 1:
        samples = workload.samples()
        cue.ready()
        _FILL[workload.name](samples, n, workload.batch, blocks, free, full)
        return
    pieces = workload.stacks(many)
    cue.ready()
    at = workload.batch
    for _ in range(n // (many * len(pieces))):
        for piece in pieces:
            if at == workload.batch:
                number, at = free.get(), 0
                obs, reward = blocks[number]["obs"], blocks[number]["reward"]
            obs[at : at + many] = piece["obs"]
            reward[at : at + many] = piece["reward"]
            at += many
            if at == workload.batch:
                full.put(number)


def _read_blocks(cue, ring, free, full, n):
    blocks = ring.blocks()
    watch = Stopwatch(ring.workload, n)
    cue.ready()
    for _ in range(watch.batches):
        number = full.get()
        look(blocks[number])
        free.put(number)
        watch.lap()
    return watch.rate()


def block_ring(workload, n, many=1):
    """Samples a second through whole blocks."""
    ring, free, full = Ring(workload), _SPAWN.SimpleQueue(), _SPAWN.SimpleQueue()
    for number in range(workload.capacity):
        free.put(number)
    try:
        samples = Stopwatch.samples(workload, n)
        return rate(Part(_read_blocks, ring, free, full, n), Part(_write_blocks, ring, free, full, samples, many))
    finally:
        ring.close()


def _write_slots(cue, ring, free, full, n):
    workload = ring.workload
    flat = {leaf: array.reshape(-1, *array.shape[2:]) for leaf, array in ring.arrays.items()}
    samples = workload.samples()
    cue.ready()
    for _ in range(n // len(samples)):
        for sample in samples:
            slot = free.get()
            for leaf, array in flat.items():
                array[slot] = sample[leaf]
            full.put(slot)


def _read_slots(cue, ring, free, full, n):
    workload = ring.workload
    flat = {leaf: array.reshape(-1, *array.shape[2:]) for leaf, array in ring.arrays.items()}
    watch = Stopwatch(workload, n)
    cue.ready()
    for _ in range(watch.batches):
        slots = [full.get() for _ in range(workload.batch)]
        look({leaf: array[slots] for leaf, array in flat.items()})
        for slot in slots:
            free.put(slot)
        watch.lap()
    return watch.rate()


def slot_ring(workload, n):
    """Samples a second through single slots."""
    ring, free, full = Ring(workload), _SPAWN.SimpleQueue(), _SPAWN.SimpleQueue()
    # As many as the pipe holds, and two batches at least.
    for slot in range(2 * workload.batch):
        free.put(slot)
    try:
        samples = Stopwatch.samples(workload, n)
        return rate(Part(_read_slots, ring, free, full, n), Part(_write_slots, ring, free, full, samples))
    finally:
        ring.close()
