"""A rollout of several time scales becomes one sample, whole and unconverted, or an error."""

import copy

import echod
import ml_dtypes
import numpy as np
import optree
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

STEP = {"obs": np.zeros((2, 3), np.float32), "action": np.int8(0)}
ITEMS = {"steps": STEP, "target": np.float64(0), "last": {"obs": np.zeros((2, 3), np.float32)}, "won": False}
LENGTHS = {"steps": 4, "target": 2}


def step(i):
    return {"obs": np.full((2, 3), i, np.float32), "action": np.int8(i)}


@pytest.fixture
def rollout():
    return echod.Accumulator(ITEMS, LENGTHS)


def fill(rollout, first=0):
    for i in range(first, first + 4):
        rollout.add("steps", step(i))
    rollout.extend("target", np.array([first, first + 0.5]))
    rollout.add("last", {"obs": np.full((2, 3), first + 4, np.float32)})
    rollout.add("won", True)


def check(sample, first=0):
    assert sample["steps"]["obs"][:, 1, 2].tolist() == [first, first + 1, first + 2, first + 3]
    assert sample["steps"]["action"].tolist() == [first, first + 1, first + 2, first + 3]
    assert sample["target"].tolist() == [first, first + 0.5]
    assert sample["last"]["obs"].tolist() == [[first + 4] * 3] * 2
    assert sample["won"]


def test_the_example_has_an_axis_for_each_time_scale_of_some_length(rollout):
    shapes = optree.tree_map(lambda leaf: (leaf.dtype.name, leaf.shape), rollout.example)
    assert shapes == {
        "steps": {"obs": ("float32", (4, 2, 3)), "action": ("int8", (4,))},
        "target": ("float64", (2,)),
        "last": {"obs": ("float32", (2, 3))},
        "won": ("bool", ()),
    }
    assert list(rollout.example) == list(ITEMS)


def test_rollouts_one_after_the_other_come_out_as_they_went_in(make, rollout):
    table = make(rollout.example, batch_size=3)
    writer = table.writer()
    for first in (0, 10, 20):
        fill(rollout, first)
        writer.append(rollout.build())
    data = table.reader().next(10).data
    for i, first in enumerate((0, 10, 20)):
        check(optree.tree_map(lambda leaf, i=i: leaf[i], data), first)


def test_what_is_not_full_is_not_built(rollout):
    rollout.add("steps", step(0))
    rollout.add("won", False)
    with pytest.raises(echod.NotFullError, match=r"'steps' has 1 of 4 items, 'target' has 0 of 2 items, 'last'") as raised:
        rollout.build()
    assert (raised.value.scale, raised.value.filled, raised.value.needed) == ("steps", 1, 4)
    assert not rollout.full and rollout.filled == {"steps": 1, "target": 0, "last": 0, "won": 1}


def test_nothing_of_the_rollout_before_makes_the_next_one_full(rollout):
    fill(rollout)
    assert rollout.full
    rollout.build()
    assert not rollout.full and rollout.filled["steps"] == 0
    rollout.add("steps", step(9))
    with pytest.raises(echod.NotFullError, match="'steps' has 1 of 4"):
        rollout.build()


def test_what_was_built_can_be_built_again_until_the_next_add(rollout):
    fill(rollout)
    assert rollout.build() is rollout.build()
    check(rollout.build())


def test_what_is_full_takes_no_more_and_stays_as_it_is(rollout):
    fill(rollout)
    two = {"obs": np.zeros((2, 2, 3), np.float32), "action": np.zeros(2, np.int8)}
    for more in (lambda: rollout.add("steps", step(9)), lambda: rollout.extend("steps", two)):
        with pytest.raises(echod.FullError, match="'steps' has 4 of 4") as raised:
            more()
        assert isinstance(raised.value, IndexError)
        assert (raised.value.scale, raised.value.filled, raised.value.needed) == ("steps", 4, 4)
    with pytest.raises(echod.FullError):
        rollout.add("won", False)
    check(rollout.build())


def test_more_than_there_is_room_for_is_refused_as_a_whole(rollout):
    rollout.add("target", 7.0)
    with pytest.raises(echod.FullError, match="1 of 2 items, and 2 more came"):
        rollout.extend("target", np.ones(2))
    assert rollout.filled["target"] == 1


