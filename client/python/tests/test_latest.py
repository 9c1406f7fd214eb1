"""Latest tables: one publishes, everybody takes the newest, and what is held stays what it was."""

import asyncio
import collections
import gc
import math
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import weakref

import echod
import ml_dtypes
import numpy as np
import publishing
import pytest

EXAMPLE = {"w": np.zeros((3, 4), np.float32), "b": np.zeros(3), "step": 0}
Layer = collections.namedtuple("Layer", "weight bias")


def weights(version):
    """Each leaf follows from the version."""
    return {"w": np.full((3, 4), version, np.float32), "b": np.full(3, float(version)), "step": version}


def is_whole(value):
    data = value.data
    return bool((data["w"] == value.version).all() and (data["b"] == value.version).all() and data["step"] == value.version)


@pytest.fixture
def table(make_latest):
    return make_latest(EXAMPLE)


@pytest.mark.parametrize(
    "tree",
    [
        {"policy": [Layer(np.ones((4, 2), np.float32), np.zeros(2, np.float32)), Layer(np.ones((2, 1)), np.zeros(1))], "step": 3},
        (np.float32(0.5), [True, 7, 1j], {"deep": (np.int8(-1),)}),
        np.arange(12, dtype=np.uint8).reshape(3, 4),
        2.5,
        {"nothing": np.zeros((0, 3), np.int16), "small": np.ones(5, ml_dtypes.bfloat16), "f": np.asfortranarray(np.eye(3)[:, :2])},
    ],
)
def test_what_goes_in_comes_out(make_latest, tree):
    import optree

    table = make_latest(tree)
    assert table.publisher().publish(tree) == 1
    value = table.latest().get()
    expected, treespec = optree.tree_flatten(tree)
    for data in (value.data, value.copy(), optree.tree_map(np.asarray, value.data)):
        got, got_treespec = optree.tree_flatten(data)
        assert got_treespec == treespec
        for mine, theirs in zip(got, expected):
            assert mine.dtype == np.asarray(theirs).dtype and mine.shape == np.shape(theirs)
            assert (mine == theirs).all()
    assert value.version == 1 and value.nbytes == sum(leaf.nbytes for leaf in table.leaves)


def test_a_version_is_counted_and_the_newest_is_taken(table):
    publisher, latest = table.publisher(), table.latest()
    assert (publisher.version, latest.version, latest.get(), latest.newer_than(0)) == (0, 0, None, None)
    for version in range(1, 10):
        assert publisher.publish(weights(version)) == version
        assert (publisher.version, latest.version, table.latest().version) == (version, version, version)
        value = latest.newer_than(version - 1)
        assert value.version == version and is_whole(value)
        assert latest.newer_than(version) is None and latest.newer_than(version + 100) is None
    assert latest.get().version == 9 and latest.get() is not None
    assert table.info()["newest"] == 9 and table.info()["samples_committed"] == 9


def test_a_value_is_written_in_place(table):
    publisher, latest = table.publisher(), table.latest()
    with publisher.claim() as claim:
        for key, leaf in weights(1).items():
            claim.data[key][...] = leaf
        assert claim.version is None and latest.get() is None and repr(claim) == "<echod.ValueClaim, open>"
    assert claim.version == 1 and latest.get().version == 1 and is_whole(latest.get())
    assert repr(claim) == "<echod.ValueClaim, published as version 1>"
    with pytest.raises(ValueError, match="read-only"):
        claim.data["w"][...] = 7
    with pytest.raises(KeyError), publisher.claim() as claim:
        claim.data["w"][...] = 7
        raise KeyError
    assert claim.version is None and latest.version == 1 and repr(claim) == "<echod.ValueClaim, ended>"
    claim = publisher.claim()
    with pytest.raises(echod.ClaimError, match="claim of this publisher is open"):
        publisher.publish(weights(2))
    with pytest.raises(echod.ClaimError):
        publisher.claim()
    claim.abort()
    claim.abort()
    with pytest.raises(echod.ClaimError, match="given up before"):
        claim.publish()
    del claim
    publisher.claim()  # which is given up with the last reference
    with publisher.claim() as claim:
        for key, leaf in weights(2).items():
            claim.data[key][...] = leaf
        assert claim.publish() == 2
        with pytest.raises(echod.ClaimError):
            claim.publish()
    assert claim.version == 2 and is_whole(latest.get())


