"""What goes in comes out, bit for bit."""

import collections
import sys

import echod
import ml_dtypes
import numpy as np
import optree
import pytest

DTYPES = [
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
    "complex64", "complex128", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
]  # fmt: skip
SHAPES = [(), (1,), (3,), (0,), (2, 0, 3), (2, 3, 4), (1, 1, 1, 5), (1,) * 16, (0,) * 16]
Point = collections.namedtuple("Point", "x y")


def random(dtype, shape):
    dtype = np.dtype(dtype)
    count = int(np.prod(shape)) * dtype.itemsize
    raw = np.random.default_rng(count).integers(0, 256, count, dtype=np.uint8)
    if dtype == np.bool_:
        raw &= 1
    return raw.view(dtype).reshape(shape)


def bits(array):
    return np.ascontiguousarray(array).tobytes()


def through(table, samples):
    writer = table.writer()
    for sample in samples:
        writer.append(sample)
    writer.finish()
    read = []
    for batch in table.reader(copy=True):
        read += [optree.tree_map(lambda array: array[i], batch.data) for i in range(len(batch))]
    return read


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_every_dtype_and_shape_comes_out_as_it_went_in(make, dtype):
    sample = {f"s{i}": random(dtype, shape) for i, shape in enumerate(SHAPES)}
    [read] = through(make(sample), [sample])
    for key, array in sample.items():
        assert read[key].dtype == array.dtype
        assert read[key].shape == array.shape
        assert bits(read[key]) == bits(array)


def strided(dtype):
    """Arrays that do not lie in a row, each in another way."""
    # Made of bits, since numpy knows some of these dtypes by halves.
    base = random(dtype, (2, 6, 8, 3)).view({1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "V16"}[np.dtype(dtype).itemsize])
    packed = np.zeros(5, [("pad", "u1"), ("value", base.dtype)])  # none of whose values is aligned
    packed["value"] = base[0, 0, :5, 0]
    made = {
        "fortran": np.asfortranarray(base),
        "negative": base[::-1, ::-2, :, ::-1],
        "zero": np.broadcast_to(base[0, 0, 0, :1], (4, 5)),
        "zeros": np.lib.stride_tricks.as_strided(base[0, 0, 0], (3, 4, 3), (0, 0, base.itemsize)),
        "transposed": base.transpose(3, 1, 0, 2),
        "cut": base[:, 1:4, 2:5, 1],
        "column": base[0, :, 0, 0],
        "turned": base[1, 1, :5, 1].copy()[::-1],
        "overlapping": np.lib.stride_tricks.as_strided(base.reshape(-1), (7, 4), (base.itemsize, 2 * base.itemsize)),
        "single": base[:1, ::-1, :1][:, :1],
        "nothing": base[:, 6:, ::2],
        "unaligned": packed["value"],
        "number": base[1, 2, 3, 1:2].reshape(()),
    }
    return {key: array.view(dtype) for key, array in made.items()}


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_strides_of_every_kind_are_followed_bit_for_bit(make, dtype):
    sample = strided(dtype)
    many = {key: np.stack([array, array[::-1] if array.ndim else array]) for key, array in sample.items()}
    turned = {key: array[::-1] for key, array in many.items()}  # a negative stride over samples
    table = make(sample, batch_size=1)
    writer = table.writer()
    writer.append(sample)
    writer.append_many(turned)
    writer.finish()
    read = [batch.copy() for batch in table.reader()]
    for key, array in sample.items():
        for got, given in zip(read, (array, turned[key][0], turned[key][1]), strict=True):
            assert got[key].shape == (1, *array.shape) and got[key].dtype == array.dtype, key
            assert bits(got[key]) == bits(given), key


def test_what_the_strides_mean_is_what_is_read(make):
    base = np.arange(2 * 6 * 8 * 3, dtype=np.int16).reshape(2, 6, 8, 3)
    sample = {
        "fortran": np.asfortranarray(base),
        "negative": base[::-1, ::-2, :, ::-1],
        "zero": np.broadcast_to(np.float32(3), (4, 5)),
        "transposed": base.transpose(3, 1, 0, 2),
        "cut": base[:, 1:4, 2:5, 1],
        "column": base[0, :, 0, 0],
        "turned": np.arange(5.0)[::-1],
    }
    [read] = through(make(sample), [sample])
    for key, array in sample.items():
        np.testing.assert_array_equal(read[key], array, err_msg=key)


