"""A view keeps its batch, and nothing else does."""

import gc
import os
import pickle
import queue
import signal
import subprocess
import sys
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


KEEPERS = {
    "slice of a slice": lambda array: array[:, 2:][:, ::2][1:],
    "reshaped": lambda array: array.reshape(-1)[3:].reshape(-1, 1),
    "of another dtype": lambda array: array.view(np.uint8)[:, ::8],
    "transposed": lambda array: array.T[::-1],
    "iterator": lambda array: iter(array),
    "flat": lambda array: array.flat,
    "memoryview": lambda array: memoryview(array)[1:],
    "dlpack": lambda array: np.from_dlpack(array),
    "capsule": lambda array: array.__dlpack__(max_version=(1, 0)),
    "broadcast": lambda array: np.broadcast_to(array, (3, *array.shape)),
    "subclass": lambda array: array.view(Sub)[0],
    "pickler": lambda array: pickle.PickleBuffer(array),
    "strided": lambda array: np.lib.stride_tricks.sliding_window_view(array, 2, 1),
    "bound method": lambda array: array.sum,
    "exception": lambda array: raised(array),
}


class Sub(np.ndarray):
    pass


def raised(array):
    try:
        raise KeyError
    except KeyError as error:
        return error  # whose traceback has this function's variables


@pytest.mark.parametrize("how", KEEPERS)
def test_whatever_shows_the_batch_keeps_it(table, how):
    fill(table)
    reader = table.reader()
    batch = reader.next()
    keeper = KEEPERS[how](batch.data["x"])
    gc.collect()
    with pytest.raises(echod.ViewsAliveError):
        batch.release()
    del batch
    gc.collect()
    assert reader.held == 1
    del keeper
    gc.collect()
    assert reader.held == 0


def test_what_was_computed_of_a_batch_does_not_keep_it(table):
    fill(table)
    batch = table.reader().next()
    computed = batch.data["x"] * 2, batch.data["x"].astype(np.float32), batch.data["x"][[0, 1]], batch.copy()
    batch.release()
    assert [array[1, 0] for array in computed[:3]] == [2, 1, 1] and computed[3]["x"][1, 0] == 1


@pytest.mark.parametrize("goes", ["reader", "connection", "table", "daemon", "daemon, killed"])
def test_a_batch_outlives_everything_else(goes):
    with echod.local() as daemon:
        table = daemon.connect().create_table("t", example={"x": np.arange(8)}, batch_size=2, capacity=4)
        writer, reader = table.writer(), table.reader()
        for i in range(4):
            writer.append({"x": np.full(8, i)})
        batch, view = reader.next(), reader.next().data["x"]
        watched = weakref.ref(reader), weakref.ref(table.connection)
        if goes == "table":
            table.drop()
        if goes == "reader":
            del reader
        if goes == "connection":
            del reader, table, writer
            gc.collect()
            assert [watch() for watch in watched] == [None, None]
        if goes == "daemon, killed":
            os.kill(daemon.pid, signal.SIGKILL)
        if goes.startswith("daemon"):
            daemon.close()
        gc.collect()
        assert batch.data["x"].tolist() == [[0] * 8, [1] * 8] and view.tolist() == [[2] * 8, [3] * 8]
        copy = batch.copy()
        batch.release()
        del batch, view
        gc.collect()
        assert copy["x"][1].tolist() == [1] * 8


EXITS = """
import sys, echod, numpy as np
daemon = echod.local()
table = daemon.create_table("t", example={"x": np.arange(8)}, batch_size=2, capacity=4)
writer, reader = table.writer(), table.reader(prefetch=4)
for i in range(4):
    writer.append({"x": np.full(8, i)})
batch, view, claim = reader.next(), reader.next().data["x"][1:], writer.claim()
class Never:
    def query(self):
        return False
writer2, late = table.writer(), table.reader()
cycle = [batch, claim, reader, writer]
cycle.append(cycle)
sys.kept = cycle                        # gone as late as can be
if "event" in sys.argv:
    batch.release(after=Never())
if "closed" in sys.argv:
    daemon.close()
print("done")
"""


@pytest.mark.parametrize("how", ["plain", "event", "closed"])
def test_a_program_ends_with_everything_alive(how):
    ran = subprocess.run([sys.executable, "-c", EXITS, how], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "done\n", "")


def mapped():
    with open("/proc/self/maps") as maps:
        return sum("echo/" in line for line in maps), len(os.listdir("/proc/self/fd")), threading.active_count()


def test_nothing_is_left_of_what_is_gone(daemon):
    def use(i):
        table = daemon.connect().create_table(f"left-{i}", example={"x": np.arange(8)}, batch_size=2, capacity=2)
        writer, reader = table.writer(), table.reader()
        with writer.claim(2) as claim:
            claim.data["x"][:] = i
        writer.claim()
        assert reader.next(30).data["x"][0, 0] == i
        table.drop()

    use(0)
    gc.collect()
    before = mapped()
    for i in range(1, 20):
        use(i)
    gc.collect()
    assert mapped() == before


