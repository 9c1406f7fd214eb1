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


def _names(table):
    return table.connection._name


def test_workers_are_told_apart_by_the_names_of_their_processes(make):
    table = make(EXAMPLE)
    own = table.connection._name
    assert pickle.loads(pickle.dumps(table)).connection._name == own
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        (said,) = pool.map(_names, [table])
        again = pool.apply(_again, (table,))
    assert said.startswith(f"{own} SpawnPoolWorker-") and again == said


def _again(table):
    return pickle.loads(pickle.dumps(table)).connection._name


def test_a_connection_that_is_closed_does_nothing_more(daemon, make):
    table = make(EXAMPLE)
    with daemon.connect() as connection:
        mine = connection.table(table.name)
        writer, reader = mine.writer(), mine.reader()
    for act in (connection.tables, mine.writer, mine.reader, mine.info, lambda: connection.table(table.name)):
        with pytest.raises(echod.GoneError, match="was closed") as raised:
            act()
        assert raised.value.reason == "this connection was closed"
    connection.close()
    connection.close()
    assert "closed" in repr(connection) and connection.path == daemon.path
    for i in range(table.batch_size):
        writer.append(_sample(i))
    writer.finish()
    assert [len(batch) for batch in reader] == [table.batch_size]


def test_a_connection_that_is_closed_leaves_the_daemon_with_its_last_member(daemon, make, until):
    table = make(EXAMPLE)
    connection = daemon.connect()
    reader = connection.table(table.name).reader()
    connection.close()
    assert table.info()["readers"] == 1
    del reader
    until(lambda: table.info()["readers"] == 0, "the reader stays")


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


def test_a_private_daemon_does_what_a_connection_does():
    with echod.local() as daemon:
        table = daemon.create_table("t", example={"x": np.zeros(2)}, batch_size=1, capacity=2)
        assert daemon.tables() == ["t"] and daemon.table("t").leaves == table.leaves
        daemon.drop_table("t")
        assert daemon.tables() == []
