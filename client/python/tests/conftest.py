import itertools
import signal
import time

import echod
import numpy as np
import pytest

_numbers = itertools.count()

# A shell's background jobs are started with SIGINT ignored, and the tests interrupt themselves.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def daemon():
    with echod.local(host_budget="2 GiB") as daemon:
        yield daemon


@pytest.fixture
def name():
    return f"t{next(_numbers)}"


@pytest.fixture
def made(daemon):
    """Tables that are dropped in the end."""
    made = []
    yield made
    for table in made:
        try:
            daemon.connection.drop_table(table.name)
        except echod.NoSuchTableError:
            pass


@pytest.fixture
def make(daemon, name, made):
    """Makes a table on a connection of its own."""

    def make(example, batch_size=4, capacity=8, **options):
        connection = daemon.connect()
        table = connection.create_table(
            f"{name}-{len(made)}", example=example, batch_size=batch_size, capacity=capacity, **options
        )
        made.append(table)
        return table

    return make


@pytest.fixture
def make_latest(daemon, name, made):
    """Makes a latest table on a connection of its own."""

    def make_latest(example, **options):
        table = daemon.connect().create_latest(f"{name}-{len(made)}", example=example, **options)
        made.append(table)
        return table

    return make_latest


@pytest.fixture
def make_replay(daemon, name, made):
    """Makes a replay table on a connection of its own."""

    def make_replay(example, max_size=100, **options):
        table = daemon.connect().create_replay(f"{name}-{len(made)}", example=example, max_size=max_size, **options)
        made.append(table)
        return table

    return make_replay


@pytest.fixture
def sample():
    return {
        "obs": np.arange(4, dtype=np.float32),
        "reward": np.float32(0.5),
        "info": {"step": 7, "done": False},
    }


@pytest.fixture
def until():
    """Waits for something that another thread or process does."""

    def until(condition, what):
        deadline = time.monotonic() + 60
        while not (found := condition()):
            assert time.monotonic() < deadline, what
            time.sleep(0.002)
        return found

    return until