def test_what_is_no_value_of_the_table_is_refused_and_nothing_is_published(table):
    publisher = table.publisher()
    for wrong, error in [
        ({**EXAMPLE, "w": np.zeros((4, 3), np.float32)}, echod.LeafShapeError),
        ({**EXAMPLE, "b": np.zeros(3, np.float32)}, echod.LeafDTypeError),
        ({**EXAMPLE, "more": 1}, echod.StructureError),
        ({**EXAMPLE, "step": 1 << 70}, echod.LeafValueError),
    ]:
        with pytest.raises(error):
            publisher.publish(wrong)
    assert publisher.version == 0 and table.latest().get() is None
    assert publisher.publish(weights(1)) == 1


def test_a_finished_publisher_makes_room_for_another(table):
    with table.publisher() as publisher:
        publisher.publish(weights(1))
        with pytest.raises(echod.RefusedError, match="has its writer, .* one at a time") as raised:
            table.publisher()
        assert raised.value.kind == "limit"
    publisher.finish()
    assert publisher.finished
    with pytest.raises(echod.FinishedError, match="this publisher has finished"):
        publisher.publish(weights(2))
    with pytest.raises(echod.FinishedError):
        publisher.claim()
    other, latest = table.publisher(), table.latest()
    assert other.version == 0, "of its own there is none"
    assert other.publish(weights(2)) == 2 and latest.get().version == 2


def test_a_table_knows_its_kind(daemon, table, make):
    queue = make(EXAMPLE)
    assert (table.kind, queue.kind) == ("latest", "queue")
    for latest in (table, daemon.connection.table(table.name), pickle.loads(pickle.dumps(table))):
        assert latest.kind == "latest" and latest.batch_size == 1 and latest.capacity == 4
        for ask, instead in ((latest.writer, r"call publisher\(\)"), (latest.reader, r"call latest\(\)")):
            with pytest.raises(echod.WrongKindError, match=instead) as raised:
                ask()
            assert (raised.value.table, raised.value.kind) == (table.name, "latest") and isinstance(raised.value, TypeError)
    for ask, instead in ((queue.publisher, r"call writer\(\)"), (queue.latest, r"call reader\(\)")):
        with pytest.raises(echod.WrongKindError, match=instead):
            ask()
    assert table.info()["kind"] == "latest" and queue.info()["kind"] == "queue"


def test_an_equal_table_is_the_same_and_another_one_a_mismatch(daemon, table):
    again = daemon.connection.create_latest(table.name, example=EXAMPLE)
    again.publisher().publish(weights(1))
    assert table.latest().version == 1
    for options in ({"capacity": 5}, {"example": {"w": 0.0}}):
        with pytest.raises(echod.SpecMismatchError):
            daemon.connection.create_latest(table.name, **{"example": EXAMPLE, **options})
    with pytest.raises(echod.SpecMismatchError):
        daemon.connection.create_table(table.name, example=EXAMPLE, batch_size=1, capacity=4)


@pytest.mark.parametrize("capacity", [0, -1, 1, 4097, 1 << 40])
def test_a_capacity_that_no_latest_table_has_is_an_invalid_spec(make_latest, capacity):
    with pytest.raises(echod.InvalidSpecError, match=f"capacity is {capacity}"):
        make_latest(EXAMPLE, capacity=capacity)


def test_options_are_those_of_tables(make_latest):
    told = []
    table = make_latest(
        EXAMPLE, capacity=2, pin="off", huge_pages="off", access=["everyone=observe"], progress=lambda *of: told.append(of)
    )
    assert told[-1][0] == told[-1][1] > 0 and table.info()["access"] == ["everyone=observe"]
    with pytest.raises(TypeError, match="list of rules"):
        make_latest(EXAMPLE, access="everyone=observe")
    with pytest.raises(ValueError, match="pin is"):
        make_latest(EXAMPLE, pin="always")
    with pytest.raises(echod.BudgetError):
        make_latest({"x": np.zeros(1 << 28)})
    with pytest.raises(ValueError, match="0 seconds or more"):
        table.latest(poll=-1)
    with pytest.raises(OverflowError):
        table.latest().newer_than(-1)
    with pytest.raises(ValueError, match="0 seconds or more"):
        table.latest().wait_newer_than(0, timeout=math.nan)


