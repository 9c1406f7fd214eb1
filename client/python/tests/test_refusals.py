"""What is no sample of the table is refused, by the name of its leaf, and nothing of it is written."""

import pickle
import re
import subprocess
import sys

import echod
import ml_dtypes
import numpy as np
import pytest
from echod import _local

EXAMPLE = {"obs": np.zeros((2, 3), np.float32), "n": np.int8(0), "r": np.float32(0)}
MORE = {"c": np.complex64(0), "b": False}


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
        ({"obs": np.zeros((2, 3), "datetime64[s]")}, echod.LeafDTypeError, "'obs' .* datetime64"),
        ({"obs": np.zeros((2, 3), "timedelta64[s]")}, echod.LeafDTypeError, "'obs' .* timedelta64"),
        ({"obs": np.zeros((2, 3), "f4,f4")}, echod.LeafDTypeError, "'obs'"),
        ({"obs": np.zeros((2, 3), np.longdouble)}, echod.LeafDTypeError, "'obs'"),
        ({"obs": np.zeros((2, 3), ml_dtypes.bfloat16)}, echod.LeafDTypeError, "'obs' .* bfloat16"),
        ({"obs": np.zeros((2, 3), "V4")}, echod.LeafDTypeError, "'obs'"),
        ({"obs": "text"}, echod.LeafDTypeError, "'obs' is of type str"),
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
        ({"r": np.float16(1)}, echod.LeafDTypeError, "'r' holds float32, and float16"),
        ({"c": 1e300j}, echod.LeafValueError, "'c' holds complex64"),
        ({"c": 1.0}, echod.LeafDTypeError, "'c' holds complex64, and the float"),
        ({"b": 1}, echod.LeafDTypeError, "'b' holds bool, and the int"),
        ({"b": np.uint8(1)}, echod.LeafDTypeError, "'b' holds bool, and uint8"),
        ({"more": 1}, echod.StructureError, "'more'"),
    ],
)
def test_a_wrong_leaf_is_named(make, change, error, says):
    example = {**EXAMPLE, **MORE}
    writer = make(example).writer()
    with pytest.raises(error, match=says) as raised:
        writer.append({**example, **change})
    assert isinstance(raised.value, echod.SampleError)
    assert writer.committed == 0
    writer.append(example)
    assert writer.committed == 1


def test_missing_and_extra_leaves_are_attributes(make):
    writer = make(EXAMPLE).writer()
    with pytest.raises(echod.StructureError) as raised:
        writer.append({"obs": EXAMPLE["obs"], "x": 1})
    assert raised.value.missing == ["n", "r"] and raised.value.extra == ["x"]


def test_leaves_with_different_numbers_of_samples_are_refused(make):
    writer = make(EXAMPLE).writer()
    many = {"obs": np.zeros((5, 2, 3), np.float32), "n": np.zeros(5, np.int8), "r": np.zeros(4, np.float32)}
    with pytest.raises(echod.LeafShapeError, match=r"'r' has shape \(5,\), and \(4,\).* 5 samples in leaf 'n' and 4 in this one"):
        writer.append_many(many)
    with pytest.raises(echod.LeafShapeError, match=r"'obs' has shape \(5, 2, 3\).* an axis more"):
        writer.append_many({**many, "obs": many["obs"][0]})
    with pytest.raises(echod.LeafDTypeError, match="'r'"):
        writer.append_many({**many, "r": 1.0})
    with pytest.raises(echod.LeafShapeError, match="append_many.. writes several"):
        writer.append({**EXAMPLE, "obs": many["obs"]})


@pytest.mark.parametrize("as_given", [list, tuple])
def test_samples_in_a_list_are_told_what_to_do(make, as_given):
    writer = make(EXAMPLE).writer()
    for act in (writer.append, writer.append_many):
        with pytest.raises(echod.StructureError, match=f"a {as_given.__name__} of 2 samples .* append each, or stack"):
            act(as_given([EXAMPLE, EXAMPLE]))
        with pytest.raises(echod.StructureError, match="it lacks"):
            act(as_given([1, 2]))
    assert writer.committed == 0


