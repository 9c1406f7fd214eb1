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
SHAPES = [(), (1,), (3,), (0,), (2, 0, 3), (2, 3, 4), (1, 1, 1, 5)]
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


def test_strides_of_every_kind_are_followed(make):
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


def test_numbers_of_python_and_numpy_fit_scalar_leaves(make):
    example = {
        "f32": np.float32(0), "f16": np.float16(0), "bf16": ml_dtypes.bfloat16(0), "f64": 0.0, "i8": np.int8(0),
        "u64": np.uint64(0), "b": True, "c": 0j, "c64": np.complex64(0),
    }  # fmt: skip
    numbers = {
        "f32": 0.1, "f16": 0.1, "bf16": 0.1, "f64": 0.1, "i8": -128, "u64": 2**64 - 1, "b": True, "c": 1 + 2j, "c64": 1j,
    }  # fmt: skip
    typed = {key: np.asarray(value, np.asarray(example[key]).dtype)[()] for key, value in numbers.items()}
    read = through(make(example, batch_size=2), [numbers, typed])
    for one in read:
        for key, value in typed.items():
            assert bits(one[key]) == bits(value), key


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


def test_deep_trees(make):
    sample = np.float32(1)
    for _ in range(100):
        sample = {"d": sample}
    [read] = through(make(sample), [sample])
    assert optree.tree_leaves(read) == [1]


@pytest.mark.parametrize("kind", ["buffer", "dlpack", "memmap", "subclass"])
def test_other_arrays_are_taken(make, kind, tmp_path):
    array = np.arange(6, dtype=np.int32)

    class Speaks:
        def __dlpack__(self, **options):
            return array.__dlpack__(**options)

        def __dlpack_device__(self):
            return array.__dlpack_device__()

    class Sub(np.ndarray):
        pass

    given = {
        "buffer": memoryview(array),
        "dlpack": Speaks(),
        "memmap": np.memmap(tmp_path / "file", np.int32, "w+", shape=(6,)),
        "subclass": array.view(Sub),
    }[kind]
    if kind == "memmap":
        given[:] = array
    [read] = through(make({"x": array}), [{"x": given}])
    assert read["x"].tolist() == array.tolist()


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