def test_a_private_daemon_makes_them_too():
    with echod.local() as daemon:
        table = daemon.create_latest("weights", example=EXAMPLE)
        table.publisher().publish(weights(1))
        assert is_whole(daemon.table("weights").latest().get())
    assert "create_latest" in echod.__doc__ and "newer_than" in echod.__doc__


def test_what_is_held_is_read_only_and_stays_what_it_was(make_latest):
    table = make_latest(EXAMPLE, capacity=8)
    publisher, latest = table.publisher(), table.latest()
    held = []
    for version in range(1, 5):
        publisher.publish(weights(version))
        held.append(latest.get())
    for version in range(5, 50):
        publisher.publish(weights(version))
    assert [value.version for value in held] == [1, 2, 3, 4] and all(map(is_whole, held))
    data = held[0].data
    assert np.shares_memory(data["w"], held[0].data["w"]) and data["w"].flags.c_contiguous and data["w"].flags.aligned
    with pytest.raises(ValueError):
        data["w"][0] = 1
    with pytest.raises(ValueError):
        data["step"].flags.writeable = True


def test_a_publisher_waits_while_every_older_value_is_held(make_latest):
    table = make_latest(EXAMPLE, capacity=2)
    publisher, latest = table.publisher(), table.latest()
    publisher.publish(weights(1))
    part = latest.get().data["w"][1:, ::2].reshape(-1)[1:]  # a view of a view, and nothing else
    gc.collect()
    publisher.publish(weights(2))
    assert latest.held == 1
    for act in (lambda: publisher.publish(weights(3), timeout=0.05), lambda: publisher.claim(timeout=0.05)):
        with pytest.raises(echod.TimeoutError, match="waiting for room") as raised:
            act()
        assert raised.value.after == 0.05
    assert (part == 1).all() and publisher.waits > 0 and latest.version == 2
    del part
    assert latest.held == 0
    assert publisher.publish(weights(3), timeout=60) == 3 and is_whole(latest.get())


def test_too_many_held_is_an_error_with_its_number(make_latest):
    table = make_latest(EXAMPLE, capacity=8)
    publisher, latest = table.publisher(), table.latest()
    held = []
    for version in range(1, 5):
        publisher.publish(weights(version))
        held.append(latest.get())
    # The same ones again take nothing.
    held += [latest.get() for _ in range(10)]
    assert latest.held == 14 and latest.newer_than(4) is None
    publisher.publish(weights(5))
    for act in (latest.get, lambda: latest.newer_than(4), lambda: latest.wait_newer_than(4, timeout=60)):
        with pytest.raises(echod.TooManyHeldError, match="holds 4 different values") as raised:
            act()
        assert raised.value.held == 4
    assert pickle.loads(pickle.dumps(raised.value)).held == 4
    assert table.latest().get().version == 5  # another reader has holds of its own
    del held[1]
    assert latest.get().version == 5


@pytest.mark.parametrize("take", ["get", "wait"])
def test_values_in_cycles_are_found(make_latest, take):
    table = make_latest(EXAMPLE, capacity=8)
    publisher, latest = table.publisher(), table.latest()
    gc.disable()
    try:
        for version in range(1, 20):
            publisher.publish(weights(version), timeout=60)
            cycle = [latest.get() if take == "get" else latest.wait_newer_than(version - 1, 60)]
            cycle.append(cycle)
            assert cycle[0].version == version
            del cycle
    finally:
        gc.enable()


def test_one_who_waits_lets_go_of_what_is_nobodys(make_latest):
    table = make_latest(EXAMPLE, capacity=2)
    publisher, latest = table.publisher(), table.latest()
    publisher.publish(weights(1))
    gc.disable()
    try:
        cycle = [latest.get()]
        cycle.append(cycle)
        del cycle
        publisher.publish(weights(2))
        publishing = Waiting(lambda: publisher.publish(weights(3), timeout=60))
        assert latest.wait_newer_than(2, timeout=60).version == 3 and publishing.ended() == 3
    finally:
        gc.enable()


