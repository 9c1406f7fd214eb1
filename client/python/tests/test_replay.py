"""Replay tables: what is written is chosen, limited, aged and removed as the settings say, and a batch stays what it was."""

import asyncio
import collections
import gc
import inspect
import math
import multiprocessing
import os
import pickle
import signal
import threading
import weakref

import echod
import ml_dtypes
import numpy as np
import pytest
import sampling
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

EXAMPLE = {"x": np.zeros(8, np.float32), "id": 0}
QUEUE = {"sampler": "fifo", "remover": "fifo", "max_times_sampled": 1}
Layer = collections.namedtuple("Layer", "weight bias")


def sample(i):
    return {"x": np.full(8, i, np.float32), "id": i}


def samples(ids):
    ids = np.asarray(ids)
    return {"x": np.repeat(ids.astype(np.float32)[:, None], 8, 1), "id": ids.astype(np.int64)}


def ids(batch):
    """The samples' numbers, each compared with its other leaf."""
    data = batch.data
    assert (data["x"] == data["id"][:, None]).all()
    return data["id"].tolist()


# --- samples in, batches out


@pytest.mark.parametrize(
    "tree",
    [
        {"obs": [Layer(np.ones((4, 2), np.float32), np.zeros(2)), (np.uint8(3),)], "step": 3},
        np.arange(12, dtype=np.uint8).reshape(3, 4),
        2.5,
        {"nothing": np.zeros((0, 3), np.int16), "small": np.ones(5, ml_dtypes.bfloat16), "f": np.asfortranarray(np.eye(3)[:, :2])},
    ],
)
def test_what_goes_in_comes_out(make_replay, tree):
    import optree

    table = make_replay(tree, batch_size=3)
    table.writer().append(tree)
    batch = table.reader().next(60)
    expected, treespec = optree.tree_flatten(tree)
    for data in (batch.data, batch.copy()):
        got, got_treespec = optree.tree_flatten(data)
        assert got_treespec == treespec
        for mine, theirs in zip(got, expected):
            theirs = np.asarray(theirs)
            assert mine.dtype == theirs.dtype and mine.shape == (3, *theirs.shape) and (mine == theirs).all()
    assert len(batch) == 3 and batch.nbytes == 3 * sum(leaf.nbytes for leaf in table.leaves)


def test_one_by_one_many_and_in_place_are_the_same(make_replay):
    table = make_replay(EXAMPLE, batch_size=8, rate_limiter="queue:100", **QUEUE)
    writer, reader = table.writer(), table.reader()
    writer.append(sample(0), 0.5, 7)
    writer.append_many(samples([1, 2]), [1.5, 2.5], [8, -1])
    writer.append_many(samples([3]), 3.5)
    writer.append_many(samples([]))
    with writer.claim() as slot:
        slot.data["x"][:], slot.data["id"][...] = 4, 4
        assert slot.priority is None and slot.version is None
        slot.priority, slot.version = 4.5, 9
        assert (slot.priority, slot.version) == (4.5, 9)
    with writer.claim(2) as slot:
        # How many there are is for the table to say; here they lie in blocks of one.
        assert len(slot) == 1 and np.isnan(slot.priority).tolist() == [True] and slot.version.tolist() == [-1]
        slot.data["x"][:], slot.data["id"][:] = 5, 5
        slot.priority, slot.version = [5.5], 10
    writer.append(sample(6))
    with pytest.raises(KeyError), writer.claim() as slot:
        slot.data["id"][...] = 99
        slot.priority = 99.0
        raise KeyError
    writer.append(sample(7))
    assert writer.committed == 8
    batch = reader.next(60)
    assert ids(batch) == list(range(8))
    # Without a priority it is the largest that is there; what was given up has left nothing behind.
    assert batch.info.priorities.tolist() == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 5.5, 5.5]
    assert batch.info.versions.tolist() == [7, 8, -1, -1, 9, 10, -1, -1]


def test_info_has_a_column_for_each_thing_and_stays(make_replay):
    table = make_replay(EXAMPLE, batch_size=64, sampler=echod.Prioritized(2))
    writer, reader = table.writer(), table.reader(prefetch=1)
    writer.append_many(samples(range(4)), [0, 1, 2, 3], [3, -1, 5, 2**63 - 1])
    batch = reader.next(60)
    info = batch.info
    assert isinstance(info, echod.SampleInfo) and info is batch.info
    assert [str(column.dtype) for column in info] == ["uint64", "float64", "float64", "int64", "int64", "float64", "int64"]
    assert all(column.shape == (64,) for column in info)
    chosen = np.array(ids(batch))
    assert set(chosen.tolist()) == {1, 2, 3}
    assert (info.keys == chosen).all() and (info.priorities == chosen).all()
    np.testing.assert_allclose(info.probabilities, chosen**2 / 14, rtol=1e-12)
    assert (info.versions == np.array([3, -1, 5, 2**63 - 1])[chosen]).all()
    assert (info.table_size == 4).all() and (info.ages >= 0).all()
    for item in (1, 2, 3):
        times = info.times_sampled[chosen == item]
        assert (np.diff(times) > 0).all() and (times >= 1).all()
    batch.release()
    with pytest.raises(echod.ReleasedError, match="sampled batch 1 of table"):
        batch.data
    assert batch.info is info and len(batch) == 64
    np.testing.assert_allclose(batch.weights(0.5), (1 / chosen**2) ** 0.5 / max(1 / chosen), rtol=1e-12)