def test_strided_samples_go_in_by_many(make):
    base = np.arange(10 * 3 * 4, dtype=np.float32).reshape(4, 3, 10)
    many = {"a": base.transpose(2, 1, 0), "b": np.arange(20)[::2]}
    table = make({"a": many["a"][0], "b": many["b"][0]}, batch_size=4)
    with table.writer() as writer:
        writer.append_many(many)
    read = [batch.copy() for batch in table.reader(prefetch=8)]
    assert [len(batch["b"]) for batch in read] == [4, 4, 2]
    np.testing.assert_array_equal(np.concatenate([batch["a"] for batch in read]), many["a"])
    np.testing.assert_array_equal(np.concatenate([batch["b"] for batch in read]), many["b"])


def test_large_samples_go_without_the_interpreter(make):
    sample = {"big": np.random.default_rng(0).random((300, 300)), "turned": np.zeros((200, 100))[:, ::-1]}
    [read] = through(make(sample, batch_size=2), [sample])
    np.testing.assert_array_equal(read["big"], sample["big"])


def test_nan_payloads_stay(make):
    words = np.array([0x7FC00001, 0xFFC12345, 0x7F800001], np.uint32)
    sample = {"x": words.view(np.float32)}
    [read] = through(make(sample), [sample])
    assert bits(read["x"]) == bits(words)


def test_trees_of_all_kinds_keep_their_structure(make):
    sample = {
        "list": [np.zeros(2), np.ones(3)],
        "tuple": (np.int32(1), (np.int64(2),)),
        "point": Point(1.0, {"deep": np.arange(2)}),
        "none": None,
        "empty": {},
        3: np.float32(3),
    }
    [read] = through(make(sample), [sample])
    assert optree.tree_structure(read) == optree.tree_structure(sample)
    assert read["point"].y["deep"].tolist() == [0, 1]
    assert read[3] == 3


def test_nodes_that_only_optree_knows_work(make):
    sample = collections.OrderedDict(b=np.arange(2), a=collections.deque([np.float32(1), np.float32(2)]))
    [read] = through(make(sample), [sample])
    assert type(read) is collections.OrderedDict and list(read) == ["b", "a"]
    assert list(read["a"]) == [1, 2]


def test_a_sample_may_be_one_array(make):
    [read] = through(make(np.zeros(3)), [np.arange(3.0)])
    assert read.tolist() == [0, 1, 2]


def test_a_reader_that_knows_the_name_alone_gets_dicts_and_lists(make, daemon):
    sample = {"a/b": {"~": np.float32(1), "": np.float32(2)}, "l": [np.float32(3), Point(np.float32(4), np.float32(5))]}
    table = make(sample)
    assert [leaf.name for leaf in table.leaves] == ["a~1b/~2", "a~1b/~0", "l/0", "l/1/x", "l/1/y"]
    with table.writer() as writer:
        writer.append(sample)
    [batch] = daemon.connect().table(table.name).reader()
    data = batch.data
    assert data["a/b"]["~"] == [1] and data["a/b"][""] == [2]
    assert data["l"][0] == [3] and data["l"][1]["y"] == [5]


def test_an_example_gives_a_reader_its_structure(make, daemon):
    table = make({"p": [1.0, 2.0]})
    with table.writer() as writer:
        writer.append({"p": [3.0, 4.0]})
    [batch] = daemon.connect().table(table.name).reader(example={"p": (0.0, 0.0)})
    assert type(batch.data["p"]) is tuple


