"""What may be given for a leaf beside numpy's arrays: DLPack, buffers, numbers of several kinds."""

import array
import ctypes
import enum
import mmap
import sys
import types

import echod
import ml_dtypes
import numpy as np
import pytest

VALUES = np.arange(6, dtype=np.int32)


class Speaks:
    """An array that speaks DLPack alone."""

    def __init__(self, of, device=None):
        self.of, self.device = of, device

    def __dlpack__(self, **options):
        return self.of.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device or self.of.__dlpack_device__()


class SpeaksOld(Speaks):
    """As before DLPack 1.0, which knows no keywords."""

    def __dlpack__(self, stream=None):
        return self.of.__dlpack__()


class Interface:
    """As other libraries show their memory."""

    __array_interface__ = VALUES.__array_interface__
    keeps = VALUES


class Sub(np.ndarray):
    pass


def mapped(path):
    made = np.memmap(path / "file", np.int32, "w+", shape=(6,))
    made[:] = VALUES
    return made


def anonymous():
    made = mmap.mmap(-1, 24)
    made[:] = VALUES.tobytes()
    return memoryview(made).cast("i")


GIVEN = {
    "memoryview": lambda path: memoryview(VALUES),
    "memoryview with strides": lambda path: memoryview(VALUES.repeat(2)[::-2])[::-1],
    "read-only memoryview": lambda path: memoryview(VALUES).toreadonly(),
    "array.array": lambda path: array.array("i", VALUES.tolist()),
    "ctypes": lambda path: (ctypes.c_int * 6)(*VALUES),
    "mmap": lambda path: anonymous(),
    "dlpack": lambda path: Speaks(VALUES),
    "dlpack with strides": lambda path: Speaks(VALUES.repeat(2)[::2]),
    "dlpack before 1.0": lambda path: SpeaksOld(VALUES.copy()),
    "page-locked dlpack": lambda path: Speaks(VALUES, (3, 0)),
    "array interface": lambda path: Interface(),
    "memmap": mapped,
    "subclass": lambda path: VALUES.view(Sub),
    "read-only": lambda path: np.frombuffer(VALUES.tobytes(), np.int32),
}


def through(table, sample, many=None):
    with table.writer() as writer:
        writer.append(sample)
        if many is not None:
            writer.append_many(many)
    return [batch.copy() for batch in table.reader()]


@pytest.mark.parametrize("kind", GIVEN)
def test_arrays_of_others_are_taken(make, tmp_path, kind):
    given = GIVEN[kind](tmp_path)
    # As an example, as a sample, and as six samples.
    read = through(make({"x": given}, batch_size=1), {"x": given})
    assert read[0]["x"].tolist() == [VALUES.tolist()]
    table = make({"x": np.int32(0)}, batch_size=7)
    [read] = through(table, {"x": np.int32(-1)}, {"x": given})
    assert read["x"].tolist() == [-1, *VALUES.tolist()]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_are_arrays_of_them(make, kind):
    [read] = through(make({"x": np.zeros(3, np.uint8)}, batch_size=1), {"x": kind(b"\x00a\xff")})
    assert read["x"].tolist() == [[0, 97, 255]]
    writer = make({"x": np.zeros(3, np.uint8)}).writer()
    with pytest.raises(echod.LeafShapeError, match=r"\(3,\), and \(4,\)"):
        writer.append({"x": kind(b"four")})


class Action(enum.IntEnum):
    LEFT = 1


def test_numbers_of_python_and_numpy_fit_scalar_leaves(make):
    example = {
        "f32": np.float32(0), "f16": np.float16(0), "bf16": ml_dtypes.bfloat16(0), "f64": 0.0, "i8": np.int8(0),
        "u64": np.uint64(0), "b": True, "c": 0j, "c64": np.complex64(0), "enum": Action.LEFT,
    }  # fmt: skip
    numbers = {
        "f32": 0.1, "f16": 0.1, "bf16": 0.1, "f64": 0.1, "i8": -128, "u64": 2**64 - 1, "b": True, "c": 1 + 2j, "c64": 1j,
        "enum": Action.LEFT,
    }  # fmt: skip
    typed = {key: np.asarray(value, np.asarray(example[key]).dtype)[()] for key, value in numbers.items()}
    arrays = {key: np.asarray(value) for key, value in typed.items()}
    buffers = {key: memoryview(value) if value.dtype.kind != "V" else value for key, value in arrays.items()}
    table = make(example, batch_size=4)
    writer = table.writer()
    for sample in (numbers, typed, arrays, buffers):
        writer.append(sample)
    data = table.reader().next().data
    for key, value in typed.items():
        assert data[key].dtype == value.dtype
        assert data[key].tobytes() == 4 * value.tobytes(), key


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan"), -0.0, 5e-324])
def test_every_float_of_python_has_its_place(make, number):
    example = {"f64": 0.0, "f32": np.float32(0), "f16": np.float16(0), "c64": np.complex64(0)}
    [read] = through(make(example, batch_size=1), {**dict.fromkeys(example, number), "c64": complex(number, -number)})
    for key in ("f64", "f32", "f16"):
        with np.errstate(under="ignore"):
            expected = np.array([number], read[key].dtype)
        assert read[key].tobytes() == expected.tobytes() or np.isnan(number) and np.isnan(read[key][0])
    assert np.isnan(number) or read["c64"][0] == np.complex64(complex(number, -number))