def test_release_with_views_alive_raises(table):
    table.publisher().publish(weights(1))
    latest = table.latest()
    value = latest.get()
    view = value.data["w"]
    with pytest.raises(echod.ViewsAliveError, match="value 1 cannot be released") as raised:
        value.release()
    assert raised.value.views == 1 and not value.released
    del view
    value.release()
    value.release()
    assert value.released and latest.held == 0
    with pytest.raises(echod.ReleasedError, match="value 1 of table"):
        value.data
    with pytest.raises(echod.ReleasedError):
        value.dlpack()


class Event:
    happened = False

    def query(self):
        return self.happened


def test_a_release_after_an_event_holds_the_value_until_then(make_latest, until):
    table = make_latest(EXAMPLE, capacity=8)
    publisher, latest, events = table.publisher(), table.latest(), [Event() for _ in range(4)]
    for i, event in enumerate(events):
        publisher.publish(weights(i + 1))
        latest.get().release(after=event)
    publisher.publish(weights(5))
    assert latest.held == 4 and ", 4 of them until their events have happened" in repr(latest)
    with pytest.raises(echod.TooManyHeldError):
        latest.get()
    # A wait for a newer one is also one for an event that makes room.
    threading.Timer(0.1, lambda: setattr(events[2], "happened", True)).start()
    assert latest.wait_newer_than(4, timeout=60).version == 5
    for event in events:
        event.happened = True
    until(lambda: latest.held == 0, "nobody asks")
    with pytest.raises(TypeError, match="query"):
        latest.get().release(after=1)


def test_a_value_outlives_everything_else():
    with echod.local() as daemon:
        table = daemon.connect().create_latest("t", example=EXAMPLE)
        latest, publisher = table.latest(), table.publisher()
        publisher.publish(weights(1))
        value, view = latest.get(), latest.get().data["b"]
        watched = weakref.ref(latest), weakref.ref(table.connection), weakref.ref(value)
        del latest, publisher, table
        gc.collect()
        assert [watch() is None for watch in watched] == [True, True, False]
        os.kill(daemon.pid, signal.SIGKILL)
        daemon.close()
        assert is_whole(value) and view.tolist() == [1, 1, 1]
        copy = value.copy()
        value.release()
        assert copy["step"] == 1


def test_copies_hold_nothing(make_latest):
    table = make_latest(EXAMPLE)
    publisher, latest = table.publisher(), table.latest(copy=True)
    values = []
    for version in range(1, 10):
        publisher.publish(weights(version))
        values.append(latest.get())
        assert latest.held == 0 and ", copies" in repr(latest)
    assert [value.version for value in values] == list(range(1, 10)) and all(map(is_whole, values))
    values[0].data["w"][:] = 1


def test_dlpack_goes_out_and_holds(table):
    table.publisher().publish(weights(1))
    latest = table.latest()
    value = latest.get()
    given = value.dlpack()
    assert given["w"].__dlpack_device__() == (1, 0) and "of value 1: w float32[3, 4]" in repr(given["w"])
    arrays = {key: np.from_dlpack(array) for key, array in given.items()}
    del given
    assert arrays["w"].shape == (3, 4) and arrays["step"].shape == () and (arrays["w"] == 1).all()
    assert np.shares_memory(arrays["b"], value.data["b"]) and not arrays["b"].flags.writeable
    with pytest.raises(echod.ViewsAliveError):
        value.release()
    del arrays
    gc.collect()
    value.release()


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_other_frameworks_see_the_same(table, framework):
    pytest.importorskip(framework)
    table.publisher().publish(weights(1))
    value = table.latest().get()
    tree = getattr(value, framework)()
    assert tuple(tree["w"].shape) == (3, 4) and tuple(tree["step"].shape) == () and float(tree["b"].sum()) == 3


class Waiting:
    def __init__(self, act):
        self.act, self.outcome = act, None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            self.outcome = self.act()
        except BaseException as error:  # noqa: BLE001
            self.outcome = error

    def ended(self):
        self.thread.join(60)
        assert not self.thread.is_alive(), "it hangs"
        return self.outcome


def waits(table):
    """Readers that say in shared memory that they wait, as echoctl shows it."""
    return [line for line in table.why() if "newer" in line]