@pytest.mark.parametrize(
    ("name", "item", "error", "says"),
    [
        ("steps", {**STEP, "obs": np.zeros((2, 3))}, echod.LeafDTypeError, "'steps/obs' holds float32, and float64"),
        ("steps", {**STEP, "obs": np.zeros((2, 3), ">f4")}, echod.LeafDTypeError, "'steps/obs' .* swapped"),
        ("steps", {**STEP, "obs": np.zeros((1, 2, 3), np.float32)}, echod.LeafShapeError, r"'steps/obs' has shape \(2, 3\)"),
        ("steps", {**STEP, "obs": np.float32(1)}, echod.LeafShapeError, "'steps/obs'"),
        ("steps", {**STEP, "obs": 1.0}, echod.LeafDTypeError, "'steps/obs'"),
        ("steps", {**STEP, "obs": "text"}, echod.LeafDTypeError, "'steps/obs'"),
        ("steps", {**STEP, "action": np.int64(1)}, echod.LeafDTypeError, "'steps/action'"),
        ("steps", {**STEP, "action": 128}, echod.LeafValueError, "'steps/action' holds int8"),
        ("steps", {**STEP, "action": 1.0}, echod.LeafDTypeError, "'steps/action' .* the float"),
        ("steps", {**STEP, "action": True}, echod.LeafDTypeError, "'steps/action' .* the bool"),
        ("steps", {"obs": STEP["obs"]}, echod.StructureError, "the item is not what time scale 'steps' holds.* 'steps/action'"),
        ("steps", {**STEP, "more": 1}, echod.StructureError, "'steps/more'"),
        ("steps", STEP["obs"], echod.StructureError, "'steps/obs'"),
        ("target", np.float32(1), echod.LeafDTypeError, "'target' holds float64"),
        ("target", np.zeros(1), echod.LeafShapeError, "'target'"),
        ("won", 1, echod.LeafDTypeError, "'won' holds bool"),
        ("elsewhere", 1, echod.StructureError, "no time scale 'elsewhere'; there are 'steps', 'target'"),
    ],
)  # fmt: skip
def test_what_is_no_item_is_refused_by_its_leaf_and_nothing_of_it_is_kept(rollout, name, item, error, says):
    rollout.add("steps", step(1))
    with pytest.raises(error, match=says):
        rollout.add(name, item)
    assert rollout.filled == {"steps": 1, "target": 0, "last": 0, "won": 0}
    for i in range(1, 4):
        rollout.add("steps", step(i + 1))
    rollout.extend("target", np.zeros(2))
    rollout.add("last", {"obs": STEP["obs"]})
    rollout.add("won", False)
    assert rollout.build()["steps"]["action"].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("items", "error", "says"),
    [
        ({"obs": np.zeros((2, 2, 3), np.float32), "action": np.zeros(3, np.int8)}, echod.LeafShapeError, r"'steps/obs' has shape \(3, 2, 3\)"),
        ({"obs": np.zeros((2, 3), np.float32), "action": np.zeros(2, np.int8)}, echod.LeafShapeError, "'steps/obs'"),
        ({"obs": np.zeros((2, 2, 3)), "action": np.zeros(2, np.int8)}, echod.LeafDTypeError, "'steps/obs'"),
        ({"obs": np.zeros((2, 2, 3), np.float32), "action": 1}, echod.LeafDTypeError, "'steps/action'"),
    ],
)  # fmt: skip
def test_several_items_that_do_not_fit_are_refused_by_their_leaf(rollout, items, error, says):
    with pytest.raises(error, match=says):
        rollout.extend("steps", items)
    assert rollout.filled["steps"] == 0


def test_one_item_has_no_axis_to_be_extended_along(rollout):
    with pytest.raises(ValueError, match="'last' has one item"):
        rollout.extend("last", {"obs": np.zeros((1, 2, 3), np.float32)})


@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        ("float32", 0.1), ("float32", float("inf")), ("float16", 0.1), ("float64", 1e300), ("int8", -128), ("uint64", 2**64 - 1),
        ("bool", True), ("complex64", 1j), ("complex128", 1 + 2j), (ml_dtypes.bfloat16, 0.1),
    ],
)  # fmt: skip
def test_numbers_of_python_are_taken_as_a_writer_takes_them(make, dtype, number):
    rollout = echod.Accumulator({"x": np.zeros((), dtype), "y": np.zeros((), dtype)}, {"x": 1})
    rollout.add("x", number)
    rollout.add("y", number)
    built = rollout.build()
    table = make({"x": np.zeros((), dtype)}, batch_size=1)
    table.writer().append({"x": number})
    assert built["x"].tobytes() == built["y"].tobytes() == table.reader().next(10).data["x"].tobytes()


@pytest.mark.parametrize(("dtype", "number"), [("float32", 1e300), ("float16", 1e6), ("uint8", -1), ("uint64", 2**64)])
def test_numbers_of_python_that_do_not_fit_are_refused(dtype, number):
    rollout = echod.Accumulator({"x": np.zeros((), dtype)}, {"x": 1})
    with pytest.raises(echod.LeafValueError, match="'x'"):
        rollout.add("x", number)


