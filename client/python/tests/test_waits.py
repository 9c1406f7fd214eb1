"""Every wait has a deadline, is ended by a signal, can be cancelled, and ends when the daemon is gone."""

import asyncio
import concurrent.futures
import itertools
import math
import os
import signal
import sys
import threading
import time

import echod
import numpy as np
import pytest
from echod import _asyncio

EXAMPLE = {"x": np.zeros(3), "p": (np.float32(1), [2])}
MANY = {"x": np.zeros((3, 3)), "p": (np.zeros(3, np.float32), [np.zeros(3, int)])}


def sample(i):
    return {**EXAMPLE, "x": np.full(3, float(i))}


class Stage:
    """A daemon of its own with a table that is full and one that is empty, so that everything waits."""

    def __init__(self, timeout=60.0):
        self.daemon = echod.local()
        self.connection = self.daemon.connect(timeout=timeout)
        self.full = self.create("full")
        self.empty = self.create("empty")
        self.writer, self.other = self.full.writer(), self.empty.writer()
        self.writer.append(EXAMPLE)
        self.reader = self.empty.reader()
        self.timeout = timeout

    def create(self, name, connection=None):
        return (connection or self.connection).create_table(name, example=EXAMPLE, batch_size=1, capacity=1)

    def stop(self):
        os.kill(self.daemon.pid, signal.SIGSTOP)
        stat = f"/proc/{self.daemon.pid}/stat"
        while state(stat) != "T":
            time.sleep(0.001)

    def kill(self):
        os.kill(self.daemon.pid, signal.SIGKILL)


@pytest.fixture
def stage():
    made = []

    def stage(**options):
        made.append(Stage(**options))
        return made[-1]

    yield stage
    for one in made:
        os.kill(one.daemon.pid, signal.SIGCONT)
        one.daemon.close()


def state(stat):
    """The kernel's letter for what a process or thread does; none if it has ended."""
    try:
        with open(stat) as text:
            return text.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


# Waits for other processes: for room, or for a batch.
MEMBERS = {
    "append": lambda on: on.writer.append(EXAMPLE),
    "append_many": lambda on: on.writer.append_many(MANY),
    "claim": lambda on: on.writer.claim(),
    "claim of many": lambda on: on.writer.claim(3),
    "next": lambda on: on.reader.next(on.timeout),
    "next, polling": lambda on: on.empty.reader(poll=0.01).next(on.timeout),
    "iteration": lambda on: next(on.reader),
    "append_async": lambda on: asyncio.run(on.writer.append_async(EXAMPLE)),
    "claim_async": lambda on: asyncio.run(on.writer.claim_async()),
    "append_many_async": lambda on: asyncio.run(on.writer.append_many_async(MANY)),
    "next_async": lambda on: asyncio.run(on.reader.next_async(on.timeout)),
    "async iteration": lambda on: asyncio.run(on.reader.__anext__()),
}
# Waits for the daemon's answer.
CALLS = {
    "connect": lambda on: on.daemon.connect(timeout=on.timeout),
    "create_table": lambda on: on.create("new"),
    "create_table that is there": lambda on: on.create("empty"),
    "table": lambda on: on.connection.table("full"),
    "tables": lambda on: on.connection.tables(),
    "drop_table": lambda on: on.connection.drop_table("full"),
    "writer": lambda on: on.full.writer(),
    "reader": lambda on: on.full.reader(),
    "info": lambda on: on.full.info(),
    "why": lambda on: on.full.why(),
    "set_access": lambda on: on.full.set_access(["everyone=observe"]),
    "finish": lambda on: on.other.finish(),
    "finish_async": lambda on: asyncio.run(on.other.finish_async()),
}


class Waiting:
    """A call in a thread."""

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


def sleeps_in(thread, act):
    """Whether the thread sleeps in that call (a code object, or the name of one), whenever it is looked at."""
    for _ in range(3):
        frame = sys._current_frames().get(thread.ident)
        while frame is not None and act not in (frame.f_code.co_name, frame.f_code):
            frame = frame.f_back
        if frame is None or state(f"/proc/self/task/{thread.native_id}/stat") != "S":
            return False
        time.sleep(0.003)
    return True


@pytest.mark.parametrize("wait", MEMBERS)
def test_a_wait_for_others_ends_when_the_daemon_is_killed(stage, until, wait):
    on = stage()
    act = MEMBERS[wait]
    waiting = Waiting(lambda: act(on))
    until(lambda: sleeps_in(waiting.thread, act.__code__), "it does not wait")
    on.kill()
    error = waiting.ended()
    assert type(error) is echod.GoneError and isinstance(error, ConnectionError) and error.reason
    # And so does everything after it, at once.
    with pytest.raises(echod.GoneError):
        act(on)