@pytest.mark.parametrize("poll", [0.0, 0.01])
def test_a_wait_ends_with_a_newer_value(table, until, poll):
    publisher, latest = table.publisher(), table.latest(poll=poll)
    for version in range(1, 6):
        waiting = Waiting(lambda: latest.wait_newer_than(version - 1, timeout=None if version % 2 else math.inf))
        until(lambda: waits(table), "it does not wait")
        assert publisher.publish(weights(version)) == version
        value = waiting.ended()
        assert value.version == version and is_whole(value)
    assert latest.wait_newer_than(0, timeout=0).version == 5


def test_a_wait_ends_at_its_deadline(table):
    latest = table.latest()
    table.publisher().publish(weights(1))
    for timeout in (0, 0.05, 0.25):
        with pytest.raises(echod.TimeoutError, match="waiting for a newer value") as raised:
            latest.wait_newer_than(1, timeout)
        assert raised.value.after == timeout and isinstance(raised.value, TimeoutError)


@pytest.mark.parametrize("end", ["daemon", "daemon, killed", "dropped"])
def test_a_wait_ends_when_nothing_will_come(until, end):
    with echod.local() as daemon:
        table = daemon.connect().create_latest("t", example=EXAMPLE)
        empty = daemon.connect().create_latest("empty", example=EXAMPLE)
        publisher, latest, nothing = table.publisher(), table.latest(), empty.latest()
        publisher.publish(weights(1))
        waiting = Waiting(lambda: latest.wait_newer_than(1))
        until(lambda: waits(table), "it does not wait")
        match end:
            case "dropped":
                table.drop()
                empty.drop()
            case "daemon":
                os.kill(daemon.pid, signal.SIGTERM)
            case _:
                os.kill(daemon.pid, signal.SIGKILL)
        error = waiting.ended()
        if end == "dropped":
            assert type(error) is echod.ClosedError and error.reason == "dropped"
        else:
            assert type(error) in (echod.GoneError, echod.ClosedError) and error.reason in ("draining", "its socket has closed")
        # The newest is still there to be taken, and that there is no newer one is said.
        assert is_whole(latest.get()) and latest.newer_than(0).version == 1
        for act in (lambda: latest.newer_than(1), lambda: latest.wait_newer_than(1), nothing.get):
            until(lambda: type(Waiting(act).ended()) in (echod.GoneError, echod.ClosedError), "it is not said")


@pytest.fixture
def interrupts():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(table, until, is_waiting):
    def interrupt():
        try:
            until(is_waiting, "it does not wait")
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    return thread


def test_an_interrupt_ends_a_wait(make_latest, until, interrupts):
    table = make_latest(EXAMPLE, capacity=2)
    publisher, latest = table.publisher(), table.latest()
    thread = interrupted(table, until, lambda: waits(table))
    with pytest.raises(KeyboardInterrupt):
        latest.wait_newer_than(0)
    thread.join(60)
    publisher.publish(weights(1))
    value = latest.wait_newer_than(0, 60)
    publisher.publish(weights(2))
    for act in (lambda: publisher.publish(weights(3), timeout=math.inf), lambda: publisher.claim(timeout=math.inf)):
        thread = interrupted(table, until, lambda: any("room" in line for line in table.why()))
        with pytest.raises(KeyboardInterrupt):
            act()
        thread.join(60)
    assert is_whole(value)
    del value
    assert publisher.publish(weights(3), timeout=60) == 3


def test_waits_for_asyncio(make_latest, until):
    table = make_latest(EXAMPLE, capacity=2)

    async def main():
        publisher, latest = table.publisher(), table.latest()
        waiting = asyncio.create_task(latest.wait_newer_than_async(0, 60))
        await asyncio.sleep(0)
        assert await publisher.publish_async(weights(1)) == 1
        value = await waiting
        assert value.version == 1 and is_whole(value)
        assert await publisher.publish_async(weights(2), timeout=60) == 2
        with pytest.raises(echod.TimeoutError):
            await publisher.publish_async(weights(3), timeout=0.05)
        with pytest.raises(echod.TimeoutError):
            await latest.wait_newer_than_async(2, 0.05)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(latest.wait_newer_than_async(2), 0.05)
        del value, waiting
        cancelled = asyncio.create_task(latest.wait_newer_than_async(2))
        while not waits(table):
            await asyncio.sleep(0.001)
        cancelled.cancel()
        publisher.publish(weights(3), timeout=60)
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert (await latest.wait_newer_than_async(2, 60)).version == 3
        return latest

    latest = asyncio.run(main())
    until(lambda: latest.held == 0, "what nobody got is held")


