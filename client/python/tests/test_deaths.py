"""Workers that are killed: nothing is lost that was committed, and nothing is delivered that was torn."""

import multiprocessing
import random
import signal
import subprocess
import sys
import time
import zlib

import dying
import pytest

# Forked from a process that has imported everything and connected to nothing: they start at once.
START = multiprocessing.get_context("forkserver")
START.set_forkserver_preload(["echod", "numpy"])


@pytest.fixture
def table(make):
    return make(dying.EXAMPLE, batch_size=4, capacity=8)


class Worker:
    def __init__(self, table, worker, how, told):
        told.write_bytes(b"")
        self.told = told
        self.process = START.Process(target=dying.work, args=(table, worker, how, str(told)))
        self.process.start()

    @property
    def committed(self):
        """How many samples it says are committed."""
        return self.told.stat().st_size

    def ended(self):
        self.process.join(60)
        return self.process.exitcode


def check(batch, seen):
    """Every sample is whole, and came once."""
    data = batch.data
    for first, (worker, i), last, total in zip(data["a_first"], data["b_who"], data["c_last"], data["d_sum"]):
        worker, i = int(worker), int(i)
        assert total == zlib.crc32(first) ^ zlib.crc32(last), f"sample {i} of worker {worker} is torn"
        expected = dying.sample(worker, i)
        assert (first == expected["a_first"]).all() and (last == expected["c_last"]).all()
        assert (worker, i) not in seen, "it came twice"
        seen.add((worker, i))


@pytest.mark.parametrize(
    ("how", "killed_by", "whole"),
    [
        (dying.in_append, signal.SIGBUS, 3),
        (dying.in_append_many, signal.SIGBUS, 4),
        (dying.in_claim, signal.SIGKILL, 3),
    ],
)
def test_a_worker_dies_in_the_middle_of_a_sample(table, tmp_path, how, killed_by, whole):
    mine, reader, seen = table.writer(), table.reader(), set()
    worker = Worker(table, 1, how, tmp_path / "told")
    assert worker.ended() == -killed_by
    # Its place goes to others, and its batch is full in the end.
    for i in range(20):
        mine.append(dying.sample(0, i))
    mine.finish()
    for batch in reader:
        check(batch, seen)
    assert seen == {(1, i) for i in range(whole)} | {(0, i) for i in range(20)}
    assert worker.committed <= whole


def test_workers_are_killed_at_random(table, tmp_path, until):
    keep, reader, seen, committed = table.writer(), table.reader(prefetch=4), set(), {}
    for number in range(1, 41):
        worker = Worker(table, number, dying.at_random, tmp_path / str(number))
        quota = random.randrange(1, 32)
        while worker.committed < quota:
            batch = reader.try_next()
            if batch is not None:
                check(batch, seen)
                del batch
            assert worker.process.is_alive()
        # Somewhere in what comes next: a sample takes some ten microseconds.
        moment = time.perf_counter() + random.random() * 200e-6
        while time.perf_counter() < moment:
            pass
        worker.process.kill()
        assert worker.ended() == -signal.SIGKILL
        committed[number] = worker.committed
    keep.finish()
    for batch in reader:
        check(batch, seen)
        del batch
    for number, said in committed.items():
        # What it was told of, and at most the one that it had no time to tell of.
        of_worker = sorted(i for who, i in seen if who == number)
        assert of_worker in (list(range(said)), list(range(said + 1)))
    until(lambda: table.info()["samples_delivered"] == len(seen), "not all was given back")
    assert table.info()["samples_committed"] == len(seen)


TRAINER = """
import sys, echod
reader = echod.connect(sys.argv[1]).table(sys.argv[2]).reader(prefetch=3)
kept = [reader.next(60), reader.next(60).data["d_sum"]]
print(kept[0].seq, flush=True)
sys.stdin.read()
"""


def test_what_a_killed_trainer_had_not_given_back_goes_to_another(table):
    writer, seen = table.writer(), set()
    for i in range(16):
        writer.append(dying.sample(0, i))
    command = [sys.executable, "-c", TRAINER, table.connection.path, table.name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as trainer:
        assert trainer.stdout.readline() == b"0\n"
        trainer.kill()
        assert trainer.wait(60) == -signal.SIGKILL
    writer.finish()
    for batch in table.reader():
        check(batch, seen)
    assert seen == {(0, i) for i in range(16)}