def test_items_in_other_trees_with_the_same_leaves_are_taken():
    rollout = echod.Accumulator({"a/b": ({"x": np.int32(0)}, [np.int64(0)])}, {"a/b": 2})
    rollout.add("a/b", ({"x": np.int32(1)}, [np.int64(2)]))
    rollout.add("a/b", [{"x": np.int32(3)}, (np.int64(4),)])
    built = rollout.build()
    assert built["a/b"][0]["x"].tolist() == [1, 3] and built["a/b"][1][0].tolist() == [2, 4]
    with pytest.raises(echod.StructureError, match="'a~1b/0/x'"):
        rollout.add("a/b", [{}, (np.int64(4),)])


def test_a_rollout_is_written_in_place(make, rollout):
    table = make(rollout.example, batch_size=2)
    writer = table.writer()
    for first in (0, 10):
        with writer.claim() as slot, rollout.into(slot.data):
            fill(rollout, first)
            assert np.shares_memory(rollout.build()["steps"]["obs"], slot.data["steps"]["obs"])
    batch = table.reader().next(10)
    check(optree.tree_map(lambda leaf: leaf[1], batch.data), 10)


def test_a_rollout_in_place_that_is_not_full_gives_its_claim_up(make, rollout):
    table = make(rollout.example, batch_size=1)
    writer = table.writer()
    with pytest.raises(echod.NotFullError, match="'won' has 0"), writer.claim() as slot, rollout.into(slot.data):
        fill(rollout)
        rollout.reset()
        rollout.extend("steps", {"obs": np.zeros((4, 2, 3), np.float32), "action": np.zeros(4, np.int8)})
        rollout.extend("target", np.zeros(2))
        rollout.add("last", ITEMS["last"])
    with pytest.raises(KeyError), writer.claim() as slot, rollout.into(slot.data):
        fill(rollout)
        raise KeyError
    assert writer.committed == 0
    # And the accumulator is as before.
    assert rollout.filled["steps"] == 0
    fill(rollout)
    check(rollout.build())


def test_a_claim_that_ended_is_not_written_into(make, rollout):
    writer = make(rollout.example).writer()
    with pytest.raises(echod.ClaimError), writer.claim() as slot, rollout.into(slot.data):
        rollout.add("steps", step(0))
        slot.commit()
        rollout.add("steps", step(1))


def test_what_is_built_in_place_is_done(make, rollout):
    writer = make(rollout.example).writer()
    with writer.claim() as slot, rollout.into(slot.data):
        fill(rollout)
        rollout.build()
        with pytest.raises(echod.FullError, match="leave the block"):
            rollout.add("steps", step(0))


