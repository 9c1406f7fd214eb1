"""Workers and trainers of replay tables in processes of their own: what `test_replay` starts. Imports no pytest."""

import os

import numpy as np

CELLS = 1 << 13
EXAMPLE = {"first": np.zeros(CELLS, np.uint8), "id": 0, "last": np.zeros(CELLS, np.int32)}


def sample(i):
    """Each leaf follows from the number."""
    return {"first": np.full(CELLS, i % 251, np.uint8), "id": i, "last": np.full(CELLS, i, np.int32)}


def is_whole(data):
    ids = data["id"]
    return bool((data["first"].T == ids % 251).all() and (data["last"].T == ids).all())


def write(table, first, n):
    with table.writer() as writer:
        for i in range(first, first + n):
            writer.append(sample(i), priority=float(i), version=i)


def write_with(writer, ids):
    for i in ids:
        writer.append(sample(i))


def write_for_ever(table, told):
    """Appends to the file `told` a byte for each sample that is committed."""
    file = os.open(told, os.O_WRONLY | os.O_APPEND)
    writer = table.writer()
    for i in range(1 << 40):
        writer.append(sample(i), priority=1.0)
        os.write(file, b".")


def hold(table, pipe):
    """Holds batches, and asks for more, until it is killed."""
    reader = table.reader(prefetch=4)
    held = [reader.next(60) for _ in range(4)]
    pipe.send(len(held))
    pipe.recv()