@pytest.mark.parametrize("beta", [0, 0.4, 1])
def test_weights_are_those_of_the_definition(make_replay, beta):
    table = make_replay(EXAMPLE, batch_size=32, sampler="prioritized:1")
    table.writer().append_many(samples(range(1, 11)), np.arange(1, 11))
    batch = table.reader().next(60)
    by_definition = (1 / (10 * batch.info.probabilities)) ** beta
    np.testing.assert_allclose(batch.weights(beta), by_definition / by_definition.max(), rtol=1e-12)
    np.testing.assert_allclose(batch.weights(beta, "table"), by_definition / (55 / 10) ** beta, rtol=1e-12)
    np.testing.assert_allclose(batch.weights(beta, largest="table"), batch.weights(beta, "table"))
    for wrong in (-0.1, math.nan, math.inf):
        with pytest.raises(ValueError, match="beta"):
            batch.weights(wrong)
    with pytest.raises(ValueError, match="largest"):
        batch.weights(0.4, "world")


def test_another_structure_for_those_who_know_only_the_name(make_replay):
    table = make_replay({"a": (np.zeros(2), 1)}, batch_size=2)
    table.writer().append({"a": (np.ones(2), 5)})
    again = table.connection.table(table.name)
    assert isinstance(again, echod.ReplayTable) and (again.capacity, again.batch_size) == (100, 2)
    assert again.reader().next(60).data["a"][1].tolist() == [5, 5]
    assert type(again.reader(example={"a": (0, 0)}).next(60).data["a"]) is tuple
    assert type(table.connection.table(table.name, example={"a": (0, 0)}).reader().next(60).data["a"]) is tuple


# --- choosing and removing


def chi_squared(counts, expected):
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize(
    ("sampler", "weight"),
    [
        ("uniform", lambda priorities: np.ones(len(priorities))),
        ("prioritized:0.6", lambda priorities: np.where(priorities > 0, priorities**0.6, 0)),
        (echod.Prioritized(0), lambda priorities: np.where(priorities > 0, 1.0, 0)),
        (echod.Prioritized(1), lambda priorities: priorities),
    ],
)
def test_items_come_as_often_as_their_weights_say(make_replay, sampler, weight):
    table = make_replay(EXAMPLE, batch_size=256, sampler=sampler)
    priorities = np.arange(20) / 4
    table.writer().append_many(samples(range(20)), priorities)
    counts = np.zeros(20)
    reader = table.reader()
    for _ in range(200):
        counts += np.bincount(reader.next(60).data["id"], minlength=20)
    weights = weight(priorities)
    possible = weights > 0
    assert counts.sum() == 51_200 and (counts[~possible] == 0).all()
    expected = 51_200 * weights / weights.sum()
    # With 19 degrees of freedom or fewer, a right one is above this in one run of ten million.
    assert chi_squared(counts[possible], expected[possible]) < 71


def test_priorities_are_changed_and_what_is_gone_is_counted(make_replay):
    table = make_replay(EXAMPLE, batch_size=16, sampler="prioritized:1")
    writer, reader = table.writer(), table.reader(prefetch=1)
    writer.append_many(samples(range(10)), [0, 0, 0, 1, 0, 0, 0, 0, 0, 0])
    assert ids(reader.next(60)) == [3] * 16
    done = reader.update_priorities(np.array([3, 7, 99], np.uint64), np.array([0, 2, 1], np.float32), wait=True)
    assert done == (2, 1) and isinstance(done, echod.Counted)
    reader.next(60)  # was asked for ahead, by the priorities of before
    batch = reader.next(60)
    assert ids(batch) == [7] * 16
    assert reader.update_priorities(batch.info.keys, np.arange(16.0)) is None  # the last of them counts
    assert reader.update_priorities([], [], wait=True) == (0, 0)
    assert reader.update_priorities([7], (1,), wait=True) == (1, 0)
    assert reader.delete([7, 8, 8]) == (2, 1)
    reader.next(60)
    # All that are left have priority 0: each is as likely as another.
    assert set(ids(reader.next(60))) <= {0, 1, 2, 3, 4, 5, 6, 9}
    shown = table.info()["replay"]
    assert (shown["size"], shown["deleted"], shown["skipped"], shown["inserts"], shown["deletes"]) == (8, 2, 1, 10, 2)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, -1.0, np.float32(-1), -5e-324])
def test_what_is_no_priority_is_refused_before_anything_changes(make_replay, wrong):
    table = make_replay(EXAMPLE, batch_size=4, sampler="max-heap")
    writer, reader = table.writer(), table.reader(prefetch=1)
    writer.append_many(samples(range(4)), [0, 3, 0, 0])
    with pytest.raises(echod.PriorityError, match="sample 0 has the priority") as raised:
        writer.append(sample(9), priority=wrong)
    assert (raised.value.number, raised.value.key) == (0, None)
    many = samples(range(5))
    with pytest.raises(ValueError, match="sample 3 has the priority") as raised:
        writer.append_many(many, [1, 2, 3, wrong, 5])
    assert raised.value.number == 3
    with writer.claim() as slot:
        slot.data["id"][...], slot.data["x"][:] = 4, 4
        slot.priority = 1
        with pytest.raises(echod.PriorityError):
            slot.priority = wrong
        assert slot.priority == 1
    with pytest.raises(echod.PriorityError, match="item 2, number 1 of the list, has the priority") as raised:
        reader.update_priorities([0, 2], [100, wrong])
    assert (raised.value.key, raised.value.number) == (2, 1)
    assert repr(raised.value.priority) == repr(float(wrong))
    assert ids(reader.next(60)) == [1] * 4
    assert table.info()["replay"]["inserts"] == 5 and writer.committed == 5
    again = pickle.loads(pickle.dumps(raised.value))
    assert (again.key, str(again)) == (2, str(raised.value))


