"""Samples that are put together over several time scales."""

import echod
import numpy as np
import pytest


def example():
    return {
        "step": {"obs": np.zeros((3, 2), np.float32), "action": np.zeros(3, np.int64)},
        "episode": {"return": np.zeros((), np.float32), "seed": np.zeros((1, 2), np.uint8)},
    }


def step(i):
    return {"obs": np.full(2, i, np.float32), "action": i}


END = {"return": np.float32(7), "seed": np.array([[1, 2]], np.uint8)}


def test_scales_fill_each_at_its_own_pace(make):
    accumulator = echod.Accumulator(example())
    assert accumulator.filled == {"step": (0, 3), "episode": (0, 1)} and not accumulator.full
    table = make(example(), batch_size=2)
    writer = table.writer()
    for round in range(2):
        for i in range(3):
            accumulator.add("step", step(10 * round + i))
        accumulator.add("episode", END)
        assert accumulator.full
        writer.append(accumulator.build())
        assert accumulator.filled == {"step": (0, 3), "episode": (0, 1)}
    data = table.reader().next(10).data
    assert data["step"]["action"].tolist() == [[0, 1, 2], [10, 11, 12]]
    assert data["step"]["obs"][:, :, 1].tolist() == [[0, 1, 2], [10, 11, 12]]
    assert data["episode"]["return"].tolist() == [7, 7] and data["episode"]["seed"].tolist() == [[[1, 2]]] * 2


def test_many_places_are_filled_at_once_or_not_at_all():
    accumulator = echod.Accumulator(example())
    two = {"obs": np.ones((2, 2), np.float32), "action": np.array([4, 5])}
    accumulator.add_many("step", two)
    with pytest.raises(echod.FullError) as caught:
        accumulator.add_many("step", two)
    assert (caught.value.scale, caught.value.filled, caught.value.places) == ("step", 2, 3)
    accumulator.add("step", step(6))
    accumulator.add_many("episode", {"return": np.ones(1, np.float32), "seed": np.zeros((1, 1, 2), np.uint8)})
    assert accumulator.build()["step"]["action"].tolist() == [4, 5, 6]


def test_what_is_not_full_is_not_built_and_what_is_full_takes_no_more():
    accumulator = echod.Accumulator(example())
    accumulator.add("episode", END)
    accumulator.add("step", step(0))
    with pytest.raises(echod.NotFullError, match="'step' has 1 of its 3") as caught:
        accumulator.build()
    assert (caught.value.scale, caught.value.filled, caught.value.places) == ("step", 1, 3)
    with pytest.raises(IndexError, match="'episode'"):
        accumulator.add("episode", END)
    assert accumulator.filled["step"] == (1, 3), "a build that failed has forgotten nothing"
    accumulator.reset()
    assert accumulator.filled == {"step": (0, 3), "episode": (0, 1)}


@pytest.mark.parametrize(
    ("data", "error", "says"),
    [
        ({"obs": np.zeros(2), "action": 1}, echod.LeafDTypeError, "step/obs"),
        ({"obs": np.zeros(3, np.float32), "action": 1}, echod.LeafShapeError, "step/obs"),
        ({"obs": np.zeros((1, 2), np.float32), "action": 1}, echod.LeafShapeError, "step/obs"),
        ({"obs": 1.0, "action": 1}, echod.LeafShapeError, "step/obs"),
        ({"obs": np.zeros(2, np.float32), "action": 1.0}, echod.LeafDTypeError, "step/action"),
        ({"obs": np.zeros(2, np.float32), "action": 1 << 63}, echod.LeafValueError, "step/action"),
        ({"obs": np.zeros(2, np.float32)}, echod.StructureError, "step"),
    ],
)
def test_what_does_not_fit_is_named_and_changes_nothing(data, error, says):
    accumulator = echod.Accumulator(example())
    accumulator.add("step", step(5))
    with pytest.raises(error, match=says):
        accumulator.add("step", data)
    for i in (6, 7):
        accumulator.add("step", step(i))
    accumulator.add("episode", END)
    assert accumulator.build()["step"]["obs"][:, 0].tolist() == [5, 6, 7]


def test_a_scale_that_nobody_knows():
    with pytest.raises(KeyError, match="'turn'.*'step', 'episode'"):
        echod.Accumulator(example()).add("turn", 1)


@pytest.mark.parametrize(
    ("given", "options", "error"),
    [
        ([np.zeros(3)], {}, TypeError),
        ({"a": {"x": np.zeros(3), "y": np.zeros(4)}}, {}, ValueError),
        ({"a": {}}, {}, ValueError),
        ({"a": np.zeros(3)}, {"places": {"b": 1}}, KeyError),
        ({"a": np.zeros(3)}, {"places": {"a": 2}}, ValueError),
        ({"a": np.zeros((0, 2))}, {}, ValueError),
        ({"a": np.array(["x"])}, {}, echod.LeafDTypeError),
    ],
)
def test_examples_that_make_no_sense_are_refused(given, options, error):
    with pytest.raises(error):
        echod.Accumulator(given, **options)


def test_a_vector_that_comes_once():
    accumulator = echod.Accumulator({"action": np.zeros(4, np.float32)}, places={"action": 1})
    accumulator.add("action", np.arange(4, dtype=np.float32))
    assert accumulator.build()["action"].tolist() == [0, 1, 2, 3]


def test_a_claim_is_filled_in_place_and_given_up_if_it_is_not_full(make):
    table = make(example(), batch_size=1)
    writer = table.writer()
    with pytest.raises(echod.NotFullError):
        with writer.claim() as slot:
            accumulator = echod.Accumulator(into=slot.data)
            accumulator.add("step", step(1))
            accumulator.build()
    with writer.claim() as slot:
        accumulator = echod.Accumulator(into=slot.data)
        for i in range(3):
            accumulator.add("step", step(i))
        accumulator.add("episode", END)
        accumulator.build()
    assert writer.committed == 1
    assert table.reader().next(10).data["step"]["action"].tolist() == [[0, 1, 2]]


def test_arrays_to_write_into_must_be_writable():
    array = np.zeros(3)
    array.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        echod.Accumulator(into={"a": array})


def test_its_repr_says_how_far_it_is():
    accumulator = echod.Accumulator(example())
    accumulator.add("step", step(0))
    assert repr(accumulator) == "<echod.Accumulator: step 1/3, episode 0/1>"


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("uint8", 256), ("uint8", -1), ("int64", 1 << 63), ("float16", 1e6), ("float32", 1e39), ("complex64", 1e39j)],
)
def test_numbers_that_do_not_fit_are_refused(dtype, value):
    accumulator = echod.Accumulator({"a": np.zeros((), dtype)})
    with pytest.raises(echod.LeafValueError, match="'a'"):
        accumulator.add("a", value)
    accumulator.add("a", type(value)(3))
    assert accumulator.build()["a"] == 3
