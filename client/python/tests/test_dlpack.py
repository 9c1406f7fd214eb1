"""Batches as DLPack, for other frameworks: what the structs say, and that whoever has one keeps its batch."""

import ctypes
import gc
import threading

import echod
import ml_dtypes
import numpy as np
import pytest

# numpy's dtype: DLPack's code for its kind. Bits and lanes follow from its size.
CODES = {
    "bool": 6, "uint8": 1, "uint16": 1, "uint32": 1, "uint64": 1, "int8": 0, "int16": 0, "int32": 0, "int64": 0, "float16": 2,
    "float32": 2, "float64": 2, "complex64": 5, "complex128": 5, "bfloat16": 4, "float8_e4m3fn": 10, "float8_e5m2": 12,
}  # fmt: skip
OF_ML_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class Versioned(ctypes.Structure):
    pass


Versioned._fields_ = [
    ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
    ("deleter", ctypes.CFUNCTYPE(None, ctypes.POINTER(Versioned))), ("flags", ctypes.c_uint64), ("tensor", Tensor),
]  # fmt: skip


class Legacy(ctypes.Structure):
    pass


Legacy._fields_ = [
    ("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.CFUNCTYPE(None, ctypes.POINTER(Legacy))),
]  # fmt: skip

api = ctypes.pythonapi
api.PyCapsule_GetPointer.restype = ctypes.c_void_p
api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]


def taken(capsule, struct=Versioned):
    """What a consumer finds in a capsule, which is its own then."""
    name = {Versioned: b"dltensor_versioned", Legacy: b"dltensor"}[struct]
    managed = ctypes.cast(api.PyCapsule_GetPointer(capsule, name), ctypes.POINTER(struct))
    used = ctypes.create_string_buffer(b"used_" + name)
    api.PyCapsule_SetName(capsule, used)
    kept.append(used)  # a capsule does not copy its name
    return managed


kept = []


def dtype(name):
    return np.dtype(getattr(ml_dtypes, name) if name in OF_ML_DTYPES else name)


def filled(make, **options):
    sample = {name: np.arange(6).astype(dtype(name)).reshape(2, 3) for name in CODES}
    sample = {**sample, "number": np.float32(7), "nothing": np.zeros((0, 4), np.int16)}
    table = make(sample, batch_size=2, capacity=2)
    writer = table.writer()
    for _ in range(4):
        writer.append(sample)
    return table.reader(**options), sample


def test_the_structs_say_what_the_arrays_are(make):
    reader, sample = filled(make)
    batch = reader.next()
    data, given = batch.data, batch.dlpack()
    assert list(given) == list(data)
    for name, array in given.items():
        assert array.__dlpack_device__() == (1, 0)
        managed = taken(array.__dlpack__(max_version=(1, 0))).contents
        tensor, view = managed.tensor, data[name]
        assert (managed.major, managed.flags) == (1, 1), "read-only"
        assert (tensor.device_type, tensor.device_id, tensor.byte_offset) == (1, 0, 0)
        code = CODES.get(name, {"number": 2, "nothing": 0}.get(name))
        assert (tensor.code, tensor.bits, tensor.lanes) == (code, view.itemsize * 8, 1)
        assert tensor.shape[: tensor.ndim] == list(view.shape)
        if view.size:
            assert tensor.data == view.ctypes.data
            assert tensor.strides[: tensor.ndim] == [stride // view.itemsize for stride in view.strides]
        else:
            assert tensor.data is None
        managed.deleter(managed)
    assert repr(given["int16"]) == "<echod.DLPackArray of batch 0: int16 int16[2, 3]>"
    with pytest.raises(echod.ViewsAliveError) as raised:
        batch.release()
    assert raised.value.views == 2, "a tree each"
    del given, array, data, view
    batch.release()


def test_numpy_takes_them_as_they_lie(make):
    reader, sample = filled(make)
    batch = reader.next()
    arrays = {name: np.from_dlpack(array) for name, array in batch.dlpack().items() if name not in OF_ML_DTYPES}
    for name, array in arrays.items():
        assert array.dtype == sample[name].dtype and (not array.flags.writeable or not array.size)
        assert array.tobytes() == 2 * sample[name].tobytes()
        assert not array.size or np.shares_memory(array, batch.data[name])
    del batch
    gc.collect()
    assert reader.held == 1, "a view keeps its batch"
    del arrays, array
    assert reader.held == 0


def test_copies_are_the_consumers(make):
    reader, sample = filled(make)
    batch = reader.next()
    given = batch.dlpack()
    copy = np.from_dlpack(given["float32"], copy=True)
    capsules = [given["bfloat16"].__dlpack__(copy=True, max_version=version) for version in (None, (0, 8), (1, 0))]
    legacy = [taken(capsule, Legacy) for capsule in capsules[:2]]
    versioned = taken(capsules[2])
    assert versioned.contents.flags == 2, "a copy"
    del given
    batch.release()
    copy += 1
    assert (copy[1] == sample["float32"] + 1).all()
    for managed in [*legacy, versioned]:
        tensor = managed.contents.tensor
        assert (tensor.code, tensor.bits, tensor.device_type, tensor.shape[: tensor.ndim]) == (4, 16, 1, [2, 2, 3])
        assert ctypes.string_at(tensor.data, 24) == 2 * sample["bfloat16"].tobytes()
        managed.contents.deleter(managed)


def test_what_cannot_be_had_is_a_buffer_error(make):
    reader, _ = filled(make)
    array = reader.next().dlpack()["float32"]
    for options, says in [
        ({}, "max_version"),
        ({"max_version": (0, 8)}, "max_version"),
        ({"max_version": (1, 0), "dl_device": (2, 0)}, "device 2"),
        ({"max_version": (1, 0), "dl_device": (3, 0)}, "device 3"),
        ({"max_version": (1, 0), "stream": 1}, "no streams"),
    ]:
        with pytest.raises(BufferError, match=says):
            array.__dlpack__(**options)
    for options in ({"dl_device": (1, 0)}, {"copy": False}, {"stream": None, "max_version": (2, 3)}):
        assert array.__dlpack__(**{"max_version": (1, 0), **options}) is not None


def test_a_capsule_that_nobody_takes_keeps_the_batch_while_it_is_there(make):
    reader, _ = filled(make)
    batch = reader.next()
    capsules = [array.__dlpack__(max_version=(1, 0)) for array in batch.dlpack().values()]
    copies = [array.__dlpack__(copy=True) for array in batch.dlpack().values()]
    with pytest.raises(echod.ViewsAliveError):
        batch.release()
    del capsules
    batch.release()
    del copies


def test_a_consumer_may_delete_in_any_thread_and_without_the_interpreter(make):
    reader, _ = filled(make)
    managed = [taken(reader.next().dlpack()["int64"].__dlpack__(max_version=(1, 0))) for _ in range(2)]
    gc.collect()
    assert reader.held == 2
    # ctypes lets go of the interpreter around the call.
    threads = [threading.Thread(target=one.contents.deleter, args=(one,)) for one in managed]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert reader.held == 0


def test_a_copied_batch_gives_its_own_arrays(make):
    reader, sample = filled(make, copy=True)
    batch = reader.next()
    array = np.from_dlpack(batch.dlpack()["float64"])
    assert np.shares_memory(array, batch.data["float64"]) and (array[0] == sample["float64"]).all()


def test_a_released_batch_gives_none(make):
    reader, _ = filled(make)
    batch = reader.next()
    batch.release()
    with pytest.raises(echod.ReleasedError):
        batch.dlpack()