def test_what_is_said_of_samples_fits_them(make_replay):
    table = make_replay(EXAMPLE)
    writer, reader = table.writer(), table.reader()
    for said, error, match in [
        (([1, 2],), ValueError, r"priorities are one for all 3 samples, or an array of as many, and have shape \(2,\)"),
        (([[1, 2, 3]],), ValueError, r"shape \(1, 3\)"),
        ((["1", "2", "3"],), TypeError, "priorities are numbers"),
        (([True, True, False],), TypeError, "priorities are numbers"),
        (([1, None, 3],), TypeError, "priorities are numbers"),
        ((None, [1, 2]), ValueError, "versions are one for all 3"),
        ((None, [1.0, 2.0, 3.0]), TypeError, "versions are whole numbers"),
        ((None, [1, -2, 3]), ValueError, "sample 1 has the version -2"),
        ((None, np.array([1, 2**63, 3], np.uint64)), ValueError, "sample 1 has the version 9223372036854775808"),
    ]:
        with pytest.raises(error, match=match):
            writer.append_many(samples(range(3)), *said)
    for version in (-1, 2**63, 1.5, "1"):
        with pytest.raises(ValueError, match="a version is a whole number"):
            writer.append(sample(0), version=version)
        with pytest.raises(ValueError, match="a version is a whole number"):
            reader.state_version(version)
    with pytest.raises(echod.StructureError):
        writer.append({"x": np.zeros(8, np.float32)}, 1.0)
    with pytest.raises(ValueError, match="2 keys were given, and 1 priorities"):
        reader.update_priorities([1, 2], [1])
    for keys in ([1.5], [-1], ["a"]):
        with pytest.raises(TypeError, match="keys are those of a batch's info"):
            reader.delete(keys)
    assert writer.committed == 0 == table.info()["replay"]["inserts"]


class Model:
    """A table of one of these orders, as plainly as can be: (key, priority, when the priority was set)."""

    def __init__(self, sampler, remover, max_size, times):
        self.sampler, self.remover, self.max_size, self.times = sampler, remover, max_size, times
        self.items, self.clock, self.next = {}, 0, 0

    def _chosen(self, order):
        key = {
            "fifo": lambda k: k,
            "lifo": lambda k: -k,
            "max-heap": lambda k: (-self.items[k][0], self.items[k][1]),
            "min-heap": lambda k: (self.items[k][0], self.items[k][1]),
        }[order]
        return min(self.items, key=key)

    def insert(self, priority):
        if priority is None:
            priority = max((p for p, _, _ in self.items.values()), default=1.0)
        self._set(self.next, priority, 0)
        self.next += 1
        if len(self.items) > self.max_size:
            del self.items[self._chosen(self.remover)]

    def _set(self, key, priority, sampled):
        self.clock += 1
        self.items[key] = (priority, self.clock, sampled)

    def update(self, key, priority):
        if key in self.items:
            self._set(key, priority, self.items[key][2])

    def delete(self, key):
        self.items.pop(key, None)

    def sample(self):
        key = self._chosen(self.sampler)
        priority, when, sampled = self.items[key]
        self.items[key] = (priority, when, sampled + 1)
        if sampled + 1 == self.times:
            del self.items[key]
        return key


PRIORITY = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0])
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.none() | PRIORITY),
        st.tuples(st.just("update"), st.integers(0, 30), PRIORITY),
        st.tuples(st.just("delete"), st.integers(0, 30)),
        st.tuples(st.just("sample"), st.integers(1, 3)),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sampler=st.sampled_from(["fifo", "lifo", "max-heap", "min-heap"]),
    remover=st.sampled_from(["fifo", "lifo", "max-heap", "min-heap"]),
    max_size=st.integers(1, 6),
    times=st.integers(0, 2),
    acts=ACTS,
)
def test_a_table_is_what_a_plain_model_is(daemon, sampler, remover, max_size, times, acts):
    table = daemon.create_replay(
        "model", example={"id": 0}, max_size=max_size, sampler=sampler, remover=remover, max_times_sampled=times
    )
    try:
        model = Model(sampler, remover, max_size, times)
        writer, reader = table.writer(), table.reader()
        for act, *args in acts:
            if act == "insert":
                writer.append({"id": model.next}, args[0])
                model.insert(*args)
            elif act == "update":
                there = args[0] in model.items
                assert reader.update_priorities([args[0]], [args[1]], wait=True) == (there, not there)
                model.update(*args)
            elif act == "delete":
                there = args[0] in model.items
                assert reader.delete([args[0]]) == (there, not there)
                model.delete(*args)
            elif model.items:
                # A reader that lives asks for the next batch when this one goes.
                wanted = min(args[0], len(model.items)) if times else args[0]
                batch = table.reader(batch_size=wanted, prefetch=1).next(60)
                expected = [model.sample() for _ in range(wanted)]
                assert batch.data["id"].tolist() == batch.info.keys.tolist() == expected
        assert reader.delete([1000]) == (0, 1)  # for which all that was written is taken in
        assert table.info()["replay"]["size"] == len(model.items)
    finally:
        table.drop()


# --- limits


def test_a_limiter_holds_both_sides_back_and_says_why(make_replay):
    table = make_replay(
        EXAMPLE, batch_size=10, max_size=1000, rate_limiter=echod.SampleToInsertRatio(2, min_size=10, error_buffer=10)
    )
    assert table.info()["replay"]["rate_limiter"] == "ratio:2:10:10"
    writer, reader = table.writer(), table.reader(prefetch=1)
    with pytest.raises(echod.NoSamplesError, match="no samples of table .* came within 0.05 s .*: inserts 0") as raised:
        reader.next(timeout=0.05)
    assert raised.value.why == "inserts 0 - deletes 0 = 0 is less than min_size 10"
    assert raised.value.after == 0.05 and isinstance(raised.value, TimeoutError) and isinstance(raised.value, echod.TimeoutError)
    writer.append_many(samples(range(10)))
    assert len(reader.next(60)) == 10
    with pytest.raises(echod.TimeoutError) as raised:
        reader.next(0)
    assert raised.value.why == "inserts 10 * ratio 2 - samples 10 - 1 = 9 is less than min_diff 10"
    writer.append_many(samples(range(10)))
    with pytest.raises(echod.TimeoutError, match="waiting for room"):
        writer.append(sample(20), timeout=0.05)
    with pytest.raises(echod.PartlyError) as partly:
        table.reader(prefetch=1).next(60)  # makes room for five
        writer.append_many(samples(range(20, 40)), 2.0, timeout=1)
    assert partly.value.done == 5 and isinstance(partly.value.__cause__, echod.TimeoutError)


