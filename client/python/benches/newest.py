"""The newest weights, 40 MB in ten leaves: through a latest table, and as one passes them by hand.

One process publishes when it is asked, and another one takes: what counts is what taking costs. By hand the weights lie in
shared memory with their version, and whoever takes them copies them under a lock, since the next ones come to the same place.
Through a queue they are pickled, once for each who takes them.
"""

import multiprocessing
import time
from multiprocessing import shared_memory

import echo_table
import numpy as np
from stage import Part

_SPAWN = multiprocessing.get_context("spawn")
_LEAVES, _SHAPE = 10, (1000, 1000)
_BYTES = 4 * _LEAVES * _SHAPE[0] * _SHAPE[1]
_LOOKS = 1000


def _weights(version):
    return {f"layer{i}": np.full(_SHAPE, version, np.float32) for i in range(_LEAVES)}


def _publish(cue, publisher, n, asked, there):
    """Makes each version when it is asked for."""
    publisher = publisher.open()
    cue.ready()
    for version in range(1, n + 1):
        asked.get()
        publisher.publish(_weights(version), there.put)


def _take(cue, reader, n, asked, there):
    """Microseconds of a look that finds nothing new, and of taking what is new."""
    reader, new = reader.open(), []
    cue.ready()
    for version in range(1, n + 1):
        asked.put(version)
        there.get()
        began = time.perf_counter_ns()
        weights = reader.take()
        new.append(time.perf_counter_ns() - began)
        assert all((weights[f"layer{i}"][::100, ::100] == version).all() for i in range(_LEAVES))
    nothing = []
    for _ in range(50 if reader.looks else 0):
        began = time.perf_counter_ns()
        for _ in range(_LOOKS):
            reader.look()
        nothing.append((time.perf_counter_ns() - began) / _LOOKS)
    return {"new": float(np.median(new)) / 1e3, "nothing": float(np.median(nothing or [0])) / 1e3}


def _run(publisher, reader, n):
    asked, there = _SPAWN.SimpleQueue(), _SPAWN.SimpleQueue()
    taker, maker = Part(_take, reader, n, asked, there), Part(_publish, publisher, n, asked, there)
    taker.wait_ready(), maker.wait_ready()
    taker.go(), maker.go()
    maker.result()
    return taker.result()


class Echo:
    """A publisher or a reader of a latest table."""

    looks = True

    def __init__(self, table):
        self.table = table

    def open(self):
        # One of them publishes, and both may read.
        self.latest, self.publisher, self.version = self.table.latest(), None, 0
        return self

    def publish(self, weights, tell):
        self.publisher = self.publisher or self.table.publisher()
        self.publisher.publish(weights)
        tell(1)

    def take(self):
        self.value = self.latest.newer_than(self.version)
        self.version = self.value.version
        return self.value.data

    def look(self):
        self.latest.newer_than(self.version)


class ByHand:
    """Shared memory with a version before it, and a lock."""

    looks = True

    def __init__(self, name, lock):
        self.name, self.lock = name, lock

    def open(self):
        self.memory = shared_memory.SharedMemory(self.name)
        self.version = np.ndarray(1, np.int64, self.memory.buf)
        whole = np.ndarray((_LEAVES, *_SHAPE), np.float32, self.memory.buf, 64)
        self.leaves = {f"layer{i}": whole[i] for i in range(_LEAVES)}
        self.seen = 0
        return self

    def publish(self, weights, tell):
        with self.lock:
            for name, leaf in self.leaves.items():
                leaf[...] = weights[name]
            self.version[0] += 1
        tell(1)

    def take(self):
        with self.lock:
            self.seen = int(self.version[0])
            return {name: leaf.copy() for name, leaf in self.leaves.items()}

    def look(self):
        if self.version[0] > self.seen:
            self.take()


class Queue:
    """A queue of pickled weights."""

    looks = False

    def __init__(self, queue):
        self.queue = queue

    def open(self):
        return self

    def publish(self, weights, tell):
        tell(1)  # before: a pipe holds less than that, and is emptied by who takes
        self.queue.put(weights)

    def take(self):
        return self.queue.get()


def echo(n):
    table = echo_table.latest_table("weights", _weights(0))
    return _run(Echo(table), Echo(table), n)


def by_hand(n):
    memory = shared_memory.SharedMemory(create=True, size=64 + _BYTES)
    try:
        lock = _SPAWN.Lock()
        return _run(ByHand(memory.name, lock), ByHand(memory.name, lock), n)
    finally:
        memory.close()
        memory.unlink()


def queue(n):
    queue = _SPAWN.SimpleQueue()
    return _run(Queue(queue), Queue(queue), n)