def test_views_go_in_other_threads_while_batches_come(make):
    table = make({"x": np.arange(8), "i": 0}, batch_size=2, capacity=6)
    reader, total = table.reader(prefetch=4, patience=30), 200
    todo, wrong, collecting = queue.Queue(), [], threading.Lock()
    gc.collect()
    gc.freeze()  # what earlier tests left is not looked through a hundred times

    def work():
        with table.writer() as writer:
            for i in range(total):
                writer.append({"x": np.full(8, i), "i": i}, timeout=60)

    def use():
        kept = []
        while (batch := todo.get()) is not None:
            data = batch.data
            part = [data["x"][:, ::3], data["i"]]
            part.append(part)  # for the garbage collector alone
            del batch, data
            kept = [part]  # the one before goes in this thread, and only now
            if not (part[0] == part[1][:, None]).all():
                wrong.append(part[1].copy())
            del part
            # One at a time: who comes while another collects would return at once, with its own cycle uncollected.
            with collecting:
                gc.collect()

    threads = [threading.Thread(target=act, daemon=True) for act in (work, use, use)]
    for thread in threads:
        thread.start()
    seen = 0
    for batch in reader:
        seen += len(batch)
        todo.put(batch)
        del batch
    for _ in range(2):
        todo.put(None)
    for thread in threads:
        thread.join(60)
    gc.unfreeze()
    gc.collect()
    assert seen == total and not wrong and reader.held == 0


def test_views_may_go_in_another_thread(table, until):
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
    until(lambda: reader.held == 0, "the threads' batches are held")


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


@pytest.mark.parametrize("patience", [0, 0.05, 60, None])
def test_batches_in_cycles_are_found(table, patience):
    fill(table, 4)
    reader = table.reader(prefetch=2, patience=patience)
    gc.disable()
    try:
        for i in range(4):
            cycle = [reader.next(30)]
            cycle.append(cycle)
            assert cycle[0].seq == i
            del cycle
    finally:
        gc.enable()


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


def test_events_are_asked_when_nobody_calls(table, until):
    fill(table)
    reader = table.reader(prefetch=2)
    event = Event()
    reader.next().release(after=event)
    event.happened = True
    until(lambda: reader.held == 0, "nobody asks")


def test_an_event_that_another_thread_asks_is_still_waited_for(make, until):
    tables = [make({"x": 0}, batch_size=1, capacity=2) for _ in range(2)]
    readers = [table.reader() for table in tables]
    entered, leave = threading.Event(), threading.Event()

    class Slow(Event):
        """Takes long, in one thread."""

        def query(self):
            if threading.current_thread() is slow:
                entered.set()
                leave.wait(30)
            return super().query()

    events = Slow(), Event()
    slow = threading.Thread(target=lambda: readers[0].try_next())
    for table, reader, event in zip(tables, readers, events):
        table.writer().append({"x": 1})
        reader.next(30).release(after=event)
    slow.start()
    until(entered.is_set, "it was not asked")
    asked = events[1].asked
    until(lambda: events[1].asked > asked + 3, "the other one is not asked")  # a look at both lies between
    leave.set()
    slow.join(30)
    for event in events:
        event.happened = True
    until(lambda: not any(reader.held for reader in readers), "one was forgotten")


def test_an_event_that_fails_keeps_its_batch_and_tells_the_next_call(table, until):
    fill(table)
    reader = table.reader()

    class Broken(Event):
        broken = False

        def query(self):
            if self.broken:
                raise OSError("the device is gone")
            return super().query()

    event = Broken()
    reader.next().release(after=event)
    event.broken = True
    for act in (reader.try_next, reader.next, lambda: next(reader)):
        with pytest.raises(OSError, match="device is gone"):
            act()
    assert reader.held == 1
    event.broken, event.happened = False, True
    until(lambda: reader.held == 0, "it is not asked again")
    assert reader.next().seq == 1


def test_a_reader_that_goes_leaves_what_waits_for_events_alone(table, until):
    fill(table)
    reader, event = table.reader(), Event()
    reader.next().release(after=event)
    del reader
    gc.collect()
    assert event.asked > 0
    asked = event.asked
    until(lambda: event.asked > asked, "nobody asks")
    assert table.info()["batches_delivered"] == 0
    event.happened = True
    until(lambda: table.info()["batches_delivered"] == 1, "it was not given back")


def test_a_release_after_an_event_with_views_alive_raises(table):
    fill(table)
    batch, event = table.reader().next(), Event()
    view = batch.data["x"]
    with pytest.raises(echod.ViewsAliveError):
        batch.release(after=event)
    assert event.asked == 0 and not batch.released
    del view
    batch.release(after=event)
    batch.release(after=event)
    assert batch.released and event.asked >= 1
    with pytest.raises(echod.ReleasedError):
        batch.data


def test_a_release_after_something_else_is_refused(table):
    fill(table)
    batch = table.reader().next()
    with pytest.raises(TypeError, match="query"):
        batch.release(after=1)
    assert not batch.released

    class Broken:
        @property
        def query(self):
            raise ValueError("no such event")

    with pytest.raises(ValueError, match="no such event"):
        batch.release(after=Broken())
    assert not batch.released


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