def test_a_worker_that_is_held_back_goes_on_when_samples_are_taken(make_replay, until):
    table = make_replay(EXAMPLE, batch_size=4, rate_limiter="queue:8", **QUEUE)
    writer, reader = table.writer(), table.reader(prefetch=1)
    worker = threading.Thread(target=lambda: writer.append_many(samples(range(16)), timeout=60), daemon=True)
    worker.start()
    until(lambda: any("more than" in line for line in table.why()), "nobody says why it waits")
    taken = []
    for _ in range(4):
        taken += ids(reader.next(60))
    worker.join(60)
    assert taken == list(range(16)) and writer.committed == 16


def test_a_deadline_gives_what_was_sampled_so_far(make_replay):
    table = make_replay(EXAMPLE, batch_size=10, rate_limiter="queue:50", **QUEUE)
    writer, reader = table.writer(), table.reader(prefetch=1)
    writer.append_many(samples(range(14)))
    assert ids(reader.next(60)) == list(range(10))
    batch = reader.next(0.05)
    assert ids(batch) == [10, 11, 12, 13] and len(batch) == 4 and batch.info.keys.tolist() == [10, 11, 12, 13]
    assert batch.short == "inserts 14 - deletes 14 = 0 is less than min_size 1"
    del batch
    with pytest.raises(echod.NoSamplesError):
        reader.next(0)
    writer.append_many(samples(range(10)))
    batch = reader.next(60)
    assert batch.short is None and ids(batch) == list(range(10))


def test_a_stack_gives_the_last_first(make_replay):
    table = make_replay(
        EXAMPLE, batch_size=3, sampler="lifo", remover="lifo", max_times_sampled=1, rate_limiter="stack:10"
    )
    table.writer().append_many(samples(range(5)))
    assert ids(table.reader(prefetch=1).next(60)) == [4, 3, 2]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"rate_limiter": echod.SampleToInsertRatio(4, 10, 1)}, r"the interval \[39, 41\], which is 2 wide"),
        ({"rate_limiter": echod.SampleToInsertRatio(1, 10, (20, 40))}, r"\[20, 40\], which lies above"),
        ({"rate_limiter": "ratio:1:10:20:40"}, r"\[20, 40\], which lies above"),
        ({"rate_limiter": echod.SampleToInsertRatio(1, 10, math.inf)}, "must be finite"),
        ({"rate_limiter": echod.SampleToInsertRatio(0, 10, 5)}, "ratio of samples to inserts is 0"),
        ({"rate_limiter": "min-size:101"}, "min_size is 101, more than the 100"),
        ({"rate_limiter": "queue:10"}, "needs fifo"),
        ({"rate_limiter": "some"}, "rate_limiter: .* is no rate limiter"),
        ({"sampler": "best"}, "sampler: .* is no selector"),
        ({"remover": echod.Prioritized(math.nan)}, "exponent is NaN"),
        ({"max_size": 0}, "max_size is 0, it must be 1"),
        ({"max_size": -1}, "max_size is -1"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"max_times_sampled": -1}, "max_times_sampled is -1"),
        ({"max_staleness": -1}, "max_staleness is -1"),
        ({"staleness_decay": 0.5}, "use prioritized:0"),
        ({"samples_per_version": 10}, "go together"),
        ({"samples_per_version": 10, "max_running": 5}, "needs max_staleness"),
        ({"max_staleness": 1, "samples_per_version": 10, "max_running": 0}, "max_running = 0"),
    ],
)
def test_settings_that_no_table_can_have_are_refused(make_replay, options, match):
    with pytest.raises(echod.InvalidSpecError, match=match) as raised:
        make_replay(EXAMPLE, **{"max_size": 100, **options})
    assert raised.value.kind == "invalid_spec"


def test_a_table_of_other_settings_is_another(make_replay):
    table = make_replay(EXAMPLE, sampler="prioritized:0.5")
    connection, same = table.connection, {"example": EXAMPLE, "max_size": 100}
    assert connection.create_replay(table.name, sampler=echod.Prioritized(0.5), **same).capacity == 100
    for other in ({"sampler": "prioritized:0.6"}, {"sampler": "prioritized:0.5", "batch_size": 8}):
        with pytest.raises(echod.SpecMismatchError):
            connection.create_replay(table.name, **other, **same)
    with pytest.raises(echod.SpecMismatchError):
        connection.create_table(table.name, example=EXAMPLE, batch_size=1, capacity=1)


def test_a_table_has_what_its_kind_has(make, make_replay):
    replay, queue = make_replay(EXAMPLE), make(EXAMPLE)
    for what in (replay.publisher, replay.latest):
        with pytest.raises(echod.WrongKindError) as raised:
            what()
        assert raised.value.kind == "replay"
    assert queue.info()["replay"] is None and replay.kind == "replay"
    with pytest.raises(echod.RefusedError, match="no replay table"):
        echod.ReplayTable.reset(queue)
    with pytest.raises(echod.RefusedError):
        echod.Sampler(queue)
    with pytest.raises(echod.RefusedError):
        echod.ReplayWriter(queue)


# --- staleness