def test_a_slot_of_a_table_that_is_known_by_name_alone_is_as_good(make, daemon):
    rollout = echod.Accumulator({"steps": (np.int32(0), [np.float32(0)]), "n": np.int64(0)}, {"steps": 2})
    table = make(rollout.example, batch_size=1)
    with daemon.connect().table(table.name).writer().claim() as slot, rollout.into(slot.data):
        assert type(slot.data["steps"]) is list
        rollout.extend("steps", (np.array([1, 2], np.int32), [np.array([3, 4], np.float32)]))
        rollout.add("n", 5)
    data = table.reader().next(10).data
    assert data["steps"][0].tolist() == [[1, 2]] and data["steps"][1][0].tolist() == [[3, 4]]
    assert data["n"].tolist() == [5]


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"won": np.zeros((), np.int8)}, echod.LeafDTypeError, "'won' holds bool"),
        ({"target": np.zeros(3)}, echod.LeafShapeError, "'target'"),
        ({"target": np.broadcast_to(np.zeros(()), 2)}, echod.LeafDTypeError, "'target' is no array that can be written"),
        ({"target": [0.0, 0.0]}, echod.StructureError, "what is to be written into is not what the rollout holds"),
        ({"more": np.zeros(3)}, echod.StructureError, "'more'"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_into_is_refused(rollout, change, error, says):
    with pytest.raises(error, match=says), rollout.into({**rollout.example, **change}):
        pytest.fail("it was taken")
    fill(rollout)
    check(rollout.build())


def test_rollouts_side_by_side(make):
    envs = 3
    rollout = echod.Accumulator(ITEMS, LENGTHS, envs=envs)
    table = make(rollout.example, batch_size=envs)
    writer = table.writer()

    def play():
        for i in range(4):
            one = step(i)
            rollout.add(
                "steps", {key: np.stack([one[key] + one[key].dtype.type(env * 10) for env in range(envs)]) for key in one}
            )
        rollout.extend("target", np.array([[10.0 * env, 10 * env + 0.5] for env in range(envs)]))
        rollout.add("last", {"obs": np.stack([np.full((2, 3), 10 * env + 4, np.float32) for env in range(envs)])})
        rollout.add("won", np.ones(envs, bool))

    play()
    assert rollout.build()["steps"]["obs"].shape == (envs, 4, 2, 3)
    writer.append_many(rollout.build())
    with writer.claim(envs) as slot, rollout.into(slot.data):
        play()
    reader = table.reader()
    for _ in range(2):
        batch = reader.next(10)
        for env in range(envs):
            check(optree.tree_map(lambda leaf, env=env: leaf[env], batch.data), 10 * env)
    with pytest.raises(echod.LeafDTypeError, match="'won'"):
        rollout.add("won", True)
    with pytest.raises(echod.LeafShapeError, match=r"'steps/obs' has shape \(3, 2, 3\), and \(2, 2, 3\)"):
        rollout.add("steps", {"obs": np.zeros((2, 2, 3), np.float32), "action": np.zeros(3, np.int8)})
    with pytest.raises(echod.LeafShapeError, match=r"'target' has shape \(3, 'n'\)|\(3, n\)"):
        rollout.extend("target", np.zeros((2, 2)))


def test_what_is_no_description_of_a_rollout_is_refused():
    with pytest.raises(TypeError, match="dict"):
        echod.Accumulator([np.zeros(3)])
    with pytest.raises(ValueError, match="'step'"):
        echod.Accumulator(ITEMS, {"step": 3})
    with pytest.raises(ValueError, match="'steps' is 1 or more"):
        echod.Accumulator(ITEMS, {"steps": 0})
    with pytest.raises(ValueError, match="envs"):
        echod.Accumulator(ITEMS, envs=0)
    with pytest.raises(echod.InvalidSpecError):
        echod.Accumulator({"steps": {}})
    with pytest.raises(echod.LeafDTypeError, match="'steps/a'"):
        echod.Accumulator({"steps": {"a": np.zeros(2, object)}})


def test_its_repr_says_how_far_it_is(rollout):
    rollout.add("steps", step(0))
    assert repr(rollout) == "<echod.Accumulator: steps 1 of 4, target 0 of 2, last 0 of 1, won 0 of 1>"
    assert "of 2 environments: x 0 of 1" in repr(echod.Accumulator({"x": 1.0}, envs=2))


DTYPES = ["float32", "int16", "uint8", "bool", "complex64", "float16"]
LEAF = st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 3), max_size=2).map(tuple))

LENGTH = st.one_of(st.none(), st.integers(1, 4))


@settings(max_examples=60, deadline=None)
@given(
    scales=st.lists(st.tuples(LENGTH, st.lists(LEAF, min_size=1, max_size=3)), min_size=1, max_size=3),
    envs=st.one_of(st.none(), st.integers(1, 3)),
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_what_is_added_in_any_pieces_is_what_is_built(scales, envs, seed):
    rng = np.random.default_rng(seed)

    def random(dtype, shape):
        raw = rng.integers(0, 2, (*shape, np.dtype(dtype).itemsize), np.uint8)
        return np.ascontiguousarray(raw).view(dtype).reshape(shape)

    items = {f"s{i}": [np.zeros(shape, dtype) for dtype, shape in leaves] for i, (_, leaves) in enumerate(scales)}
    lengths = {f"s{i}": length for i, (length, _) in enumerate(scales) if length is not None}
    rollout = echod.Accumulator(items, lengths, envs=envs)
    first = () if envs is None else (envs,)
    expected = {}
    for name, item in items.items():
        length = lengths.get(name)
        axis = () if length is None else (length,)
        whole = [random(leaf.dtype, (*first, *axis, *leaf.shape)) for leaf in item]
        expected[name] = copy.deepcopy(whole)
        done = 0
        while done < (length or 1):
            if length is None:
                rollout.add(name, whole)
                done = 1
                continue
            n = int(rng.integers(0, length - done + 1))
            piece = slice(done, done + n)
            if n == 1 and rng.integers(2):
                rollout.add(name, [leaf[(*(slice(None) for _ in first), done)] for leaf in whole])
            else:
                rollout.extend(name, [leaf[(*(slice(None) for _ in first), piece)] for leaf in whole])
            done += n
    built = rollout.build()
    for name, whole in expected.items():
        for leaf, array in zip(built[name], whole):
            assert leaf.dtype == array.dtype and leaf.shape == array.shape and leaf.tobytes() == array.tobytes()