def test_threads_publish_and_take(make_latest):
    table, total = make_latest(EXAMPLE, capacity=6), 3000
    latest, wrong, seen = table.latest(), [], []

    def publish():
        with table.publisher(timeout=60) as publisher:
            for version in range(1, total + 1):
                publisher.publish(weights(version))

    def take(reader):
        version = 0
        while version < total:
            value = reader.wait_newer_than(version, 60)
            part = value.data["w"][:, ::3], value.version
            if not is_whole(value) or value.version <= version or not (part[0] == part[1]).all():
                wrong.append(value.copy())
            version = value.version
            if version % 100 == 0:
                cycle = [value, part]
                cycle.append(cycle)  # for a collection, in whatever thread that is
                del cycle
            del value, part
        seen.append(version)

    # Two of them share a reader, which may hold four.
    readers = [latest, latest, table.latest(), table.latest(poll=1e-4)]
    threads = [Waiting(publish), *(Waiting(lambda reader=reader: take(reader)) for reader in readers)]
    assert [thread.ended() for thread in threads] == [None] * 5
    gc.collect()
    assert seen == [total] * 4 and not wrong and [reader.held for reader in readers] == [0] * 4


def test_a_table_is_pickled_to_those_who_take(table):
    spawn = multiprocessing.get_context("spawn")
    said = spawn.SimpleQueue()
    latest = table.latest()
    takers = [spawn.Process(target=publishing.take, args=(handle, 20, said)) for handle in (table, latest)]
    for taker in takers:
        taker.start()
    with table.publisher(timeout=60) as publisher:
        for version in range(1, 21):
            publisher.publish(publishing.value(version))
    for taker in takers:
        taker.join(60)
        assert taker.exitcode == 0
    assert [said.get(), said.get()] == [20, 20]
    again = pickle.loads(pickle.dumps(latest))
    assert again.get().version == 20 and again.table.name == table.name
    # The one here has finished, so one that was pickled finds room.
    assert pickle.loads(pickle.dumps(publisher)).publish(publishing.value(21)) == 21