def test_an_int_for_a_float_is_told_how_to_write_it(make):
    writer = make(EXAMPLE).writer()
    with pytest.raises(echod.LeafDTypeError, match=r"write 1.0 or np.float32\(1\)"):
        writer.append({**EXAMPLE, "r": 1})
    with pytest.raises(echod.LeafDTypeError) as raised:
        writer.append({**EXAMPLE, "n": 1.0})
    assert "write" not in str(raised.value)


def test_a_table_that_is_not_there_is_answered_by_those_that_are(make):
    table = make(EXAMPLE)
    with pytest.raises(echod.NoSuchTableError, match="no table .nobody.: .*; there are '"):
        table.connection.table("nobody")
    with echod.local() as alone:
        with pytest.raises(echod.NoSuchTableError, match="there are no tables yet"):
            alone.table("nobody")
        for i in range(7):
            alone.create_table(f"t{i}", example=EXAMPLE, batch_size=1, capacity=1)
        with pytest.raises(echod.NoSuchTableError, match="there are 't0', 't1', 't2', 't3', 't4' and 2 more") as raised:
            alone.table("nobody")
        assert raised.value.kind == "no_such_table"


def test_a_budget_that_is_used_up_says_how_it_is_set(make):
    with pytest.raises(echod.BudgetError, match="bytes .* budget of [0-9]+ bytes.*--host-budget.*host_budget="):
        make(EXAMPLE, batch_size=1 << 20, capacity=1 << 10)


def test_a_setting_that_no_daemon_has_is_refused():
    with pytest.raises(TypeError, match="no setting 'host_bugdet': did you mean 'host_budget'"):
        echod.local(host_bugdet="1 GiB")
    with pytest.raises(TypeError, match="no setting 'socket'"):
        echod.local(socket="/tmp/other.sock")


def test_the_settings_of_a_local_daemon_are_those_of_the_daemon():
    said = subprocess.run([sys.executable, "-m", "echod", "--help"], capture_output=True, text=True, check=True).stdout
    options = {name.replace("-", "_") for name in re.findall(r"^ *(?:-\w, )?--([a-z-]+)", said, re.M)}
    assert options - {"socket", "print_config", "help", "version"} == _local._SETTINGS


@pytest.mark.parametrize(
    "example",
    [{}, {"x": object()}, {"x": np.zeros(2, "U1")}, {"x": np.zeros(2, ">i4")}, {"x": None}, {"x": np.zeros(2, "M8[s]")}, {"x": 2**70}],
)
def test_an_example_that_no_table_holds_is_refused(make, example):
    with pytest.raises(echod.Error):
        make(example)


def test_names_that_a_table_cannot_have(make):
    with pytest.raises(echod.InvalidSpecError, match="control"):
        make({"a\nb": 1.0})
    with pytest.raises((echod.StructureError, echod.InvalidSpecError), match="1"):
        make({1: 1.0, "1": 2.0})


@pytest.mark.parametrize(
    ("key", "says"),
    [("\ud800", "surrogates"), ("x" * 256, "1 to 255 bytes"), ("\u96ea" * 86, "1 to 255 bytes"), ("\x7f", "control")],
)
def test_a_key_that_makes_no_name_is_an_invalid_spec(make, key, says):
    with pytest.raises(echod.InvalidSpecError, match=says):
        make({key: 1.0})


def test_what_no_message_holds_is_an_invalid_spec(make):
    with pytest.raises(echod.InvalidSpecError, match="shorten their paths"):
        make({f"{i:0200}": 1.0 for i in range(1000)})


def test_trees_too_deep_are_errors_and_no_crash(make):
    deep = 1.0
    for _ in range(129):
        deep = {"d": deep}
    with pytest.raises(echod.InvalidSpecError, match="1 to 255 bytes"):
        make(deep)
    endless = []
    for _ in range(100_000):
        endless = [endless]
    cycle = {}
    cycle["x"] = cycle
    for bottomless in (endless, cycle):
        with pytest.raises(RecursionError):
            make({"x": 1.0, "y": bottomless})
    writer = make({"x": 1.0}).writer()
    for bottomless in (endless, cycle):
        with pytest.raises((echod.StructureError, RecursionError)):
            writer.append(bottomless)
        with pytest.raises(echod.StructureError, match="'x'"):
            writer.append({"x": bottomless})
    writer.append({"x": 2.0})


