"""Consumer groups: each batch to one reader of every group."""

import pickle

import echod
import numpy as np
import pytest

EXAMPLE = {"n": np.int64(0)}


def numbers(batch):
    return batch.copy()["n"].tolist()


def write(table, count, first=0):
    table.writer().append_many({"n": np.arange(first, first + count)})


def test_each_batch_goes_to_one_reader_of_every_group(make):
    table = make(EXAMPLE, batch_size=2, capacity=8)
    table.add_group("eval")
    write(table, 8)
    train, evaluate, other = table.reader(), table.reader(group="eval"), table.reader(group="eval")
    assert [numbers(train.next(60)) for _ in range(4)] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    seen = [numbers(reader.next(60)) for reader in (evaluate, evaluate, other, other)]
    assert sorted(seen) == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_memory_goes_back_once_all_groups_are_done(make):
    table = make(EXAMPLE, batch_size=2, capacity=2)
    table.add_group("eval")
    writer, train, evaluate = table.writer(), table.reader(), table.reader(group="eval")
    writer.append_many({"n": np.arange(4)})
    assert [numbers(train.next(60)) for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(echod.TimeoutError):
        writer.append({"n": np.int64(4)}, timeout=0.2)
    assert numbers(evaluate.next(60)) == [0, 1]
    writer.append_many({"n": np.arange(4, 6)}, timeout=60)
    assert numbers(train.next(60)) == [4, 5]


def test_a_group_that_may_lag_holds_up_nobody(make):
    table = make(EXAMPLE, batch_size=2, capacity=4)
    table.add_group("monitor", max_lag=16)
    writer, train = table.writer(), table.reader()
    for first in range(0, 20, 2):
        writer.append_many({"n": np.arange(first, first + 2)}, timeout=60)
        assert numbers(train.next(60)) == [first, first + 1]
    groups = {group["name"]: group for group in table.info()["groups"]}
    assert groups["default"]["batches_skipped"] == 0 and groups["default"]["batches_delivered"] == 10
    assert groups["monitor"]["batches_skipped"] > 0 and groups["monitor"]["max_lag"] == 1
    # What it has not skipped is the newest.
    assert numbers(table.reader(group="monitor").next(60))[1] == 19


def test_a_group_can_be_rewound_and_removed(make):
    table = make(EXAMPLE, batch_size=2, capacity=4)
    table.add_group("slow")
    write(table, 4)
    reader = table.reader()
    assert [numbers(reader.next(60)) for _ in range(2)] == [[0, 1], [2, 3]]
    assert reader.try_next() is None
    assert table.rewind_group("default") == 2
    assert [numbers(reader.next(60)) for _ in range(2)] == [[0, 1], [2, 3]]
    table.remove_group("slow")
    assert [group["name"] for group in table.info()["groups"]] == ["default"]


def test_a_group_that_starts_with_the_newest_reads_nothing_older(make):
    table = make(EXAMPLE, batch_size=2, capacity=8)
    write(table, 2)
    table.add_group("late", start="newest")
    write(table, 14, first=2)
    first = numbers(table.reader(group="late").next(60))
    assert first == [2, 3]


def test_a_reader_is_pickled_with_its_group(make):
    table = make(EXAMPLE, batch_size=2)
    table.add_group("eval")
    again = pickle.loads(pickle.dumps(table.reader(group="eval")))
    write(table, 2)
    assert numbers(again.next(60)) == [0, 1]
    assert numbers(table.reader().next(60)) == [0, 1]


def test_what_cannot_be_is_refused(make, make_latest):
    table = make(EXAMPLE)
    with pytest.raises(echod.RefusedError, match="nobody"):
        table.reader(group="nobody")
    with pytest.raises(echod.RefusedError, match="default"):
        table.add_group("default")
    with pytest.raises(echod.RefusedError, match="nobody"):
        table.rewind_group("nobody")
    with pytest.raises(echod.RefusedError):
        table.remove_group("default")
    with pytest.raises(ValueError, match="start"):
        table.add_group("x", start="middle")
    with pytest.raises(ValueError, match="max_lag"):
        table.add_group("x", max_lag=-1)
    table.add_group("read")
    reader = table.reader(group="read")
    with pytest.raises(echod.RefusedError, match="reader"):
        table.remove_group("read")
    assert reader.try_next() is None
    with pytest.raises(echod.WrongKindError):
        make_latest(EXAMPLE).add_group("x")
