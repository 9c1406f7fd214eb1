"""Spawned and forked processes, signals, and daemons that go."""

import asyncio
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import echod
import numpy as np
import pytest

EXAMPLE = {"x": np.zeros(3), "p": (np.float32(1), [2])}


def work(table, n):
    with table.writer() as writer:
        for i in range(n):
            writer.append(_sample(i))


def _sample(i):
    return {"x": np.full(3, float(i)), "p": (np.float32(i), [i])}


def work_with(writer, n):
    for i in range(n):
        writer.append(_sample(i))
    writer.finish()


def test_a_table_is_pickled_to_workers(make):
    table = make(EXAMPLE)
    spawn = multiprocessing.get_context("spawn")
    keep = table.writer()  # so that the table does not end when the first worker has finished
    workers = [spawn.Process(target=work, args=(table, 50)) for _ in range(2)]
    for worker in workers:
        worker.start()
    seen = []
    reader = table.reader()
    for _ in range(100 // table.batch_size):
        batch = reader.next(60)
        assert type(batch.data["p"]) is tuple
        seen += batch.data["x"][:, 0].tolist()
        del batch
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert sorted(seen) == sorted(2 * [float(i) for i in range(50)])
    keep.finish()
    with pytest.raises(StopIteration):
        next(reader)


def test_a_writer_is_pickled_to_a_worker(make):
    table = make(EXAMPLE)
    worker = multiprocessing.get_context("spawn").Process(target=work_with, args=(table.writer(), 4))
    worker.start()
    assert table.reader().next(60).data["x"][:, 0].tolist() == [0, 1, 2, 3]
    worker.join(60)


def test_handles_are_pickled_within_a_process(make):
    table = make(EXAMPLE)
    writer, reader = pickle.loads(pickle.dumps((table.writer(timeout=3), table.reader(prefetch=3))))
    for i in range(4):
        writer.append(_sample(i))
    assert len(reader.next(5)) == 4 and reader.prefetch == 3
    error = pickle.loads(pickle.dumps(echod.LeafShapeError("said", leaf="x", expected=(1,), got=(2,))))
    assert error.leaf == "x" and str(error) == "said"


def in_child(act):
    """What a forked child says."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            act()
            said = "nothing"
        except BaseException as error:  # noqa: BLE001
            said = type(error).__name__
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        text = said.read()
    os.waitpid(pid, 0)
    return text


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_child_is_told(make):
    table = make(EXAMPLE)
    writer, reader = table.writer(), table.reader()
    for i in range(8):
        writer.append(_sample(i))
    batch, claim = reader.next(), writer.claim()
    acts = {
        "append": lambda: writer.append(EXAMPLE),
        "append_many": lambda: writer.append_many({"x": np.zeros((2, 3)), "p": (np.zeros(2, np.float32), [np.zeros(2, int)])}),
        "claim": lambda: writer.claim(),
        "commit": lambda: claim.commit(),
        "finish": lambda: writer.finish(),
        "committed": lambda: writer.committed,
        "next": lambda: reader.next(),
        "try_next": lambda: reader.try_next(),
        "iterate": lambda: next(reader),
        "data": lambda: batch.data,
        "copy": lambda: batch.copy(),
        "table": lambda: table.writer(),
        "reader": lambda: table.reader(),
        "info": lambda: table.info(),
        "connection": lambda: table.connection.tables(),
    }
    for name, act in acts.items():
        assert in_child(act) == "ForkedError", name
    # The parent's are as they were.
    claim.abort()
    assert batch.data["x"].shape == (4, 3) and reader.next(5).seq == 1


@pytest.mark.parametrize("wait", ["next", "append", "claim"])
def test_an_interrupt_ends_a_wait(make, wait):
    table = make(EXAMPLE, batch_size=1, capacity=1)
    reader, writer = table.reader(), table.writer(timeout=60)
    if wait != "next":
        writer.append(EXAMPLE)
    acts = {"next": lambda: reader.next(60), "append": lambda: writer.append(EXAMPLE), "claim": lambda: writer.claim()}
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        acts[wait]()
    assert time.monotonic() - started < 30
    if wait == "next":
        writer.append(EXAMPLE)
    assert len(reader.next(10)) == 1


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
    many = {"x": np.zeros((3, 3)), "p": (np.zeros(3, np.float32), [np.zeros(3, int)])}
    assert len(reader.next(5)) == 1
    with pytest.raises(ValueError):
        reader.next(timeout=-1)
    with pytest.raises(echod.PartlyError) as raised:
        writer.append_many(many, timeout=0.3)
    assert 1 <= raised.value.done < raised.value.of == 3
    assert isinstance(raised.value.__cause__, echod.TimeoutError)


def test_waits_for_asyncio(make):
    table = make(EXAMPLE, batch_size=1, capacity=2)

    async def main():
        reader, writer = table.reader(), table.writer()
        waiting = asyncio.create_task(reader.next_async())
        await asyncio.sleep(0.05)
        await writer.append_async(_sample(1))
        assert (await waiting).data["x"][0, 0] == 1
        del waiting
        # Cancelled while it waits: the next batch is not lost.
        waiting = asyncio.create_task(reader.next_async())
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await writer.append_async(_sample(2))
        assert (await reader.next_async(10)).data["x"][0, 0] == 2
        writer.append(_sample(3))
        writer.finish()
        assert [batch.data["x"][0, 0] async for batch in reader] == [3]

    asyncio.run(main())


def test_a_wait_ends_when_the_daemon_is_gone():
    with echod.local() as daemon:
        table = daemon.create_table("t", example=EXAMPLE, batch_size=1, capacity=1)
        reader, writer = table.reader(), table.writer()
        writer.append(EXAMPLE)
        held = reader.next()
        seen = []

        def wait(act):
            try:
                act()
            except echod.Error as error:
                seen.append(type(error).__name__)

        acts = [lambda: writer.append(EXAMPLE, timeout=60), lambda: table.reader().next(60)]
        threads = [threading.Thread(target=wait, args=(act,)) for act in acts]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        os.kill(daemon.pid, signal.SIGKILL)
        for thread in threads:
            thread.join(30)
        assert seen and set(seen) <= {"GoneError", "ClosedError"} and len(seen) == 2
        assert held.data["x"].shape == (1, 3)


LIVES = """
import os, sys, time, echod
daemon = echod.local()
print(daemon.pid, daemon.path, flush=True)
if sys.argv[1] == "kill":
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_a_local_daemon_ends_with_its_process(how):
    ran = subprocess.run([sys.executable, "-c", LIVES, how], stdout=subprocess.PIPE, text=True, timeout=60)
    pid, path = ran.stdout.split()
    deadline = time.monotonic() + 20
    while (os.path.exists(f"/proc/{pid}") or os.path.exists(os.path.dirname(path))) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not os.path.exists(os.path.dirname(path))


def test_a_local_daemon_that_cannot_start_says_why():
    with pytest.raises(echod.ConnectError, match="host"):
        echod.local(host_budget="much")


def test_the_programs_are_the_programs(daemon):
    run = subprocess.run([sys.executable, "-m", "echod", "--version"], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0 and run.stdout.startswith("echod 0.")
    ask = "import echod._programs, sys; sys.argv = ['x', '--socket', sys.argv[1], 'status']; echod._programs.echoctl()"
    run = subprocess.run([sys.executable, "-c", ask, daemon.path], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr


def test_a_finished_writer_writes_no_more(make):
    table = make(EXAMPLE)
    writer = table.writer()
    writer.finish()
    writer.finish()
    with pytest.raises(echod.FinishedError):
        writer.append(EXAMPLE)
    assert list(table.reader()) == []
    with pytest.raises(echod.ClosedError) as raised:
        table.reader().next(5)
    assert raised.value.reason == "finished"


def test_a_dropped_table_is_no_end_of_an_iteration(make):
    table = make(EXAMPLE)
    reader = table.reader()
    table.drop()
    with pytest.raises(echod.ClosedError) as raised:
        next(reader)
    assert raised.value.reason == "dropped" and raised.value.table == table.name


def test_pinning_without_cuda_says_what_was_tried(make, monkeypatch):
    monkeypatch.setenv("ECHO_CUDART", "/nowhere/libcudart.so")
    with pytest.raises(echod.PinError, match="/nowhere"):
        make(EXAMPLE).reader(pin=True)
    monkeypatch.delenv("ECHO_CUDART")
    assert make(EXAMPLE).reader().pinned is None