@pytest.mark.parametrize("what", ["batch_size", "capacity", "max_capacity"])
@pytest.mark.parametrize("size", [0, -1, 1 << 21, 1 << 32, 1 << 70])
def test_a_size_that_no_table_has_is_an_invalid_spec(make, what, size):
    with pytest.raises(echod.InvalidSpecError, match=f"{what} is {size}"):
        make(EXAMPLE, **{what: size})


def test_options_that_mean_nothing_are_refused(make):
    table = make(EXAMPLE)
    for prefetch in (0, -1, 257, 1 << 16, 1 << 70):
        with pytest.raises((ValueError, OverflowError), match="prefetch|int"):
            table.reader(prefetch=prefetch)
    for n in (0, -1):
        with pytest.raises(ValueError, match="one sample at least"):
            table.writer().claim(n)
    with pytest.raises(TypeError, match="list of rules"):
        make(EXAMPLE, access="group:ml=read")
    with pytest.raises(TypeError, match="list of rules"):
        table.set_access("group:ml=read")
    for options in ({"access": ["group"]}, {"pin": "always"}, {"huge_pages": "never"}):
        with pytest.raises(ValueError):
            make(EXAMPLE, **options)
    for timeout in (-1, float("nan")):
        with pytest.raises(ValueError, match="0 seconds or more"):
            table.reader().next(timeout)


def test_a_claim_for_more_than_a_batch_is_for_what_is_left_of_one(make):
    writer = make(EXAMPLE, batch_size=4).writer()
    for n in (5, 1 << 40):
        with writer.claim(n) as claim:
            assert len(claim) == 4


def test_nothing_to_write_is_no_way_around_an_error(make):
    nothing = {"obs": np.zeros((0, 2, 3), np.float32), "n": np.zeros(0, np.int8), "r": np.zeros(0, np.float32)}
    writer = make(EXAMPLE).writer()
    writer.append_many(nothing)
    assert writer.committed == 0
    with writer.claim(), pytest.raises(echod.ClaimError):
        writer.append_many(nothing)
    writer.finish()
    with pytest.raises(echod.FinishedError):
        writer.append_many(nothing)


@pytest.mark.parametrize("kind", ["latest", "replay"])
def test_a_table_of_another_kind_that_was_made_anew_is_a_mismatch_too(daemon, name, kind):
    def make(example):
        if kind == "latest":
            return daemon.connection.create_latest(name, example=example)
        return daemon.connection.create_replay(name, example=example, max_size=10)

    before = make({"a": np.float32(0)})
    before.drop()
    now = make({"a": np.int32(0)})
    attach = (before.publisher, before.latest) if kind == "latest" else (before.writer, before.reader)
    for attached in attach:
        with pytest.raises(echod.SpecMismatchError, match=r"(?s)int32.*float32"):
            attached()
    now.drop()


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


@pytest.mark.parametrize("pickled", [False, True])
def test_a_table_that_was_made_anew_with_another_spec_is_not_the_one_that_is_remembered(daemon, name, pickled):
    def make(example, batch_size=2):
        return daemon.create_table(name, example=example, batch_size=batch_size, capacity=2)

    before = make({"a": np.float32(0), "b": np.float32(1)})
    before.drop()
    for other, says in [
        ({"a": np.float32(0), "c": np.float32(1)}, "c float32"),
        ({"a": np.float32(0), "b": np.int32(1)}, "int32"),
        ({"a": np.float32(0), "b": np.zeros(1, np.float32)}, r"\[1\]"),
    ]:
        now = make(other)
        table = pickle.loads(pickle.dumps(before)) if pickled else before
        for attach in (table.writer, table.reader):
            with pytest.raises(echod.SpecMismatchError, match=says) as raised:
                attach()
            assert raised.value.kind == "spec_mismatch" and "float32" in str(raised.value)
        now.drop()
    now = make({"a": np.float32(0), "b": np.float32(1)}, batch_size=3)
    with pytest.raises(echod.SpecMismatchError, match=r"(?s)batch_size 3.*batch_size 2"):
        before.reader()
    before.writer().append({"a": 1.0, "b": 2.0})  # samples are the same
    assert now.info()["readers"] == 0
    now.drop()
