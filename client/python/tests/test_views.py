"""A view keeps its batch, and nothing else does."""

import gc
import os
import threading
import time
import weakref

import echod
import numpy as np
import pytest


@pytest.fixture
def table(make):
    table = make({"x": np.arange(8), "y": 0.0}, batch_size=2, capacity=4)
    return table


def fill(table, batches=4):
    writer = table.writer()
    for i in range(batches * 2):
        writer.append({"x": np.full(8, i), "y": float(i)})
    return writer


def test_views_are_read_only_and_lie_in_the_ring(table):
    fill(table)
    batch = table.reader().next()
    data, again = batch.data, batch.data
    assert data["x"].flags.c_contiguous and data["x"].flags.aligned and not data["x"].flags.writeable
    assert np.shares_memory(data["x"], again["x"])
    with pytest.raises(ValueError):
        data["x"][0] = 1
    with pytest.raises(ValueError):
        data["x"].flags.writeable = True


def test_a_view_of_a_view_keeps_the_batch(table):
    writer = fill(table)
    reader = table.reader(prefetch=1)
    batch = reader.next()
    part = batch.data["x"][1:, ::2].reshape(-1)[1:]
    del batch
    gc.collect()
    assert reader.held == 1 and part.tolist() == [1, 1, 1]
    with pytest.raises(echod.TimeoutError):
        writer.append({"x": np.zeros(8, int), "y": 0.0}, timeout=0.05)
    del part
    assert reader.held == 0
    writer.append({"x": np.zeros(8, int), "y": 0.0}, timeout=5)


def test_release_with_views_alive_raises(table):
    fill(table)
    batch = table.reader().next()
    view = batch.data["x"]
    with pytest.raises(echod.ViewsAliveError) as raised:
        batch.release()
    assert raised.value.views == 1 and not batch.released
    del view
    batch.release()
    batch.release()
    assert batch.released
    with pytest.raises(echod.ReleasedError):
        batch.data


def test_the_reader_and_the_table_may_go_before_the_views(table):
    fill(table)
    view = table.reader().next().data["x"]
    del table
    gc.collect()
    assert view[1].tolist() == [1] * 8


def test_views_may_go_in_another_thread(table):
    fill(table, 4)
    reader = table.reader(prefetch=4)
    batches = [reader.next() for _ in range(4)]

    def use(batch):
        for _ in range(200):
            assert batch.data["x"].sum() == batch.data["x"].sum()

    threads = [threading.Thread(target=use, args=(batch,)) for batch in batches]
    del batches
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del threads
    gc.collect()
    deadline = time.monotonic() + 10
    while reader.held and time.monotonic() < deadline:
        time.sleep(0.01)
    assert reader.held == 0


def test_copies_hold_nothing(table):
    fill(table)
    reader = table.reader(copy=True)
    batches = [reader.next(1) for _ in range(4)]
    assert reader.held == 0
    assert [int(batch.data["y"][0]) for batch in batches] == [0, 2, 4, 6]
    batches[0].data["x"][:] = 1


def test_holding_every_batch_is_an_error_that_says_so(table):
    fill(table)
    reader = table.reader(prefetch=2, patience=0.2)
    with pytest.raises(echod.AllHeldError, match="holds all 2") as raised:
        list(reader)
    assert raised.value.held == 2 and raised.value.prefetch == 2


def test_batches_in_cycles_are_found(table):
    fill(table)
    reader = table.reader(prefetch=2, patience=0.1)
    for _ in range(3):
        cycle = [reader.next()]
        cycle.append(cycle)
        del cycle
    assert reader.held <= 2


def test_another_thread_may_give_one_back_meanwhile(table):
    fill(table)
    reader = table.reader(prefetch=1)
    held = [reader.next()]
    timer = threading.Timer(0.2, held.clear)
    timer.start()
    assert reader.next(10).seq == 1


class Event:
    def __init__(self):
        self.happened = False
        self.asked = 0

    def query(self):
        self.asked += 1
        return self.happened


def test_a_release_after_an_event_waits_for_it(table):
    fill(table)
    reader = table.reader(prefetch=1)
    batch, event = reader.next(), Event()
    batch.release(after=event)
    assert batch.released and reader.held == 1
    with pytest.raises(echod.TimeoutError):
        reader.next(timeout=0.1)
    threading.Timer(0.1, lambda: setattr(event, "happened", True)).start()
    assert reader.next(timeout=10).seq == 1
    assert event.asked > 2


def test_events_are_asked_when_nobody_calls(table):
    fill(table)
    reader = table.reader(prefetch=2)
    event = Event()
    reader.next().release(after=event)
    event.happened = True
    deadline = time.monotonic() + 10
    while reader.held and time.monotonic() < deadline:
        time.sleep(0.005)
    assert reader.held == 0


def test_a_release_after_something_else_is_refused(table):
    fill(table)
    batch = table.reader().next()
    with pytest.raises(TypeError, match="query"):
        batch.release(after=1)
    assert not batch.released


def test_reprs_say_what_a_person_wants(table):
    writer = fill(table)
    reader = table.reader()
    batch = reader.next()
    assert "4 batches of 2 samples; x int64[8], y float64[]" in repr(table)
    assert "8 samples written, open" in repr(writer)
    assert "holds 1 of 2" in repr(reader)
    assert "Batch 0 of" in repr(batch) and "2 samples, 144 bytes" in repr(batch)
    assert table.info()["samples_committed"] == 8


def test_a_batch_can_be_watched_by_a_weak_reference(table):
    fill(table)
    batch = table.reader().next()
    watch = weakref.ref(batch)
    del batch
    assert watch() is None


def test_dlpack_goes_out(table):
    fill(table)
    array = np.from_dlpack(table.reader().next().data["x"])
    gc.collect()
    assert array[0].tolist() == [0] * 8


def test_info_says_who_is_attached(table):
    writer = fill(table)
    reader = table.reader()
    members = {member["writer"]: member for member in table.info()["members"]}
    assert members[True]["done"] == writer.committed and members[True]["waits"] == 0
    assert members[False]["pid"] == os.getpid() and reader.held == 0
