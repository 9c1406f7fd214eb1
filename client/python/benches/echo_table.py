"""echo, as its users use it."""

import time

import echod
import numpy as np
from stage import Part, Stopwatch, rate
from workload import STAMP, look

_DAEMON = None


def room_for(name):
    """A connection to the daemon, which has no such table any more."""
    global _DAEMON
    _DAEMON = _DAEMON or echod.local(host_budget="4 GiB")
    connection = _DAEMON.connect()
    try:
        connection.drop_table(name)
    except echod.NoSuchTableError:
        pass
    return connection


def latest_table(name, example):
    return room_for(name).create_latest(name, example=example)


def _table(workload):
    return room_for(workload.name).create_table(
        workload.name, example=workload.example(), batch_size=workload.batch, capacity=workload.capacity
    )


def _write(cue, table, workload, n, many):
    writer = table.writer()
    if many == 1:
        samples = workload.samples()
        cue.ready()
        append = writer.append
        for _ in range(n // len(samples)):
            for sample in samples:
                append(sample)
    else:
        pieces = workload.stacks(many)
        cue.ready()
        append = writer.append_many
        for _ in range(n // (many * len(pieces))):
            for piece in pieces:
                append(piece)


def _read(cue, table, workload, n):
    reader = table.reader(prefetch=workload.capacity // 2)
    watch = Stopwatch(workload, n)
    cue.ready()
    for _ in range(watch.batches):
        look(next(reader).data)
        watch.lap()
    return watch.rate()


def throughput(workload, n, many=1):
    table = _table(workload)
    samples = Stopwatch.samples(workload, n)
    return rate(Part(_read, table, workload, n), Part(_write, table, workload, samples, many))


def _write_stamps(cue, table, n):
    writer = table.writer()
    sample = {"sent": np.zeros(1, np.int64)}
    cue.ready()
    for _ in range(n):
        time.sleep(0.001)  # so that the reader is asleep
        sample["sent"][0] = time.monotonic_ns()
        writer.append(sample)


def _read_stamps(cue, table, n):
    reader = table.reader()
    cue.ready()
    took = []
    for _ in range(n):
        sent = next(reader).data["sent"]
        took.append(time.monotonic_ns() - int(sent[0, 0]))
    return took


def latency(n):
    """Microseconds from `append` to `next` returning, the reader asleep."""
    table = _table(STAMP)
    reader, writer = Part(_read_stamps, table, n), Part(_write_stamps, table, n)
    reader.wait_ready(), writer.wait_ready()
    reader.go(), writer.go()
    writer.result()
    return float(np.median(reader.result())) / 1e3


def ready(workload, rounds):
    """Microseconds of a `next()` that finds a batch ready, its data included."""
    table = _table(workload)
    samples, writer = workload.samples(), table.writer()
    depth = workload.capacity // 2
    reader = table.reader(prefetch=depth)
    took = []
    for _ in range(rounds):
        for i in range(workload.batch * depth):
            writer.append(samples[i % len(samples)])
        held = []
        for _ in range(depth):
            began = time.perf_counter_ns()
            batch = reader.next()
            batch.data
            took.append(time.perf_counter_ns() - began)
            held.append(batch)
    return float(np.median(took)) / 1e3
