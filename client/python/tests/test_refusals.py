"""What is no sample of the table is refused, by the name of its leaf, and nothing of it is written."""

import echod
import numpy as np
import pytest

EXAMPLE = {"obs": np.zeros((2, 3), np.float32), "n": np.int8(0), "r": np.float32(0)}


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"obs": np.zeros((2, 3))}, echod.LeafDTypeError, "'obs' holds float32, and float64"),
        ({"obs": np.zeros((2, 3), np.int32)}, echod.LeafDTypeError, "'obs' holds float32, and int32"),
        ({"obs": np.zeros((3, 2), np.float32)}, echod.LeafShapeError, r"'obs' has shape \(2, 3\), and \(3, 2\)"),
        ({"obs": np.zeros(6, np.float32)}, echod.LeafShapeError, "'obs'"),
        ({"obs": np.zeros((2, 3), ">f4")}, echod.LeafDTypeError, "'obs' .* swapped"),
        ({"obs": np.zeros((2, 3), object)}, echod.LeafDTypeError, "'obs' .* objects"),
        ({"obs": np.zeros((2, 3), "U3")}, echod.LeafDTypeError, "'obs'"),
        ({"obs": np.zeros((2, 3), "datetime64[s]")}, echod.LeafDTypeError, "'obs'"),
        ({"obs": "text"}, echod.LeafDTypeError, "'obs' is a str"),
        ({"obs": 1.0}, echod.LeafDTypeError, "'obs'"),
        ({"obs": None}, echod.StructureError, "'obs'"),
        ({"obs": [[0.0] * 3] * 2}, echod.StructureError, "'obs' is a list"),
        ({"obs": {}}, echod.StructureError, "'obs'"),
        ({"n": 128}, echod.LeafValueError, "'n' holds int8"),
        ({"n": 1.0}, echod.LeafDTypeError, "'n' holds int8, and the float"),
        ({"n": True}, echod.LeafDTypeError, "'n' holds int8, and the bool"),
        ({"n": np.int64(1)}, echod.LeafDTypeError, "'n' holds int8, and int64"),
        ({"n": np.zeros(1, np.int8)}, echod.LeafShapeError, "'n'"),
        ({"r": 1}, echod.LeafDTypeError, "'r' holds float32, and the int"),
        ({"r": 1e300}, echod.LeafValueError, "'r' holds float32"),
        ({"r": np.float64(1)}, echod.LeafDTypeError, "'r' holds float32"),
        ({"more": 1}, echod.StructureError, "'more'"),
    ],
)
def test_a_wrong_leaf_is_named(make, change, error, says):
    table = make(EXAMPLE)
    writer = table.writer()
    with pytest.raises(error, match=says) as raised:
        writer.append({**EXAMPLE, **change})
    assert isinstance(raised.value, echod.SampleError)
    assert writer.committed == 0
    writer.append(EXAMPLE)
    assert writer.committed == 1


def test_missing_and_extra_leaves_are_attributes(make):
    writer = make(EXAMPLE).writer()
    with pytest.raises(echod.StructureError) as raised:
        writer.append({"obs": EXAMPLE["obs"], "x": 1})
    assert raised.value.missing == ["n", "r"] and raised.value.extra == ["x"]


def test_leaves_with_different_numbers_of_samples_are_refused(make):
    writer = make(EXAMPLE).writer()
    many = {"obs": np.zeros((5, 2, 3), np.float32), "n": np.zeros(5, np.int8), "r": np.zeros(4, np.float32)}
    with pytest.raises(echod.LeafShapeError, match=r"'r' has shape \(5,\), and \(4,\)"):
        writer.append_many(many)
    with pytest.raises(echod.LeafShapeError, match=r"'obs' has shape \(5, 2, 3\)"):
        writer.append_many({**many, "obs": many["obs"][0]})
    with pytest.raises(echod.LeafDTypeError, match="'r'"):
        writer.append_many({**many, "r": 1.0})


@pytest.mark.parametrize("example", [{}, {"x": object()}, {"x": np.zeros(2, "U1")}, {"x": np.zeros(2, ">i4")}, {"x": None}])
def test_an_example_that_no_table_holds_is_refused(make, example):
    with pytest.raises(echod.Error):
        make(example)


def test_names_that_a_table_cannot_have(make):
    with pytest.raises(echod.InvalidSpecError, match="control"):
        make({"a\nb": 1.0})
    with pytest.raises((echod.StructureError, echod.InvalidSpecError), match="1"):
        make({1: 1.0, "1": 2.0})


def test_a_table_with_another_spec_is_a_mismatch_and_an_equal_one_is_the_same(daemon, make):
    table = make(EXAMPLE)
    again = daemon.connection.create_table(table.name, example=EXAMPLE, batch_size=4, capacity=8)
    assert again.leaves == table.leaves
    with pytest.raises(echod.SpecMismatchError) as raised:
        daemon.connection.create_table(table.name, example=EXAMPLE, batch_size=5, capacity=8)
    assert raised.value.kind == "spec_mismatch" and "batch_size" in str(raised.value)
    with pytest.raises(echod.NoSuchTableError):
        daemon.connection.table("none-of-that-name")
    with pytest.raises(echod.BudgetError):
        make({"x": np.zeros(1 << 20)}, batch_size=1024, capacity=64)


def test_nobody_listens(tmp_path):
    with pytest.raises(echod.ConnectError) as raised:
        echod.connect(tmp_path / "none.sock")
    assert isinstance(raised.value, ConnectionError) and raised.value.path.endswith("none.sock")