def start(act, table, *arguments):
    command = [sys.executable, publishing.__file__, act, table.connection.path, table.name, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def attached(table, until):
    """A publisher, as soon as the last one is known to be gone."""

    def attach():
        try:
            return table.publisher(timeout=60)
        except echod.RefusedError as error:
            assert error.kind == "limit"
            return None

    return until(attach, "the last one is not gone")


def test_publishers_that_are_killed_leave_a_whole_newest_value(make_latest, until):
    table = make_latest(publishing.EXAMPLE)
    latest = table.latest()
    for _ in range(10):
        with start("publish", table) as publisher:
            first = publisher.stdout.readline()
            publisher.kill()
            said = int([first, *publisher.stdout.read().splitlines()][-1])
            assert publisher.wait(60) == -signal.SIGKILL
        newest = latest.get()
        # At most the one that it had no time to tell of is there as well.
        assert newest.version in (said, said + 1) and publishing.is_whole(newest)
        del newest
        until(lambda: table.info()["writers"] == 0, "it is not forgotten")
    publisher = attached(table, until)
    before = latest.version
    assert publisher.publish(publishing.value(before + 1)) == before + 1


def test_a_publisher_that_is_killed_in_a_claim_has_published_nothing(make_latest, until):
    table = make_latest(publishing.EXAMPLE)
    attached(table, until).publish(publishing.value(1))
    with start("claim", table) as publisher:
        assert publisher.stdout.readline() == "claimed\n"
        publisher.kill()
    latest = table.latest()
    assert latest.version == 1 and publishing.is_whole(latest.get())
    assert attached(table, until).publish(publishing.value(2)) == 2 and publishing.is_whole(latest.get())


def test_what_a_killed_reader_held_is_free(make_latest, until):
    table = make_latest(publishing.EXAMPLE, capacity=2)
    publisher = table.publisher()
    publisher.publish(publishing.value(1))
    with start("hold", table) as holder:
        assert holder.stdout.readline() == "1\n"
        publisher.publish(publishing.value(2))
        waiting = Waiting(lambda: publisher.publish(publishing.value(3), timeout=60))
        until(lambda: any(f"(pid {holder.pid}): holds version 1" in line for line in table.why()), "it does not wait for it")
        holder.kill()
        assert waiting.ended() == 3


FORKED = {
    "publish": lambda of: of.publisher.publish(weights(2)),
    "publish_async": lambda of: asyncio.run(of.publisher.publish_async(weights(2))),
    "claim": lambda of: of.publisher.claim(),
    "publish claim": lambda of: of.claim.publish(),
    "abort": lambda of: of.claim.abort(),
    "finish": lambda of: of.publisher.finish(),
    "version": lambda of: of.publisher.version,
    "get": lambda of: of.latest.get(),
    "newer_than": lambda of: of.latest.newer_than(0),
    "wait_newer_than": lambda of: of.latest.wait_newer_than(5),
    "wait_newer_than_async": lambda of: asyncio.run(of.latest.wait_newer_than_async(5)),
    "latest version": lambda of: of.latest.version,
    "data": lambda of: of.value.data,
    "copy": lambda of: of.value.copy(),
    "dlpack": lambda of: of.value.dlpack(),
    "release": lambda of: of.value.release(),
    "publisher": lambda of: of.table.publisher(),
    "latest": lambda of: of.table.latest(),
    "create_latest": lambda of: of.table.connection.create_latest("new", example=1.0),
}


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_everything_raises_in_a_forked_child(make_latest):
    from test_forks import in_child

    class Handles:
        pass

    of = Handles()
    of.table = make_latest(EXAMPLE)
    of.publisher, of.latest = of.table.publisher(), of.table.latest()
    of.publisher.publish(weights(1))
    of.value, of.view, of.claim = of.latest.get(), of.latest.get().data["w"], of.publisher.claim()
    for name, act in FORKED.items():
        assert in_child(lambda: act(of)) == "ForkedError", name
    for look in (lambda: [of.table, of.latest, of.value, of.claim], lambda: (of.value.version, of.value.nbytes, of.latest.held)):
        assert in_child(look) == repr(look())
    assert in_child(lambda: of.publisher).endswith("of no use in a forked process>")
    assert in_child(lambda: of.view.sum()) == f"signal {signal.SIGSEGV}"

    def forget():
        of.__dict__.clear()
        return gc.collect() >= 0

    assert in_child(forget) == "True"
    # The parent's are as they were.
    assert of.latest.held == 2 and is_whole(of.value) and of.view.sum() == 12
    for key, leaf in weights(2).items():
        of.claim.data[key][...] = leaf
    assert of.claim.publish() == 2 and is_whole(of.latest.get())


def test_what_they_say_of_themselves(make_latest):
    table = make_latest(EXAMPLE)
    name = table.name
    order = "b float64[3], step int64[], w float32[3, 4]"
    assert repr(table) == f"<echod.Table {name!r}: the latest of 4 values, 320 bytes; {order}>"
    publisher, latest = table.publisher(), table.latest()
    assert repr(publisher) == f"<echod.Publisher of {name!r}: nothing published yet, open>"
    with publisher.claim():
        assert repr(publisher) == f"<echod.Publisher of {name!r}: nothing published yet, a claim is open>"
    assert repr(publisher) == f"<echod.Publisher of {name!r}: version 1, open>"
    assert repr(latest) == f"<echod.LatestReader of {name!r}: holds 0 values>"
    value = latest.get()
    assert repr(latest) == f"<echod.LatestReader of {name!r}: holds 1 value>"
    data = value.data
    assert repr(value) == f"<echod.Value 1 of {name!r}: 80 bytes, held, and 1 tree of arrays over it; {order}>"
    assert repr(data["w"].base) == "<memory of value 1>"
    del data
    value.release()
    assert repr(value) == f"<echod.Value 1 of {name!r}: 80 bytes, released; {order}>"
    publisher.finish()
    assert repr(publisher) == f"<echod.Publisher of {name!r}: version 1, finished>"
