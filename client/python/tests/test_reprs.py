"""What handles say of themselves is short, true, and never an error."""

import os
import signal
import threading

import echod
import numpy as np
import pytest
from echod import _reprs

EXAMPLE = {"obs": np.zeros((84, 84), np.uint8), "reward": 0.0}


@pytest.mark.parametrize(
    ("bytes", "said"),
    [
        (0, "0 bytes"), (1, "1 byte"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (200 << 10, "200 KiB"),
        (5 << 20, "5.0 MiB"), (3 << 29, "1.5 GiB"), (64 << 40, "64.0 TiB"), (1 << 60, "1048576 TiB"),
    ],
)  # fmt: skip
def test_sizes_are_for_people(bytes, said):
    assert _reprs.size(bytes) == said


def test_tables_say_what_they_hold(make):
    table = make(EXAMPLE, batch_size=256, capacity=2)
    assert repr(table) == f"<echod.Table {table.name!r}: 2 batches of 256 samples, 3.4 MiB; obs uint8[84, 84], reward float64[]>"
    one = make({f"leaf{i}": np.int8(0) for i in range(9)}, batch_size=1, capacity=1)
    assert repr(one).startswith(f"<echod.Table {one.name!r}: 1 batch of 1 sample, 9 bytes; leaf0 int8[], leaf1 int8[], ")
    assert repr(one).endswith("leaf7 int8[] and 1 leaf>")
    many = make({f"{i:04}": 0j for i in range(1000)}, batch_size=1, capacity=1)
    assert len(repr(many)) < 250 and repr(many).endswith("0007 complex128[] and 992 leaves>")


def test_writers_say_what_they_did(make):
    writer = make(EXAMPLE, batch_size=1, capacity=2).writer()
    name = writer.table.name
    assert repr(writer) == f"<echod.Writer of {name!r}: 0 samples written, open>"
    with writer.claim():
        assert repr(writer) == f"<echod.Writer of {name!r}: 0 samples written, a claim is open>"
    assert repr(writer) == f"<echod.Writer of {name!r}: 1 sample written, open>"
    writer.finish()
    assert repr(writer) == f"<echod.Writer of {name!r}: 1 sample written, finished>"


def test_a_writer_that_waits_can_be_looked_at(make, until):
    table = make(EXAMPLE, batch_size=1, capacity=1)
    writer, reader = table.writer(), table.reader()
    writer.append(EXAMPLE)
    waiting = threading.Thread(target=lambda: writer.append(EXAMPLE, timeout=60), daemon=True)
    waiting.start()
    until(lambda: "1 sample written, waits for room" in repr(writer), "it does not wait")
    assert len(reader.next(60)) == 1
    waiting.join(60)
    assert "2 samples written, open" in repr(writer)


class Never:
    def query(self):
        return False


def test_readers_and_batches_say_what_is_held(make):
    table = make(EXAMPLE, batch_size=2, capacity=4)
    writer, reader = table.writer(), table.reader(prefetch=3)
    for _ in range(7):
        writer.append(EXAMPLE)
    writer.finish()
    shown = f"of {table.name!r}: 2 samples, 13.8 KiB"
    assert repr(reader) == f"<echod.Reader of {table.name!r}: holds 0 of 3 batches>"
    batch = reader.next()
    assert repr(batch) == f"<echod.Batch 0 {shown}, held; obs uint8[84, 84], reward float64[]>"
    data, again = batch.data, batch.data
    assert repr(batch) == f"<echod.Batch 0 {shown}, held, and 2 trees of arrays over it; obs uint8[84, 84], reward float64[]>"
    del again
    assert ", and 1 tree of arrays over it" in repr(batch)
    del data
    event = Never()
    reader.next().release(after=event)
    assert repr(reader) == f"<echod.Reader of {table.name!r}: holds 2 of 3 batches, 1 of them until their events have happened>"
    batch.release()
    assert ", released;" in repr(batch)
    event.query = lambda: True
    del batch
    copying = table.reader(copy=True, prefetch=1)
    assert repr(copying) == f"<echod.Reader of {table.name!r}: holds 0 of 1 batch, copies>"
    last = [*reader, *copying][-1]
    assert ": 1 sample, 6.9 KiB, " in repr(last)


def test_claims_say_whether_they_are_open(make):
    writer = make(EXAMPLE).writer()
    claim = writer.claim(3)
    assert repr(claim) == "<echod.Claim of 3 samples, open>"
    claim.commit()
    assert repr(claim) == "<echod.Claim of 3 samples, ended>"
    with writer.claim() as one:
        assert repr(one) == "<echod.Claim of 1 sample, open>"


def test_connections_say_when_they_are_gone(until):
    with echod.local() as daemon:
        connection = daemon.connect(name="trainer")
        table = connection.create_table("t", example=EXAMPLE, batch_size=1, capacity=1)
        handles = [table, table.writer(), table.reader()]
        assert repr(connection) == f"<echod.Connection to {daemon.path}: client {connection._client.id}, 'trainer'>"
        assert repr(daemon) == f"<echod.Local at {daemon.path}: process {daemon.pid}>"
        os.kill(daemon.pid, signal.SIGKILL)
        until(lambda: repr(connection).endswith(", 'trainer', gone: its socket has closed>"), "it does not say so")
        until(lambda: repr(daemon) == f"<echod.Local at {daemon.path}: ended>", "it does not say so")
        assert all(repr(handle) for handle in handles)