@pytest.mark.parametrize("wait", MEMBERS)
def test_a_wait_for_others_ends_when_the_daemon_stops(stage, until, wait):
    on = stage()
    act = MEMBERS[wait]
    waiting = Waiting(lambda: act(on))
    until(lambda: sleeps_in(waiting.thread, act.__code__), "it does not wait")
    os.kill(on.daemon.pid, signal.SIGTERM)
    error = waiting.ended()
    assert type(error) is echod.ClosedError and error.reason == "draining" or type(error) is echod.GoneError


@pytest.mark.parametrize("wait", CALLS)
def test_a_call_ends_when_the_daemon_is_killed(stage, until, wait):
    on = stage()
    on.stop()
    act = CALLS[wait]
    waiting = Waiting(lambda: act(on))
    until(lambda: sleeps_in(waiting.thread, act.__code__), "it does not wait")
    on.kill()
    error = waiting.ended()
    assert type(error) is echod.GoneError and error.reason and "echoctl status" in str(error), error
    with pytest.raises(echod.ConnectError if wait == "connect" else echod.GoneError):
        act(on)


@pytest.mark.parametrize("wait", CALLS)
def test_a_call_ends_at_its_deadline(stage, wait):
    on = stage(timeout=0.2)
    on.stop()
    with pytest.raises(echod.TimeoutError, match="longer than") as raised:
        CALLS[wait](on)
    assert isinstance(raised.value, TimeoutError) and raised.value.after > 0 and raised.value.what


@pytest.mark.parametrize("wait", ["append", "append_many", "claim", "next", "append_async", "next_async"])
def test_a_wait_for_others_ends_at_its_deadline(stage, wait):
    on = stage(timeout=0.2)
    with pytest.raises(echod.TimeoutError, match="waiting for .* longer than 0.2 s .*why") as raised:
        MEMBERS[wait](on)
    assert raised.value.after == 0.2


def test_a_wait_whose_time_is_over_says_where_and_whose_time_it_was(daemon, make, name):
    table = make(EXAMPLE, batch_size=1, capacity=1)
    short = daemon.connect(timeout=0.02).table(table.name)
    filled = table.writer()
    filled.append(EXAMPLE)
    with pytest.raises(echod.TimeoutError, match=f"room in table .{table.name}. .*0.02 s .the connection's timeout"):
        short.writer().append(EXAMPLE)
    with pytest.raises(echod.TimeoutError, match="0.03 s .the timeout that it was attached with.*writer.timeout=...."):
        table.writer(timeout=0.03).append(EXAMPLE)
    with pytest.raises(echod.TimeoutError, match="0.01 s .the call's timeout"):
        filled.append(EXAMPLE, timeout=0.01)
    with pytest.raises(echod.TimeoutError, match=f"a batch of table .{table.name}. .*call's timeout.*writers"):
        reader = table.reader()
        reader.next(timeout=10).release()
        reader.next(timeout=0.01)


