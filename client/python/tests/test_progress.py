"""Making a large table says how far it is, to whoever looks."""

import io
import itertools
import sys
import types

import echod
import numpy as np
import pytest
from echod import _progress

LARGE = {"example": np.zeros(1 << 20, np.uint8), "batch_size": 64, "capacity": 16}  # 1 GiB


@pytest.fixture(scope="module")
def slow():
    """A daemon that makes memory resident on one thread."""
    with echod.local(host_budget="3 GiB", prefault_threads=1) as daemon:
        yield daemon


def test_a_function_is_told(slow):
    # How often depends on the machine, which may even be done before the first time: then once more.
    for i in itertools.count():
        told = []
        table = slow.create_table(f"told-{i}", **LARGE, progress=lambda done, total: told.append((done, total)))
        table.drop()
        assert told == sorted(set(told)), "it never goes back, and says nothing twice"
        assert told[-1] == (1 << 30, 1 << 30) and {total for _, total in told} == {1 << 30}
        if 0 < told[0][0] < 1 << 30:
            return


def test_a_table_that_is_being_made_is_in_the_list_and_cannot_be_used_yet(slow):
    connection, seen = slow.connect(), []

    def look(done, total):
        if done < total:
            seen.append(connection.tables())
            with pytest.raises(echod.NoSuchTableError):
                connection.table("list")

    while not seen:
        slow.create_table("list", **LARGE, progress=look).drop()
    assert seen[0] == ["list"]
    assert connection.tables() == []


def test_what_the_function_raises_ends_the_wait(slow):
    def enough(done, total):
        raise KeyError("enough")

    with pytest.raises(KeyError):
        slow.create_table("ended", **LARGE, progress=enough)
    # It is made all the same, for whoever else wants it.
    slow.connect().create_table("ended", **LARGE).drop()


def test_one_that_is_there_is_told_of_once(slow):
    told = []
    options = {"example": 1.0, "batch_size": 1, "capacity": 1}
    table = slow.create_table("twice", **options)
    slow.create_table("twice", **options, progress=lambda *now: told.append(now))
    assert told == [(8, 8)]
    table.drop()


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Lets standard error be a terminal. Called by the test, since pytest sets it anew after the fixtures."""

    def terminal(soon=0.0):
        monkeypatch.setattr(sys, "stderr", Terminal())
        monkeypatch.setattr(_progress, "_SOON", soon)
        return sys.stderr

    return terminal


def test_a_terminal_without_tqdm_gets_a_line(terminal, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    stderr = terminal()
    with _progress.shown("table 't'") as told:
        for done in (0, 256 << 20, 1 << 30):
            told(done, 1 << 30)
    assert stderr.getvalue() == "".join(
        f"\rtable 't': {said} of 1.0 GiB " for said in ("0 bytes", "256 MiB", "1.0 GiB")
    ) + "\n"


def test_tqdm_is_used_if_it_is_there(terminal, monkeypatch):
    made = []

    class Tqdm:
        def __init__(self, **options):
            self.options, self.n, self.closed = options, 0, False
            made.append(self)

        def update(self, more):
            self.n += more

        def close(self):
            self.closed = True

    auto = types.ModuleType("tqdm.auto")
    auto.tqdm = Tqdm
    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", auto)
    terminal()
    with pytest.raises(KeyError), _progress.shown("table 't'") as told:
        told(10, 100)
        told(50, 100)
        raise KeyError
    [bar] = made
    assert bar.n == 50 and bar.closed
    assert bar.options == {"desc": "table 't'", "total": 100, "unit": "B", "unit_scale": True, "unit_divisor": 1024}


def test_what_is_soon_done_is_not_shown(terminal, slow):
    stderr = terminal(soon=60)
    with _progress.shown("table 't'") as told:
        told(1, 2)
        told(2, 2)
    slow.create_table("small", example=1.0, batch_size=1, capacity=1).drop()
    assert stderr.getvalue() == ""


def test_nobody_looks(monkeypatch, slow):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with _progress.shown("table 't'") as told:
        assert told is None
    monkeypatch.setattr(sys, "stderr", None)  # as in a program without a terminal
    with _progress.shown("table 't'") as told:
        assert told is None
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    with _progress.shown("table 't'") as told:
        assert told is not None, "a notebook shows it"


def test_large_tables_show_it_by_themselves_unless_they_are_told_not_to(terminal, monkeypatch, slow):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    stderr = terminal()
    slow.create_table("silent", **LARGE, progress=False).drop()
    assert stderr.getvalue() == ""
    while not stderr.getvalue():  # where it is made before anybody can look, it is not shown
        slow.create_table("shown", **LARGE).drop()
    assert "\rtable 'shown': " in stderr.getvalue() and stderr.getvalue().endswith(": 1.0 GiB of 1.0 GiB \n")