class Raises:
    """Something that cannot say what it has."""

    def __init__(self, *names):
        self.names = names

    def __getattr__(self, name):
        if name not in self.names:
            raise AttributeError(name)

        def broken(*_, **__):
            raise RuntimeError("it is broken")

        return broken


def released():
    view = memoryview(bytearray(4))
    view.release()
    return view


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (Speaks(VALUES, (2, 0)), "lies on a device .*DLPack device 2"),
        (Raises("__dlpack__", "__dlpack_device__"), "of type Raises, which cannot be stored: it is broken"),
        (Raises("__array__"), "of type Raises, which cannot be stored: "),
        (released(), "of type memoryview, which cannot be stored: .*released"),
        (np.ma.array([1, 2], mask=[0, 1]), "its mask would be lost"),
        (memoryview(b"ab").cast("c"), "holds int32, and"),
        (array.array("u", "ab"), "holds int32, and <U1"),
        ((ctypes.c_int.__ctype_be__ * 6)(), "its bytes are swapped"),
        (range(6), "of type range, which cannot be stored"),
        ({1, 2}, "of type set, which cannot be stored"),
        ("text", "of type str, which cannot be stored"),
        (object(), "of type object, which cannot be stored"),
        (2**70, "a Python number, where an array is wanted"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_its_leaf(make, given, says):
    writer = make({"deep": {"x": VALUES}}).writer()
    for act in (writer.append, writer.append_many):
        with pytest.raises(echod.LeafDTypeError, match="^leaf 'deep/x' .*" + says) as raised:
            act({"deep": {"x": given}})
        assert raised.value.leaf == "deep/x"
    assert writer.committed == 0


class Celsius(float):
    pass


class Impedance(complex):
    pass


def test_numbers_of_a_class_of_their_own_are_taken_by_their_value_everywhere(make):
    item = {"f": np.float32(0), "h": np.float16(0), "i": np.int8(0), "c": np.complex64(0)}
    given = {"f": Celsius(0.5), "h": Celsius(1.5), "i": Action.LEFT, "c": Impedance(1, 2)}
    expected = {"f": 0.5, "h": 1.5, "i": 1, "c": 1 + 2j}
    assert {key: value[0] for key, value in through(make(item, batch_size=1), given)[0].items()} == expected
    rollout = echod.Accumulator({"steps": item}, {"steps": 1})
    rollout.add("steps", given)
    assert {key: value[0] for key, value in rollout.build()["steps"].items()} == expected
    writer = make(item).writer()
    for key, value in [("f", Action.LEFT), ("i", Celsius(1)), ("f", np.float64(1)), ("c", Celsius(1)), ("c", np.complex128(1))]:
        with pytest.raises(echod.LeafDTypeError, match=f"{key}'"):
            writer.append({**given, key: value})
        with pytest.raises(echod.LeafDTypeError, match=f"{key}'"):
            rollout.add("steps", {**given, key: value})
    with pytest.raises(echod.LeafValueError):
        writer.append({**given, "f": Celsius(1e300)})


def test_a_mask_is_lost_nowhere(make):
    item = {"x": np.zeros(3, np.float32)}
    masked = np.ma.masked_array(item["x"], [True, False, False])
    rollout = echod.Accumulator({"steps": item}, {"steps": 2})
    for put in (
        lambda: make(item).writer().append({"x": masked}),
        lambda: rollout.add("steps", {"x": masked}),
        lambda: rollout.extend("steps", {"x": masked[None]}),
    ):
        with pytest.raises(echod.LeafDTypeError, match="its mask would be lost"):
            put()


class Tensor:
    """As torch's: it gives out what numpy has no dtype for as bits alone."""

    def __init__(self, array, dtype):
        self.array, self.dtype = array, dtype

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **_):
        raise BufferError("bfloat16 is nothing of numpy's")

    def __array__(self, *_, **__):
        raise TypeError("Got unsupported ScalarType BFloat16")

    def detach(self):
        return self

    def view(self, dtype):
        return Tensor(self.array.view(dtype), f"torch.{np.dtype(dtype).name}")

    def numpy(self):
        assert self.dtype in ("torch.int16", "torch.uint8")
        return self.array


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_small_floats_of_torch_are_taken_as_their_bits(make, monkeypatch, name):
    torch = types.SimpleNamespace(Tensor=Tensor, int16=np.int16, uint8=np.uint8)
    monkeypatch.setitem(sys.modules, "torch", torch)
    values = np.array([[0.5, -2], [float("inf"), 1]]).astype(getattr(ml_dtypes, name))
    tensor = Tensor(values.view(np.int16 if name == "bfloat16" else np.uint8), f"torch.{name}")
    for given in (tensor, Tensor(tensor.array.T, tensor.dtype)):
        [read] = through(make({"x": values}, batch_size=1), {"x": given})
        assert read["x"][0].dtype == values.dtype
        assert read["x"][0].tobytes() == given.array.tobytes()
    with pytest.raises(echod.LeafDTypeError, match=f"float32, and {name}"):
        make({"x": np.zeros((2, 2), np.float32)}).writer().append({"x": tensor})