@pytest.fixture
def interrupts():
    """SIGINT raises KeyboardInterrupt, also where the tests were started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("wait", [*MEMBERS, *CALLS])
def test_an_interrupt_ends_a_wait(stage, until, interrupts, wait):
    on = stage()
    act = {**MEMBERS, **CALLS}[wait]
    if wait in CALLS:
        on.stop()
    main = threading.main_thread()

    def interrupt():
        try:
            until(lambda: sleeps_in(main, act.__code__), "it does not wait")
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        done = threads.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            act(on)
        done.result()
    os.kill(on.daemon.pid, signal.SIGCONT)
    # Everything goes on as if nothing had been.
    assert on.daemon.connect().table("empty").info()["readers"] >= 1
    if wait not in ("drop_table",):
        assert on.full.reader().next(60).data["x"].shape == (1, 3)
        on.writer.append(EXAMPLE)


def test_a_handler_may_use_what_waits(make, interrupts):
    table = make(EXAMPLE, batch_size=1, capacity=2)
    writer, reader = table.writer(), table.reader()
    before = signal.signal(signal.SIGALRM, lambda *_: writer.append(EXAMPLE))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert len(reader.next(60)) == 1
    finally:
        signal.signal(signal.SIGALRM, before)


def test_timeouts_have_their_numbers(make):
    table = make(EXAMPLE, batch_size=1, capacity=1)
    reader, writer = table.reader(), table.writer()
    with pytest.raises(TimeoutError) as raised:
        reader.next(timeout=0.05)
    assert isinstance(raised.value, echod.TimeoutError) and raised.value.after == 0.05
    assert reader.try_next() is None
    writer.append(EXAMPLE)
    with pytest.raises(echod.TimeoutError, match="room"):
        writer.append(EXAMPLE, timeout=0)
    with pytest.raises(echod.TimeoutError, match="room"):
        table.writer(timeout=0).claim()
    assert len(reader.next(5)) == 1
    with pytest.raises(echod.PartlyError) as raised:
        writer.append_many(MANY, timeout=0.3)
    assert 1 <= raised.value.done < raised.value.of == 3
    cause = raised.value.__cause__
    assert isinstance(cause, echod.TimeoutError) and str(raised.value).count(str(cause)) == 1


def test_a_wait_without_a_deadline_waits(make, until):
    table = make(EXAMPLE, batch_size=1, capacity=1)
    reader, writer = table.reader(), table.writer(timeout=0.01)
    waiting = Waiting(lambda: reader.next(timeout=float("inf")))
    until(lambda: sleeps_in(waiting.thread, waiting.act.__code__), "it does not wait")
    writer.append(EXAMPLE)
    batch = waiting.ended()
    waiting = Waiting(lambda: writer.append(EXAMPLE, timeout=float("inf")))
    until(lambda: sleeps_in(waiting.thread, waiting.act.__code__), "it does not wait")
    batch.release()
    assert waiting.ended() is None and writer.committed == 2 and writer.waits >= 1


def test_waits_for_asyncio(make):
    table = make(EXAMPLE, batch_size=1, capacity=2)

    async def main():
        reader, writer = table.reader(), table.writer()
        waiting = [asyncio.create_task(reader.next_async()) for _ in range(2)]
        await asyncio.sleep(0)
        for x in (1, 2):
            await writer.append_async(sample(x))
        got = await asyncio.gather(*waiting)
        assert sorted(batch.data["x"][0, 0] for batch in got) == [1, 2]
        del got, waiting
        writing = asyncio.create_task(writer.append_many_async(MANY, timeout=60))
        assert [(await reader.next_async(60)).data["p"][1][0][0] for _ in range(3)] == [0, 0, 0]
        await writing
        await writer.append_async(sample(3))
        writer.finish()
        assert [batch.data["x"][0, 0] async for batch in reader] == [3]
        with pytest.raises(echod.ClosedError):
            await reader.next_async()

    asyncio.run(main())


def pool():
    """The threads in which calls are made for asyncio."""
    return [thread for thread in threading.enumerate() if thread.name == "echod-wait"]


async def cancelled_while(act):
    """Cancels a call once it waits in its thread."""
    task = asyncio.create_task(act())
    while not any(sleeps_in(thread, "act") for thread in pool()):
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_cancelled_next_loses_no_batch(make):
    table = make(EXAMPLE, batch_size=1, capacity=2)

    async def main():
        reader, writer = table.reader(), table.writer()
        for i in range(3):
            await cancelled_while(reader.next_async)
            writer.append(sample(i))
            assert (await reader.next_async(60)).data["x"][0, 0] == i
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.next_async(), 0.05)
        with pytest.raises(echod.TimeoutError):
            await reader.next_async(0.05)

    asyncio.run(main())


def test_a_cancelled_append_leaves_its_writer_as_it_was(make):
    table = make(EXAMPLE, batch_size=1, capacity=1)

    async def main():
        reader, writer = table.reader(), table.writer()
        writer.append(EXAMPLE)
        await cancelled_while(lambda: writer.append_async(EXAMPLE))
        await cancelled_while(lambda: writer.append_many_async(MANY))
        assert writer.committed == 1
        for i in range(3):
            assert (await reader.next_async(60)).seq == i
            await writer.append_async(EXAMPLE, timeout=60)

    asyncio.run(main())


def test_many_are_cancelled_and_every_batch_is_read_once(make):
    table = make({"i": 0}, batch_size=1, capacity=8)
    total = 300

    async def main():
        reader, writer = table.reader(prefetch=4), table.writer()

        async def write():
            for i in range(total):
                await writer.append_async({"i": i}, timeout=60)
            writer.finish()

        writing, seen, patience = asyncio.create_task(write()), [], itertools.cycle([0, 0.0002, 0.001, 0.01])
        while True:
            try:
                batch = await asyncio.wait_for(reader.next_async(), next(patience))
            except (TimeoutError, asyncio.TimeoutError):  # two classes before Python 3.11
                continue
            except echod.ClosedError:
                break
            seen.append(int(batch.data["i"][0]))
            del batch
        await writing
        assert sorted(seen) == list(range(total))

    asyncio.run(main())


class Member:
    """Something whose call takes as long as the test wants."""

    def __init__(self):
        self.go, self.returned, self.kept = threading.Event(), threading.Event(), []

    def call(self, *, _token):
        self.go.wait(60)
        self.returned.set()
        return "batch"

    def _wake(self):
        pass


def test_what_comes_after_a_cancellation_is_kept_also_if_the_loop_is_gone(until):
    member = Member()

    async def main():
        task = asyncio.create_task(_asyncio.run(member, member.call, (), {}, member.kept.append))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert member.kept == []
        asyncio.get_running_loop().call_soon(member.go.set)

    asyncio.run(main())
    until(lambda: member.kept == ["batch"], "it is lost")


def test_what_came_before_a_cancellation_was_heard_is_kept(until):
    member = Member()

    async def main():
        task = asyncio.create_task(_asyncio.run(member, member.call, (), {}, member.kept.append))
        await asyncio.sleep(0)
        member.go.set()
        member.returned.wait(60)
        until(lambda: not pool(), "the thread does not end")
        task.cancel()  # before the loop has seen the result
        with pytest.raises(asyncio.CancelledError):
            await task
        assert member.kept == ["batch"]

    asyncio.run(main())


def test_an_interrupt_ends_a_loop_that_waits(stage, until, interrupts):
    on = stage()

    async def main():
        await on.reader.next_async(on.timeout)

    def interrupt():
        try:
            until(lambda: any(sleeps_in(thread, "act") for thread in pool()), "it does not wait")
            until(lambda: sleeps_in(threading.main_thread(), "select"), "nor does its loop")
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        done = threads.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(main())
        done.result()
    on.other.append(EXAMPLE)
    assert len(on.reader.next(60)) == 1


def test_threads_share_a_reader_and_a_writer(make):
    table = make({"i": 0}, batch_size=3, capacity=4)
    writer, reader, seen = table.writer(), table.reader(prefetch=3, patience=30), []

    def write(first):
        for i in range(first, 300, 3):
            writer.append({"i": i}, timeout=60)

    def read():
        try:
            while True:
                seen.extend(reader.next(60).data["i"].tolist())
        except echod.ClosedError:
            pass

    with concurrent.futures.ThreadPoolExecutor(6) as threads:
        reading = [threads.submit(read) for _ in range(3)]
        for writing in [threads.submit(write, i) for i in range(3)]:
            writing.result()
        writer.finish()
        for done in reading:
            done.result()
    assert sorted(seen) == list(range(300))


def test_what_is_waited_for_is_said_in_sentences(make, until):
    table = make(EXAMPLE, batch_size=1, capacity=1)
    assert table.why() == []
    writer, reader = table.writer(), table.reader()
    writer.append(EXAMPLE)
    batch = reader.next(60)
    waiting = Waiting(lambda: writer.append(EXAMPLE))
    [said] = until(table.why, "nothing is said")
    assert " waits for " in said and f"(pid {os.getpid()})" in said and " s)" in said and ": held by " in said
    batch.release()
    waiting.ended()
    until(lambda: not table.why(), "it still waits")


def test_waits_that_are_more_than_the_loop_has_threads_do_not_hold_each_other_up(make):
    table = make({"i": 0}, batch_size=1, capacity=4)
    waits = 3 * (os.cpu_count() or 1) + 40  # the loop's executor has fewer threads

    async def main():
        reader, writer = table.reader(prefetch=1), table.writer()
        reading = [asyncio.create_task(reader.next_async(60)) for _ in range(waits)]
        while len(pool()) < waits:
            await asyncio.sleep(0.001)
        # More than there is room for, so that writing takes threads too.
        writing = [asyncio.create_task(writer.append_async({"i": i}, timeout=60)) for i in range(waits)]
        seen = []
        while reading:
            done, reading = await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
            seen += [int(task.result().data["i"][0]) for task in done]
            del done
        await asyncio.gather(*writing)
        assert sorted(seen) == list(range(waits))

    asyncio.run(main())


def test_a_call_that_was_cancelled_before_it_began_is_not_made(monkeypatch):
    member, made, started = Member(), [], []
    monkeypatch.setattr(threading.Thread, "start", lambda thread: started.append(thread))  # as where the processor is busy

    async def main():
        task = asyncio.create_task(_asyncio.run(member, lambda _token: made.append(1), (), {}))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert len(started) == 1
    started[0].run()
    assert made == []


def test_what_needs_no_wait_takes_no_thread(make, monkeypatch):
    table = make({"i": 0}, batch_size=2, capacity=4)

    async def main():
        reader, writer = table.reader(), table.writer()
        await writer.append_async({"i": 0})
        with await writer.claim_async() as slot:
            slot.data["i"][...] = 1
        assert (await reader.next_async()).data["i"].tolist() == [0, 1]

    with monkeypatch.context() as patch:
        patch.setattr(_asyncio, "run", None)
        asyncio.run(main())


def test_threads_that_wait_do_not_hold_up_others(make, until):
    table = make(EXAMPLE, batch_size=1, capacity=1)
    writer, reader = table.writer(), table.reader()
    writer.append(EXAMPLE)
    writing = [Waiting(lambda: writer.append(EXAMPLE, timeout=math.inf)) for _ in range(8)]
    until(lambda: all(sleeps_in(one.thread, one.act.__code__) for one in writing), "they do not wait")
    deadline = time.monotonic() + 60
    for _ in range(2000):
        with pytest.raises(echod.TimeoutError, match="room"):
            writer.append(EXAMPLE, timeout=0)
        assert writer.committed == 1 and not writer.finished and time.monotonic() < deadline
    assert "waits for room" in repr(writer)
    until(lambda: writer.waits >= 1, "its waits are not counted")
    for i in range(9):
        reader.next(60).release()
    assert [one.ended() for one in writing] == [None] * 8 and writer.committed == 9

    reading = [Waiting(lambda: reader.next(math.inf).seq) for _ in range(8)]
    until(lambda: all(sleeps_in(one.thread, one.act.__code__) for one in reading), "they do not wait")
    deadline = time.monotonic() + 60
    for _ in range(2000):
        with pytest.raises(echod.TimeoutError):
            reader.next(0)
        assert time.monotonic() < deadline
    for _ in range(8):
        writer.append(EXAMPLE, timeout=60)
    assert sorted(one.ended() for one in reading) == list(range(9, 17))


def test_threads_wait_for_each_others_claims(make, until):
    writer = make(EXAMPLE, batch_size=4, capacity=4).writer()
    claim = writer.claim()
    acts = lambda: writer.append(EXAMPLE), lambda: writer.append_many(MANY), lambda: writer.claim().commit()
    waiting = [Waiting(act) for act in acts]
    until(lambda: all(sleeps_in(one.thread, one.act.__code__) for one in waiting), "they do not wait")
    for act in (*acts, writer.finish):
        with pytest.raises(echod.ClaimError, match="this thread"):
            act()
    late = Waiting(lambda: writer.append(EXAMPLE, timeout=0.05))
    error = late.ended()
    assert type(error) is echod.TimeoutError and "claim" in error.what
    assert writer.committed == 0
    claim.abort()
    assert [one.ended() for one in waiting] == [None] * 3 and writer.committed == 5
    claim = writer.claim()
    finishing = Waiting(writer.finish)
    until(lambda: sleeps_in(finishing.thread, "run"), "it does not wait")
    claim.commit()
    assert finishing.ended() is None and writer.finished and writer.committed == 6


def test_claims_for_asyncio(make):
    table = make({"i": 0}, batch_size=1, capacity=1)

    async def main():
        reader, writer = table.reader(), table.writer()
        with await writer.claim_async() as slot:
            slot.data["i"][...] = 0
            writing = asyncio.create_task(writer.append_async({"i": 1}, timeout=60))
            while not any(sleeps_in(thread, "act") for thread in pool()):
                await asyncio.sleep(0.001)
        await cancelled_while(writer.claim_async)
        assert (await reader.next_async(60)).data["i"] == [0]
        await writing
        claim = asyncio.create_task(writer.claim_async(1, timeout=60))
        assert (await reader.next_async(60)).data["i"] == [1]
        with await claim as slot:
            with pytest.raises(echod.ClaimError):
                writer.append({"i": 3})
            slot.data["i"][:] = 2
        await writer.finish_async()
        assert [batch.data["i"][0] async for batch in reader] == [2]

    asyncio.run(main())


def test_an_interrupt_says_how_many_were_written(make, until, interrupts):
    writer = make(EXAMPLE, batch_size=1, capacity=2).writer()
    act = lambda: writer.append_many(MANY)  # noqa: E731
    main = threading.main_thread()

    def interrupt():
        try:
            until(lambda: sleeps_in(main, act.__code__), "it does not wait")
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        done = threads.submit(interrupt)
        with pytest.raises(KeyboardInterrupt) as raised:
            act()
        done.result()
    assert raised.value.done == writer.committed == 2
    if sys.version_info >= (3, 11):
        assert raised.value.__notes__ == ["2 of 3 samples were written"]
