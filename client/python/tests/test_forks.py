"""A forked child can use nothing that its parent made, is told so, and harms nothing."""

import asyncio
import faulthandler
import gc
import os
import pickle
import signal

import echod
import numpy as np
import pytest

EXAMPLE = {"x": np.zeros(3), "n": 2}
MANY = {"x": np.zeros((2, 3)), "n": np.zeros(2, int)}

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")


def in_child(act):
    """What a forked child says, and how it ended."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        faulthandler.disable()  # one that crashes is what a test wants
        signal.alarm(60)  # a child that hangs is a failure, not the end of the tests
        try:
            said = repr(act())
        except BaseException as error:  # noqa: BLE001
            said = type(error).__name__
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        text = said.read()
    _, status = os.waitpid(pid, 0)
    return text if status == 0 else f"signal {os.WTERMSIG(status)}"


class Never:
    def query(self):
        return False


class Handles:
    def __init__(self, table):
        self.table, self.connection = table, table.connection
        self.writer, self.reader = table.writer(), table.reader(prefetch=4)
        for i in range(16):
            self.writer.append({"x": np.full(3, float(i)), "n": i})
        self.batch, self.view = self.reader.next(), self.reader.next().data["x"]
        self.claim = self.writer.claim()


ACTS = {
    "append": lambda of: of.writer.append(EXAMPLE),
    "append_many": lambda of: of.writer.append_many(MANY),
    "append_many of none": lambda of: of.writer.append_many({"x": np.zeros((0, 3)), "n": np.zeros(0, int)}),
    "append_async": lambda of: asyncio.run(of.writer.append_async(EXAMPLE)),
    "claim_async": lambda of: asyncio.run(of.writer.claim_async()),
    "finish_async": lambda of: asyncio.run(of.writer.finish_async()),
    "append_many_async": lambda of: asyncio.run(of.writer.append_many_async(MANY)),
    "claim": lambda of: of.writer.claim(),
    "commit": lambda of: of.claim.commit(),
    "abort": lambda of: of.claim.abort(),
    "with claim": lambda of: of.claim.__exit__(None, None, None),
    "finish": lambda of: of.writer.finish(),
    "finished": lambda of: of.writer.finished,
    "committed": lambda of: of.writer.committed,
    "waits": lambda of: of.writer.waits,
    "next": lambda of: of.reader.next(),
    "try_next": lambda of: of.reader.try_next(),
    "iterate": lambda of: next(of.reader),
    "next_async": lambda of: asyncio.run(of.reader.next_async()),
    "data": lambda of: of.batch.data,
    "copy": lambda of: of.batch.copy(),
    "release": lambda of: of.batch.release(),
    "release after": lambda of: of.batch.release(after=Never()),
    "writer": lambda of: of.table.writer(),
    "reader": lambda of: of.table.reader(),
    "info": lambda of: of.table.info(),
    "why": lambda of: of.table.why(),
    "set_access": lambda of: of.table.set_access([]),
    "drop": lambda of: of.table.drop(),
    "tables": lambda of: of.connection.tables(),
    "table": lambda of: of.connection.table(of.table.name),
    "create_table": lambda of: of.connection.create_table("new", example=1.0, batch_size=1, capacity=1),
}


def test_everything_raises_in_a_forked_child(make):
    of = Handles(make(EXAMPLE))
    for name, act in ACTS.items():
        assert in_child(lambda: act(of)) == "ForkedError", name
    # The parent's are as they were.
    of.claim.abort()
    assert of.batch.data["x"][3, 0] == 3 and of.view[0, 0] == 4 and of.reader.next(60).seq == 2
    of.writer.append(EXAMPLE)


def test_what_needs_no_daemon_can_be_looked_at(make):
    of = Handles(make(EXAMPLE))
    for look in (
        lambda: [of.table, of.reader, of.batch, of.claim],
        lambda: (of.batch.seq, len(of.batch), of.batch.nbytes, of.reader.prefetch, of.reader.pinned, of.table.leaves),
    ):
        assert in_child(look) == repr(look())
    for look in (lambda: of.connection, lambda: of.writer):
        assert in_child(look).endswith("of no use in a forked process>")


def test_a_view_is_not_there_and_never_shows_what_came_later(make):
    of = Handles(make(EXAMPLE))
    assert in_child(lambda: of.view.sum()) == f"signal {signal.SIGSEGV}"
    assert of.view.sum() == 3 * (4 + 5 + 6 + 7)


def test_what_a_child_drops_stays_its_parents(make):
    of = Handles(make(EXAMPLE))

    def forget():
        of.__dict__.clear()
        return gc.collect() >= 0

    assert in_child(forget) == "True"
    assert of.reader.held == 2 and of.view[0, 0] == 4
    of.claim.commit()
    assert of.writer.committed == 17
    of.batch.release()
    assert of.table.info()["readers"] == 1


def test_a_child_that_ends_as_programs_do_harms_nothing(make):
    of = Handles(make(EXAMPLE))
    pid = os.fork()
    if pid == 0:
        del of
        gc.collect()
        os.closerange(3, 4096)  # as daemons are made; ours is no such
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert of.reader.next(60).seq == 2 and of.connection.tables()


def test_a_child_may_connect_anew(daemon, make):
    of = Handles(make(EXAMPLE))
    of.batch.release(after=Never())  # a thread asks it, which the child does not have

    def anew():
        # By the path, and by what was pickled: each makes a connection of the child's own.
        table = daemon.connect().create_table(f"{of.table.name}-child", example=EXAMPLE, batch_size=1, capacity=2)
        again = pickle.loads(pickle.dumps(table))
        writer, reader = again.writer(), table.reader(prefetch=1)
        writer.append(EXAMPLE)
        writer.append(EXAMPLE)
        event = Never()
        reader.next(60).release(after=event)
        event.query = lambda: True
        seq = reader.next(60).seq
        table.drop()
        return seq

    assert in_child(anew) == "1"


def test_what_was_pickled_before_connects_anew_in_a_child(make):
    table = make(EXAMPLE)
    again = pickle.loads(pickle.dumps(table))  # whose connection is remembered for others of that name
    pickled = pickle.dumps((table, table.writer()))

    def use():
        table, writer = pickle.loads(pickled)
        for i in range(4):
            writer.append({"x": np.full(3, float(i)), "n": i})
        return len(table.reader().next(60))

    assert in_child(use) == "4"
    assert again.info()["samples_committed"] == 4


def test_a_local_daemon_is_its_makers_own():
    with echod.local() as daemon:
        daemon.create_table("t", example=1.0, batch_size=1, capacity=1)
        assert in_child(lambda: daemon.table("t")) == "ForkedError"
        assert in_child(lambda: daemon.connect().table("t").name) == "'t'"
        assert in_child(lambda: daemon.close()) == "None"
        assert daemon.table("t").writer().append(2.0) is None


def test_a_forked_process_is_told_how_to_start_others_instead(daemon):
    connection = daemon.connect()

    def says_how():
        try:
            connection.tables()
        except echod.ForkedError as error:
            assert 'multiprocessing.get_context("spawn")' in str(error)

    assert in_child(says_how) == "None"