def test_a_writer_learns_a_structure_with_the_same_leaves(make, daemon):
    table = make({"p": [1.0, 2.0], "q": 3})
    writer = daemon.connect().table(table.name).writer()
    writer.append({"q": 1, "p": (1.0, 2.0)})
    writer.append({"p": [3.0, 4.0], "q": 2})
    writer.append({"p": {0: 5.0, 1: 6.0}, "q": 3})
    writer.finish()
    [batch] = table.reader()
    assert batch.data["q"].tolist() == [1, 2, 3] and batch.data["p"][1].tolist() == [2, 4, 6]


def test_a_thousand_leaves_and_unicode_names(make):
    sample = {f"blätt_{i}_雪": np.float32(i) for i in range(1000)}
    [read] = through(make(sample, capacity=2), [sample])
    assert all(read[key] == value for key, value in sample.items())


def test_as_many_leaves_as_a_table_may_have_and_one_more(make):
    leaves = {str(i): np.int8(i % 128) for i in range(1024)}
    [read] = through(make(leaves, capacity=1), [leaves])
    assert read == leaves
    with pytest.raises(echod.InvalidSpecError, match="1025 arrays are more than the 1024"):
        make({**leaves, "more": 0})


@pytest.mark.parametrize("depth", [100, 128])
def test_deep_trees(make, depth):
    sample = np.float32(1)
    for _ in range(depth):
        sample = {"d": sample}
    [read] = through(make(sample), [sample])
    assert optree.tree_leaves(read) == [1]


NAMES = [
    "a/b", "a~b", "~", "/", "~0", "~1", "~2", "~01", "~/", "//", "", ".", "..", " ", "0", "-1", "x" * 255, "雪" * 85, "\u202e", "é", "e\u0301",
]  # fmt: skip


def test_keys_of_every_kind_are_kept_apart(make, daemon):
    sample = {key: np.float64(i) for i, key in enumerate(NAMES)}
    sample["deep"] = {key: {key: np.int16(i)} for i, key in enumerate(NAMES) if len(key) < 20}
    table = make(sample)
    assert len({leaf.name for leaf in table.leaves}) == len(table.leaves)
    [read] = through(table, [sample])
    assert read == sample
    # And from the names alone, by which a dict of "0" alone is a list.
    del sample["deep"]["0"]
    table = make(sample)
    with table.writer() as writer:
        writer.append(sample)
    [batch] = daemon.connect().table(table.name).reader()
    assert optree.tree_map(lambda array: array[0], batch.data) == sample


KEYS = [None, True, 2, -3, 1.5, (1, 2), b"bytes", "text"]


def test_keys_that_are_no_texts_are_kept(make):
    sample = {key: np.float32(i) for i, key in enumerate(KEYS)}
    [read] = through(make(sample), [sample])
    assert read == sample and {type(key) for key in read} == {type(key) for key in sample}


def test_nothing_is_leaked(make, sample):
    array = sample["obs"]
    table = make(sample, capacity=16)
    writer, reader = table.writer(), table.reader()
    before = sys.getrefcount(array)
    for _ in range(40):
        writer.append(sample)
    for _ in range(5):
        reader.next().data
    assert sys.getrefcount(array) == before


def test_a_claim_is_filled_in_place(make, sample):
    table = make(sample)
    writer = table.writer()
    with writer.claim() as slot:
        slot.data["obs"][:] = 3
        slot.data["reward"][...] = 1
        slot.data["info"]["step"][...] = 9
        slot.data["info"]["done"][...] = True
    with pytest.raises(KeyError), writer.claim() as slot:
        raise KeyError
    with writer.claim(3) as slot:
        assert 1 <= len(slot) <= 3 and slot.data["obs"].shape == (len(slot), 4)
        slot.data["obs"][:] = 4
        with pytest.raises(echod.ClaimError):
            writer.append(sample)
    kept = slot.data["obs"]
    with pytest.raises(ValueError):
        kept[:] = 1
    with pytest.raises(echod.ClaimError):
        slot.commit()
    committed = writer.committed
    writer.claim(2)  # forgotten
    writer.finish()
    read = [batch.copy() for batch in table.reader()]
    assert sum(len(batch["obs"]) for batch in read) == committed
    assert read[0]["obs"][0].tolist() == [3] * 4 and read[0]["info"]["done"][0]
