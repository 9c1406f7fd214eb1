"""Workers that do not come to an end of their own: what `test_deaths` starts. Imports no pytest, to start soon."""

import mmap
import os
import signal
import zlib

import numpy as np

CELLS = 1 << 15
EXAMPLE = {"a_first": np.zeros(CELLS, np.uint8), "b_who": np.zeros(2, int), "c_last": np.zeros(CELLS, np.int32), "d_sum": 0}


def sample(worker, i):
    """Each leaf follows from the number, and the last one sums up the others: one of two halves does not add up."""
    first = np.resize(np.arange(worker * 31 + i * 7, dtype=np.int64) * 2654435761 >> 7, CELLS).astype(np.uint8)
    first[:16] = np.frombuffer(np.array([worker, i]).tobytes(), np.uint8)
    last = first[::-1].astype(np.int32) * (i + 1)
    return {"a_first": first, "b_who": np.array([worker, i]), "c_last": last, "d_sum": zlib.crc32(first) ^ zlib.crc32(last)}


def stacked(samples):
    return {key: np.stack([one[key] for one in samples]) for key in samples[0]}


def short(array, there):
    """The array in a file of which only so many bytes are there: who reads on is killed by SIGBUS."""
    file = os.memfd_create("short")
    os.truncate(file, array.nbytes)
    mapped = np.frombuffer(mmap.mmap(file, array.nbytes), array.dtype).reshape(array.shape)
    mapped[...] = array
    os.truncate(file, there)
    return mapped


def in_append(writer, worker, tell):
    for i in range(3):
        writer.append(sample(worker, i))
        tell()
    last = sample(worker, 3)
    writer.append({**last, "c_last": short(last["c_last"], last["c_last"].nbytes // 2)})


def in_append_many(writer, worker, tell):
    writer.append_many(stacked([sample(worker, i) for i in range(2)]))
    tell(2)
    # Two of them go into the batch that is begun, and are whole; then the third is not.
    more = stacked([sample(worker, i) for i in range(2, 6)])
    writer.append_many({**more, "c_last": short(more["c_last"], more["c_last"].nbytes // 8 * 5)})


def in_claim(writer, worker, tell):
    for i in range(3):
        with writer.claim() as claim:
            for key, value in sample(worker, i).items():
                claim.data[key][...] = value
        tell()
    with writer.claim() as claim:
        claim.data["a_first"][:] = 255
        os.kill(os.getpid(), signal.SIGKILL)


def at_random(writer, worker, tell):
    i = 0
    while True:
        # Made beforehand, so that most of the time goes into what is to be interrupted.
        for made in [sample(worker, i + k) for k in range(16)]:
            writer.append(made)
            tell()
        i += 16


def work(table, worker, how, told):
    """Appends to the file `told` a byte for each sample that is committed."""
    file = os.open(told, os.O_WRONLY | os.O_APPEND)
    how(table.writer(), worker, lambda n=1: os.write(file, b"." * n))