def test_what_lags_too_far_is_never_sampled(make_replay, until):
    table = make_replay(EXAMPLE, batch_size=8, max_staleness=2)
    writer, reader = table.writer(), table.reader()
    writer.append_many(samples(range(50)), versions=np.arange(50) // 10)
    assert reader.state_version(4) == 20
    for _ in range(10):
        assert (reader.next(60).info.versions >= 2).all()
    writer.append(sample(50), version=1)
    until(lambda: table.info()["replay"]["stale"] == 21, "it came too late, and is there")
    shown = table.info()["replay"]
    assert (shown["size"], shown["version"], shown["max_staleness"]) == (30, 4, 2)
    assert all(shown["lags"][:3]) and sum(shown["lags"][3:]) == 0


def test_a_weight_falls_with_each_version(make_replay):
    table = make_replay(EXAMPLE, batch_size=4, sampler="prioritized:0", staleness_decay=0.5)
    table.writer().append_many(samples(range(3)), 1.0, [5, 6, 7])
    info = table.reader(batch_size=64).next(60).info
    expected = {5: 1 / 7, 6: 2 / 7, 7: 4 / 7}
    np.testing.assert_allclose(info.probabilities, [expected[version] for version in info.versions.tolist()])


def test_workers_are_let_in_with_what_can_still_be_used(make_replay):
    table = make_replay(
        EXAMPLE, batch_size=4, max_staleness=1, samples_per_version=4, max_running=100, **QUEUE, rate_limiter="queue:50"
    )
    writer, reader = table.writer(), table.reader(prefetch=1)
    written = 0
    with pytest.raises(echod.TimeoutError):
        while True:
            writer.append(sample(written), version=0, timeout=0.2)
            written += 1
    # What the trainer uses in this version and the next.
    assert written == 8
    assert len(reader.next(60)) == 4
    reader.state_version(1)
    for i in range(4):
        writer.append(sample(i), version=1, timeout=60)


# --- a batch stays what it was


def fill(table, n=50):
    writer = table.writer()
    writer.append_many(samples(range(n)), np.ones(n))
    return writer


def test_views_are_read_only_and_stay_while_the_table_goes_round(make_replay):
    table = make_replay(EXAMPLE, max_size=50, batch_size=10)
    writer, reader = fill(table), table.reader()
    batch = reader.next(60)
    view, before = batch.data["x"], batch.copy()
    assert view.flags.c_contiguous and view.flags.aligned and not view.flags.writeable
    assert np.shares_memory(view, batch.data["x"])
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1
    with pytest.raises(ValueError):
        view.flags.writeable = True
    for i in range(100):
        writer.append_many(samples(np.full(50, 1000 + i)))
        ids(reader.next(60))
    assert (view == before["x"]).all() and (batch.data["id"] == before["id"]).all()
    with pytest.raises(echod.ViewsAliveError, match="sampled batch 1 cannot be released") as raised:
        batch.release()
    assert raised.value.views == 1
    del view
    batch.release()
    batch.release()
    assert batch.released


def test_a_view_of_a_view_holds_the_batch(make_replay):
    table = make_replay(EXAMPLE, batch_size=4)
    fill(table)
    reader = table.reader(prefetch=1)
    part = reader.next(60).data["x"][1:, ::2].reshape(-1)[1:]
    array = np.from_dlpack(reader.next(60).dlpack()["x"])
    gc.collect()
    assert reader.held == 2 and part.shape == (11,) and array.shape == (4, 8) and not array.flags.writeable
    with pytest.raises(echod.AllHeldError, match=r"holds all 2 that the reader can have \(prefetch \+ 1\)") as raised:
        reader.next(60)
    assert (raised.value.held, raised.value.prefetch) == (2, 1)
    with pytest.raises(echod.NoSamplesError, match="this program holds all 2 batches"):
        reader.next(0.01)
    del part
    assert reader.held == 1
    assert len(reader.next(60)) == 4
    del array
    assert reader.held == 0


@pytest.mark.parametrize("patience", [0, 0.05, 60, None])
def test_batches_in_cycles_are_found(make_replay, patience):
    table = make_replay(EXAMPLE, batch_size=2)
    fill(table)
    reader = table.reader(prefetch=2, patience=patience)
    gc.disable()
    try:
        for i in range(1, 9):
            cycle = [reader.next(60)]
            cycle.append(cycle)
            assert cycle[0].number == i
            del cycle
    finally:
        gc.enable()


def test_another_thread_may_let_one_go_meanwhile(make_replay):
    table = make_replay(EXAMPLE, batch_size=2)
    fill(table)
    reader = table.reader(prefetch=1, patience=60)
    held = [reader.next(60), reader.next(60)]
    waiting = threading.Timer(0.2, held.clear)
    waiting.start()
    assert reader.next(60).number == 3
    waiting.join()


class Event:
    def __init__(self):
        self.happened = False

    def query(self):
        return self.happened


def test_a_release_after_an_event_waits_for_it(make_replay, until):
    table = make_replay(EXAMPLE, batch_size=2)
    fill(table)
    reader, event = table.reader(prefetch=1), Event()
    for _ in range(2):
        reader.next(60).release(after=event)
    assert reader.held == 2 and "until their events have happened" in repr(reader)
    with pytest.raises(echod.NoSamplesError, match="holds all 2 batches that the reader can have until their events"):
        reader.next(0.1)
    threading.Timer(0.1, lambda: setattr(event, "happened", True)).start()
    assert len(reader.next(60)) == 2
    until(lambda: reader.held == 0, "it was not given back")


def test_copies_hold_nothing(make_replay):
    table = make_replay(EXAMPLE, batch_size=4)
    fill(table)
    reader = table.reader(copy=True)
    batches = [reader.next(60) for _ in range(10)]
    assert reader.held == 0 and all(batch.released for batch in batches)
    for batch in batches:
        assert batch.info.keys.tolist() == ids(batch)
    batches[0].data["x"][:] = 1


@pytest.mark.parametrize("goes", ["reader", "connection", "table", "daemon", "daemon, killed"])
def test_a_batch_outlives_everything_else(goes):
    with echod.local() as daemon:
        table = daemon.connect().create_replay("t", example=EXAMPLE, max_size=10, batch_size=4)
        writer = table.writer()
        writer.append_many(samples(range(10)))
        reader = table.reader()
        batch, view = reader.next(60), reader.next(60).data["id"]
        first, second = ids(batch), view.tolist()
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
        assert ids(batch) == first and view.tolist() == second and batch.info.keys.tolist() == first
        batch.release()
        del batch, view


def left():
    with open("/proc/self/maps") as maps:
        return sum(1 for _ in maps), len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def test_nothing_is_left_of_what_is_gone(daemon):
    def use(i):
        table = daemon.connect().create_replay(f"left-{i}", example=EXAMPLE, max_size=10, batch_size=4)
        writer, reader = table.writer(), table.reader(threads=3)
        writer.append_many(samples(range(10)))
        with writer.claim() as slot:
            slot.data["id"][...], slot.data["x"][:] = 3, 3
        writer.claim()
        ids(reader.next(60))
        table.drop()

    for i in range(3):
        use(i)
    gc.collect()
    _, *before = left()
    for i in range(3, 20):
        use(i)
    gc.collect()
    _, *after = left()
    assert after == before


def test_a_reset_empties_the_table(make_replay):
    table = make_replay(EXAMPLE, batch_size=8)
    writer = fill(table)
    table.reset()
    shown = table.info()["replay"]
    assert (shown["size"], shown["inserts"], shown["samples"], shown["deletes"]) == (0, 0, 0, 0)
    reader = table.reader(prefetch=1)
    with pytest.raises(echod.NoSamplesError):
        reader.next(0.05)
    writer.append(sample(7))
    assert ids(reader.next(60)) == [7] * 8


def test_a_writer_that_has_finished_writes_no_more_and_the_table_goes_on(make_replay):
    table = make_replay(EXAMPLE, batch_size=2)
    with table.writer() as writer:
        writer.append(sample(1))
    assert writer.finished
    with pytest.raises(echod.FinishedError):
        writer.append(sample(2))
    assert ids(table.reader().next(60)) == [1, 1]
    table.writer().append(sample(3))
    reader = table.reader()
    table.drop()
    with pytest.raises(echod.ClosedError) as raised:
        for _ in reader:
            pass
    assert raised.value.reason == "dropped"


# --- waits


def test_try_next_asks_and_returns(make_replay, until):
    table = make_replay(EXAMPLE, batch_size=2)
    reader = table.reader()
    assert reader.try_next() is None
    fill(table)
    assert len(until(reader.try_next, "nothing was sampled")) == 2


@pytest.mark.parametrize("what", ["next", "append"])
def test_a_signal_ends_a_wait(make_replay, what):
    table = make_replay(EXAMPLE, batch_size=2, rate_limiter="queue:2", **QUEUE)
    writer, reader = table.writer(), table.reader()
    if what == "append":
        writer.append_many(samples(range(2)))
        act = lambda: writer.append(sample(9), timeout=60)  # noqa: E731
    else:
        act = reader.next
    killer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    killer.start()
    with pytest.raises(KeyboardInterrupt):
        act()
    killer.join()
    # Nothing is lost by it.
    if what == "next":
        writer.append_many(samples(range(2)))
    assert ids(reader.next(60)) == [0, 1]


def test_tasks_wait_and_are_cancelled(make_replay):
    table = make_replay(EXAMPLE, batch_size=2, rate_limiter="queue:2", **QUEUE)
    writer, reader = table.writer(), table.reader(prefetch=1)

    async def play():
        waiting = asyncio.ensure_future(reader.next_async())
        while not table.info()["replay"]["waiting"]:
            await asyncio.sleep(0)
        await writer.append_async(sample(0), 1.0, 3)
        await writer.append_many_async(samples([1]), [2.0], [4])
        batch = await waiting
        assert ids(batch) == [0, 1] and batch.info.versions.tolist() == [3, 4]
        with pytest.raises(echod.NoSamplesError):
            await reader.next_async(timeout=0.05)
        cancelled = asyncio.ensure_future(reader.next_async())
        while not table.info()["replay"]["waiting"]:
            await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await writer.append_many_async(samples([2, 3]))
        async for batch in reader:
            assert ids(batch) == [2, 3]
            break

    asyncio.run(play())


def test_the_interpreter_goes_on_meanwhile(make_replay):
    table = make_replay(EXAMPLE, batch_size=2)
    reader, came = table.reader(), []
    waiting = threading.Thread(target=lambda: came.append(ids(reader.next(60))), daemon=True)
    waiting.start()
    fill(table)  # which needs the interpreter
    waiting.join(60)
    assert len(came) == 1


def test_threads_share_a_writer_and_a_reader(make_replay):
    table = make_replay(EXAMPLE, max_size=400, batch_size=4, rate_limiter="queue:64", **QUEUE)
    writer, reader = table.writer(), table.reader(prefetch=3, threads=2)
    taken, lock = [], threading.Lock()

    def write(first):
        for i in range(first, first + 100):
            writer.append(sample(i), priority=1.0, timeout=60)

    def read():
        for _ in range(25):
            mine = ids(reader.next(60))
            with lock:
                taken.extend(mine)

    threads = [threading.Thread(target=write, args=(100 * i,), daemon=True) for i in range(4)]
    threads += [threading.Thread(target=read, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(taken) == list(range(400))


def test_one_whose_time_is_over_takes_nothing_from_another(make_replay):
    table = make_replay(EXAMPLE, batch_size=2, rate_limiter="queue:2", **QUEUE)
    reader, came = table.reader(prefetch=2), []
    patient = threading.Thread(target=lambda: came.append(ids(reader.next(60))), daemon=True)
    patient.start()
    for _ in range(20):
        with pytest.raises(echod.NoSamplesError):
            reader.next(0.01)
    table.writer().append_many(samples(range(2)))
    patient.join(60)
    assert came == [[0, 1]]


def test_views_go_in_other_threads_while_batches_come(make_replay):
    table = make_replay(EXAMPLE, batch_size=16)
    fill(table)
    reader, wrong = table.reader(prefetch=4, patience=60), []

    def use(batch):
        data = batch.data
        for _ in range(20):
            if not (data["x"] == data["id"][:, None]).all():
                wrong.append(batch)

    threads = []
    for batch in reader:
        threads.append(threading.Thread(target=use, args=(batch,)))
        threads[-1].start()
        del batch
        if len(threads) == 100:
            break
    for thread in threads:
        thread.join(60)
    del threads
    gc.collect()
    assert not wrong and reader.held == 0


# --- other processes

SPAWN = multiprocessing.get_context("spawn")
# Forked from a process that has imported everything and connected to nothing: they start at once.
FORKSERVER = multiprocessing.get_context("forkserver")
FORKSERVER.set_forkserver_preload(["echod", "numpy", "sampling"])


def test_tables_and_writers_are_pickled_to_spawned_workers(make_replay):
    table = make_replay(sampling.EXAMPLE, batch_size=4, rate_limiter="queue:20", **QUEUE)
    workers = [
        SPAWN.Process(target=sampling.write, args=(table, 0, 40)),
        SPAWN.Process(target=sampling.write_with, args=(table.writer(), range(40, 60))),
    ]
    for worker in workers:
        worker.start()
    reader, taken = table.reader(), {}
    while len(taken) < 60:
        batch = reader.next(60)
        assert sampling.is_whole(batch.data)
        info = batch.info
        taken.update(zip(batch.data["id"].tolist(), zip(info.priorities.tolist(), info.versions.tolist())))
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert sorted(taken) == list(range(60))
    assert all(taken[i] == (float(i), i) for i in range(40)) and all(taken[i][1] == -1 for i in range(40, 60))


def test_handles_are_pickled_within_a_process(make_replay):
    table = make_replay(EXAMPLE, batch_size=8)
    handles = table, table.writer(timeout=3), table.reader(batch_size=2, prefetch=3, threads=2, copy=True)
    again, writer, reader = pickle.loads(pickle.dumps(handles))
    assert type(again) is echod.ReplayTable and repr(again) == repr(table)
    writer.append(sample(3))
    assert (reader.batch_size, reader.prefetch) == (2, 3)
    assert ids(reader.next(60)) == [3, 3] and reader.held == 0
    info = pickle.loads(pickle.dumps(reader.next(60).info))
    assert type(info) is echod.SampleInfo and info.keys.tolist() == [0, 0]
    for helper in (echod.Prioritized(0.6), echod.SampleToInsertRatio(4, 10, (30, 50)), echod.Counted(1, 2)):
        assert pickle.loads(pickle.dumps(helper)) == helper


def test_workers_are_killed_and_nothing_torn_is_sampled(make_replay, tmp_path, until):
    table = make_replay(sampling.EXAMPLE, max_size=64, batch_size=16, sampler="prioritized:0.6")
    reader, committed = table.reader(), 0
    for number in range(12):
        told = tmp_path / str(number)
        told.write_bytes(b"")
        worker = FORKSERVER.Process(target=sampling.write_for_ever, args=(table, str(told)))
        worker.start()
        while told.stat().st_size < 20 + 7 * number:
            assert worker.is_alive()
            batch = reader.try_next()
            if batch is not None:
                assert sampling.is_whole(batch.data)
                reader.update_priorities(batch.info.keys, np.ones(len(batch)))
            del batch
        worker.kill()
        worker.join(60)
        assert worker.exitcode == -signal.SIGKILL
        committed += told.stat().st_size
        inserts = until(lambda: table.info()["replay"]["inserts"] >= committed, "a sample that was committed is not there")
    inserts = table.info()["replay"]["inserts"]
    # What they told of, and of each at most the one that it had no time to tell of.
    assert committed <= inserts <= committed + 12
    for _ in range(50):
        assert sampling.is_whole(reader.next(60).data)


def test_a_killed_trainer_holds_nobody_up(make_replay, until):
    table = make_replay(sampling.EXAMPLE, max_size=32, batch_size=8, rate_limiter="queue:32", **QUEUE)
    writer = table.writer()
    for i in range(32):
        writer.append(sampling.sample(i))
    mine, other = FORKSERVER.Pipe()
    trainer = FORKSERVER.Process(target=sampling.hold, args=(table, other))
    trainer.start()
    assert mine.recv() == 4
    trainer.kill()
    trainer.join(60)
    until(lambda: table.info()["readers"] == 0, "the dead is still there")
    for i in range(32, 64):
        writer.append(sampling.sample(i), timeout=60)
    assert table.reader(prefetch=1).next(60).data["id"].tolist() == list(range(32, 40))
    until(lambda: table.info()["replay"]["leased"] == 0, "the dead holds samples")


def in_child(act):
    """What it raises in a forked child: the class's name, else its repr."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            said = repr(act())
        except BaseException as error:
            said = type(error).__name__
        os.write(writes, said.encode()[:1000])
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as file:
        said = file.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return said if status == 0 else f"signal {-status}"


def test_everything_raises_in_a_forked_child(make_replay):
    table = make_replay(EXAMPLE, batch_size=4)
    writer, reader = fill(table), table.reader()
    batch, other = reader.next(60), reader.next(60)
    view, claim = other.data["x"], writer.claim()
    before = ids(batch)

    def acts():
        yield "append", lambda: writer.append(sample(1))
        yield "append_many", lambda: writer.append_many(samples([1]), [1.0])
        yield "claim", lambda: writer.claim()
        yield "commit", lambda: claim.commit()
        yield "finish", lambda: writer.finish()
        yield "committed", lambda: writer.committed
        yield "next", lambda: reader.next()
        yield "try_next", lambda: reader.try_next()
        yield "next_async", lambda: asyncio.run(reader.next_async())
        yield "update", lambda: reader.update_priorities([1], [1])
        yield "update, waiting", lambda: reader.update_priorities([1], [1], wait=True)
        yield "delete", lambda: reader.delete([1])
        yield "state_version", lambda: reader.state_version(1)
        yield "data", lambda: batch.data
        yield "copy", lambda: batch.copy()
        yield "release", lambda: batch.release()
        yield "writer", lambda: table.writer()
        yield "reader", lambda: table.reader()
        yield "reset", lambda: table.reset()
        yield "info", lambda: table.info()

    for name, act in acts():
        assert in_child(act) == "ForkedError", name
    for look in (lambda: [table, reader, batch, claim], lambda: (batch.info.keys, batch.weights(0.5), len(batch), reader.held)):
        assert in_child(look) == repr(look())
    assert in_child(lambda: writer).endswith("of no use in a forked process>")

    def forget():
        nonlocal batch, other, view, claim, writer, reader
        batch = other = view = claim = writer = reader = None
        return gc.collect() >= 0

    assert in_child(forget) == "True"
    assert in_child(lambda: pickle.loads(pickle.dumps(table)).reader().next(60).number) == "1"
    # The parent's are as they were.
    claim.abort()
    assert ids(batch) == before and (view == other.data["id"][:, None]).all()
    del view, other
    assert reader.held == 1 and len(reader.next(60)) == 4
    writer.append(sample(2))


# --- what they say of themselves


def test_handles_say_what_they_are(make_replay):
    table = make_replay({"obs": np.zeros((84, 84), np.uint8)}, max_size=200, batch_size=8)
    name = table.name
    assert repr(table) == f"<echod.ReplayTable '{name}': 200 items, 1.3 MiB; obs uint8[84, 84]>"
    writer, reader = table.writer(), table.reader()
    assert repr(writer) == f"<echod.ReplayWriter of '{name}': 0 samples written, open>"
    claim = writer.claim()
    assert repr(claim) == "<echod.ReplayClaim of 1 sample, open>" and len(claim) == 1
    claim.data["obs"][:] = 1
    claim.commit()
    assert repr(claim) == "<echod.ReplayClaim of 1 sample, ended>"
    assert repr(reader) == f"<echod.Sampler of '{name}': holds 0 of 3 batches of 8 samples>"
    batch = reader.next(60)
    about = f"<echod.SampledBatch 1 of '{name}': 8 samples, 55.1 KiB"
    assert repr(batch) == f"{about}, held; obs uint8[8, 84, 84]>".replace("[8, ", "[")
    view = batch.data
    assert "held, and 1 tree of arrays over it" in repr(batch)
    assert repr(view["obs"].base) == "<memory of sampled batch 1>"
    del view
    batch.release()
    assert repr(batch) == f"{about}, released; obs uint8[84, 84]>"
    assert str(echod.Prioritized(0.6)) == "prioritized:0.6" and str(echod.Prioritized(np.float32(1))) == "prioritized:1.0"
    assert str(echod.SampleToInsertRatio(4, 1000, 100)) == "ratio:4.0:1000:100.0"
    assert str(echod.SampleToInsertRatio(4, 1000, (30, 50.5))) == "ratio:4.0:1000:30.0:50.5"


@pytest.mark.parametrize(("option", "wrong"), [("batch_size", 0), ("prefetch", 0), ("prefetch", 257), ("threads", 0), ("threads", 300)])
def test_what_a_reader_cannot_be_is_said(make_replay, option, wrong):
    with pytest.raises(ValueError, match=f"{option} is {wrong}, it must be 1 to"):
        make_replay(EXAMPLE).reader(**{option: wrong})


def test_a_batch_is_not_larger_than_can_be_outstanding(make_replay):
    with pytest.raises(ValueError, match="is more than the"):
        make_replay(EXAMPLE).reader(batch_size=1 << 24)


def test_tensors_show_the_batch(make_replay):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    table = make_replay(EXAMPLE, batch_size=4)
    fill(table)
    batch = table.reader().next(60)
    tensors = batch.torch()
    assert isinstance(tensors["x"], torch.Tensor) and (tensors["x"].numpy() == batch.data["x"]).all()


def test_a_sampler_without_cuda_says_what_was_tried(make_replay, monkeypatch):
    monkeypatch.setenv("ECHO_CUDART", "/nowhere/libcudart.so")
    with pytest.raises(echod.PinError, match="/nowhere"):
        make_replay(EXAMPLE).reader(pin=True)
    monkeypatch.delenv("ECHO_CUDART")
    assert make_replay(EXAMPLE).reader().pinned is None


def test_a_private_daemon_makes_one_too():
    with echod.local() as daemon:
        table = daemon.create_replay("t", example=1.0, max_size=10, batch_size=1)
        table.writer().append(2.0, 1.0)
        assert daemon.table("t").reader().next(60).data.tolist() == [2.0]


def test_help_is_enough_to_write_a_trainer():
    for said in ("create_replay(", "reader.update_priorities(", "batch.weights(", 'rate_limiter="min-size:1000"'):
        assert said in echod.__doc__
    for option in inspect.signature(echod.Connection.create_replay).parameters:
        assert option in ("self", "name", "example", "huge_pages", "access", "progress", "pin") or f"`{option}`" in (
            echod.Connection.create_replay.__doc__
        ), option
