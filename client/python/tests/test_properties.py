"""What goes in comes out, bit for bit: whatever the tree, the dtypes, the shapes, the strides and the way in."""

import collections
import itertools

import ml_dtypes
import numpy as np
import optree
from hypothesis import given, settings
from hypothesis import strategies as st

NUMBERS = itertools.count()
Pair = collections.namedtuple("Pair", "first second")

DTYPES = [
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
    "complex64", "complex128", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
]  # fmt: skip


class Slot:
    """A leaf of a tree that is to be: what one sample has there."""

    def __init__(self, dtype, shape):
        self.dtype, self.shape = np.dtype(dtype), tuple(shape)

    def __repr__(self):
        return f"{self.dtype.name}{list(self.shape)}"


slots = st.builds(Slot, st.sampled_from(DTYPES), st.lists(st.sampled_from([0, 1, 1, 2, 3, 5]), max_size=4))
keys = st.one_of(st.text("ab/~.0\u00e9\u96ea", max_size=4), st.integers(0, 3))


def nodes(children):
    def apart(tree):
        # 0 and "0" have the same name, which a table refuses.
        return len({str(key) for key in tree}) == len(tree)

    return st.one_of(
        st.dictionaries(keys, children, max_size=4).filter(apart),
        st.lists(children, max_size=4),
        st.lists(children, max_size=3).map(tuple),
        st.builds(Pair, children, st.none() | children),
    )


trees = st.recursive(slots, nodes, max_leaves=8).filter(lambda tree: 0 < len(optree.tree_leaves(tree)))


@st.composite
def scattered(draw, values):
    """The same values, lying elsewhere: other strides, another order of axes, at an odd address."""
    order = draw(st.permutations(range(values.ndim)))
    steps = [draw(st.sampled_from([1, 1, -1, 2, -3])) for _ in range(values.ndim)]
    item = np.dtype([("pad", f"V{draw(st.sampled_from([0, 0, 1, values.itemsize]))}"), ("value", values.dtype)])
    room = np.zeros([values.shape[axis] * abs(steps[axis]) for axis in order], item)["value"]
    lying = room.transpose(np.argsort(order))[tuple(slice(None, None, step) for step in steps)]
    lying[...] = values
    return lying


@st.composite
def columns(draw, slot, n):
    """`n` samples of a leaf: any bits at all, or the same for all, which then lie in one place."""
    kind = np.dtype(f"u{slot.dtype.itemsize}") if slot.dtype.itemsize < 16 else np.dtype("V16")
    seed = draw(st.integers(0, 2**32 - 1))
    bits = np.random.default_rng(seed).integers(0, 256, (n, *slot.shape, kind.itemsize), np.uint8)
    if slot.dtype == np.bool_:
        bits &= 1
    values = bits.reshape(-1).view(kind).reshape(n, *slot.shape)
    if n > 0 and draw(st.booleans()) and draw(st.booleans()):
        values = np.broadcast_to(values[:1], values.shape)
    else:
        values = draw(scattered(values))
    return values.view(slot.dtype)


@st.composite
def runs(draw):
    tree = draw(trees)
    leaves, treespec = optree.tree_flatten(tree)
    batch_size = draw(st.integers(1, 5))
    # The room for a batch is there again once the batches before it were read.
    ways = st.tuples(st.sampled_from(["append", "append_many", "claim", "claim_many"]), st.integers(0, batch_size + 1))
    chunks = draw(st.lists(ways, min_size=1, max_size=8))
    n = sum(length for _, length in chunks)
    return treespec, [draw(columns(slot, n)) for slot in leaves], leaves, batch_size, chunks


def put(writer, way, treespec, samples):
    """Writes samples, given as an array of them for each leaf, that way."""
    n = len(samples[0])
    if way == "append":
        for i in range(n):
            writer.append(treespec.unflatten([array[i] for array in samples]))
    elif way == "append_many":
        writer.append_many(treespec.unflatten(samples))
    elif way == "claim":
        for i in range(n):
            with writer.claim() as claim:
                for view, array in zip(optree.tree_leaves(claim.data), samples, strict=True):
                    view[...] = array[i]
    else:
        done = 0
        while done < n:
            with writer.claim(n - done) as claim:
                for view, array in zip(optree.tree_leaves(claim.data), samples, strict=True):
                    view[...] = array[done : done + len(claim)]
                done += len(claim)


def assert_same_bits(got, given):
    assert got.dtype == given.dtype and got.shape == given.shape
    assert got.tobytes() == given.tobytes()


@settings(max_examples=200, deadline=None)
@given(run=runs())
def test_what_goes_in_comes_out_bit_for_bit(daemon, run):
    treespec, arrays, leaves, batch_size, chunks = run
    example = treespec.unflatten([np.zeros(slot.shape, slot.dtype) for slot in leaves])
    name = f"property-{next(NUMBERS)}"
    table = daemon.connection.create_table(name, example=example, batch_size=batch_size, capacity=2)
    writer, reader = table.writer(), table.reader()
    written = read = 0
    try:
        for way, length in chunks:
            put(writer, way, treespec, [array[written : written + length] for array in arrays])
            written += length
            while read + batch_size <= written:
                read += check(reader.next(30), read, treespec, arrays)
        writer.finish()
        for batch in reader:
            read += check(batch, read, treespec, arrays)
        assert read == written == writer.committed
    finally:
        table.drop()


def check(batch, read, treespec, arrays):
    data = batch.data
    assert optree.tree_structure(data) == treespec
    for view, array in zip(optree.tree_leaves(data), arrays, strict=True):
        assert not view.flags.writeable
        assert_same_bits(view, array[read : read + len(batch)])
    return len(batch)
