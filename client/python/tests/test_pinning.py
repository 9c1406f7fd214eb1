"""`reader(pin=True)` page-locks a table by the CUDA runtime that is found, or says everything that was tried.

The runtimes are those of `tests/fakes`, which pin for real and write down what they are asked. Whoever loads one keeps it,
so each look is a process of its own.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import echod
import numpy as np
import pytest
from echod import _reader

REPOSITORY = pathlib.Path(__file__).parents[3]
EXAMPLE = {"x": np.zeros(512), "i": 0}
PAGE = os.sysconf("SC_PAGESIZE")
# Samples in whole pages, so that what is registered is what the table holds.
BYTES = 64 * (512 * 8 + 8)


@pytest.fixture(scope="session")
def fakes():
    """The fake runtimes, built where and as the tests of the workspace build them."""
    cargo = shutil.which("cargo")
    if cargo is None:
        pytest.skip("the fake CUDA runtimes are built by cargo, which is not there")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")).absolute() / "fakes"
    target.mkdir(parents=True, exist_ok=True)
    command = [cargo, "build", "--quiet", "--locked", "--config", "profile.dev.debug=false", "--target-dir", str(target)]
    for package in ("echo-fake-cudart12", "echo-fake-cudart13"):
        command += ["--package", package]
    ours = ("RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET", "CARGO_TARGET_DIR")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    subprocess.run(command, check=True, cwd=REPOSITORY, env=environment, timeout=500)
    return {major: target / "debug" / f"libcudart{major}.so" for major in (12, 13)}


class Scene:
    """A table, directories with libraries as somebody installed them, and the processes that look at both."""

    def __init__(self, path, fakes, table):
        self.path, self.fakes, self.table = path, fakes, table
        self.journal = path / "journal"

    def put(self, major, at):
        library = self.path / at
        library.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.fakes[major], library)
        return library

    def put_wheels(self, site="site"):
        """As the wheels of CUDA 12 and 13 lie: in the namespace package `nvidia`, the versioned names alone."""
        return (
            self.put(12, f"{site}/nvidia/cuda_runtime/lib/libcudart.so.12"),
            self.put(13, f"{site}/nvidia/cu13/lib/libcudart.so.13"),
        )

    def start(self, script, *arguments, paths=("site",), **variables):
        unwanted = ("CUDA_", "CONDA_", "ECHO_", "LD_LIBRARY_PATH", "PYTHONPATH")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
        environment |= {"ECHO_FAKE_CUDA_JOURNAL": str(self.journal), "CUDA_HOME": str(self.path / "no-toolkit")}
        environment |= {"PYTHONPATH": os.pathsep.join(str(self.path / path) for path in paths)}
        command = [sys.executable, "-c", PREPARE + script, self.table.connection.path, self.table.name]
        return subprocess.Popen(
            [*command, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=environment | {name: str(value) for name, value in variables.items()},
        )  # fmt: skip

    def run(self, script, *arguments, **options):
        """What a process says, a value a line."""
        with self.start(script, *arguments, **options) as process:
            said, _ = process.communicate(timeout=60)
        assert process.returncode == 0, said
        return [json.loads(line) for line in said.splitlines()]

    def calls(self):
        """How often each function was called, with what it answered."""
        called = re.findall(r"^\d+ \S+ (cuda\w+)(?: .*)? -> (\d+)$", self.text(), re.M)
        return {f"{name} {code}": called.count((name, code)) for name, code in called}

    def registrations(self):
        """What the library counted last."""
        return int(re.findall(r" live registrations=(\d+)", self.text())[-1])

    def text(self):
        return self.journal.read_text() if self.journal.exists() else ""


PREPARE = """
import ctypes, gc, json, sys
import numpy as np
import echod
table = echod.connect(sys.argv[1]).table(sys.argv[2])
say = lambda *values: print(json.dumps(values if len(values) > 1 else values[0]), flush=True)
def refused(error):
    say(type(error).__name__, str(error), error.code, error.name, error.probes)
def live(library):
    ctypes.CDLL(library).echo_fake_live()
"""

PINS = """
try:
    reader = table.reader(pin=sys.argv[3] if len(sys.argv) > 3 else True)
except echod.PinError as error:
    refused(error)
else:
    say(reader.pinned._asdict())
"""


@pytest.fixture
def scene(tmp_path, fakes, make):
    table = make(EXAMPLE, batch_size=8, capacity=8)
    writer = table.writer()
    for i in range(64):
        writer.append({"x": np.full(512, float(i)), "i": i})
    return Scene(tmp_path, fakes, table)


def test_what_is_pinned_is_reported_and_unpinned_with_the_last_view(scene):
    _, newest = scene.put_wheels()
    said = scene.run(
        PINS
        + """
say(repr(reader))
kept = [reader.next(60) for _ in range(2)]
given = kept[0].dlpack()
say([array.__dlpack_device__() for array in given.values()], repr(given["i"]))
array = np.from_dlpack(given["x"])
say(array[:, 0].tolist(), bool(array.flags.writeable), np.shares_memory(array, kept[0].data["x"]))
on_cpu = np.from_dlpack(given["x"], device="cpu")
say(bool((on_cpu == array).all()), [m for m in sys.modules if m.startswith("nvidia")])
library = reader.pinned.library
view = kept[1].data["i"][2:]
del reader, kept, given, array, on_cpu
gc.collect()
live(library)
say(view.tolist())
del view
live(library)
"""
    )
    assert said[0] == {"bytes": BYTES, "library": str(newest), "pieces": 2}
    assert said[1].endswith(f"holds 0 of 2 batches; {BYTES / 1024:.0f} KiB page-locked by {newest}>")
    assert said[2] == [[[3, 0], [3, 0]], "<echod.DLPackArray of batch 0: i int64[], page-locked>"]
    assert said[3] == [[float(i) for i in range(8)], False, True]
    assert said[4] == [True, []], "and nothing of NVIDIA's was imported"
    assert said[5] == [10, 11, 12, 13, 14, 15]
    counted = re.findall(r" live registrations=(\d+)", scene.text())
    assert counted[:2] == ["2", "0"], "while a view was alive, and then"
    assert scene.calls()["cudaHostRegister 0"] == scene.calls()["cudaHostUnregister 0"] == 2


def test_whoever_does_not_ask_for_it_loads_nothing(scene):
    scene.put_wheels()
    said = scene.run(
        """
reader = table.reader()
say(reader.pinned, reader.next(60).dlpack()["x"].__dlpack_device__())
say([line for line in open("/proc/self/maps") if "cuda" in line])
"""
    )
    assert said == [[None, [1, 0]], []] and scene.text() == ""


def test_every_portion_of_the_namespace_package_is_looked_at_in_the_order_of_the_path(scene):
    """Wheels in two directories, as a virtual environment over another one has them."""
    newest = scene.put(13, "b/nvidia/cu13/lib/libcudart.so.13")
    (scene.path / "a/nvidia/nccl").mkdir(parents=True)
    [pinned] = scene.run(PINS, paths=("a", "b"))
    assert pinned["library"] == str(newest)
    nearest = scene.put(12, "a/nvidia/cuda_runtime/lib/libcudart.so.12")
    [pinned] = scene.run(PINS, paths=("a", "b"))
    assert pinned["library"] == str(nearest)


def test_a_package_that_is_no_namespace_is_found_and_not_run(scene):
    library = scene.put(12, "site/nvidia/cuda_runtime/lib/libcudart.so.12")
    (scene.path / "site/nvidia/__init__.py").write_text("raise SystemExit('it was imported')")
    assert scene.run(PINS)[0]["library"] == str(library)


def test_a_finder_that_fails_is_no_reason_to_fail(monkeypatch):
    class Broken:
        def find_spec(self, name, *_):
            if name == "nvidia":
                raise ImportError("it is broken")

    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    assert _reader.vendor_roots() == []
    monkeypatch.setitem(sys.modules, "nvidia", type(sys)("nvidia"))  # whose __spec__ is None
    assert _reader.vendor_roots() == []


def test_a_file_that_is_named_is_the_one(scene):
    older, _ = scene.put_wheels()
    [pinned] = scene.run(PINS, older)
    assert pinned["library"] == str(older)
    [pinned] = scene.run(PINS, ECHO_CUDART=older)
    assert pinned["library"] == str(older)


def test_what_is_loaded_comes_first(scene):
    scene.put_wheels()
    bundled = scene.put(12, "torch/lib/libcudart-9335f6a2.so.12")
    [pinned] = scene.run(f"ctypes.CDLL({str(bundled)!r})\n" + PINS)
    assert pinned["library"] == str(bundled)


RUNGS = ["override", "already loaded", "installed wheels", "conda prefix", "loader", "toolkit", "driver"]


def test_without_any_runtime_the_error_has_everything_that_was_tried(scene):
    [[name, message, code, symbol, probes]] = scene.run(PINS)
    assert (name, code, symbol) == ("PinError", None, None)
    assert message.startswith("no CUDA library was found that can page-lock memory: install")
    assert sorted({rung for rung, _, _ in probes}) == sorted(RUNGS)
    for rung, what, reason in probes:
        assert reason and f"{rung}: {what}: {reason}" in message


def test_what_cannot_be_loaded_says_why(scene):
    broken = scene.path / "site/nvidia/cu13/lib/libcudart.so.13"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"no library")
    [[_, message, _, _, probes]] = scene.run(PINS)
    [reason] = {reason for rung, what, reason in probes if what == str(broken)}
    assert "file too short" in reason or "invalid ELF header" in reason
    assert f"{broken}: {reason}" in message
    [[_, message, _, _, probes]] = scene.run(PINS, "/nowhere/libcudart.so")
    assert [(rung, what) for rung, what, _ in probes] == [("override", "/nowhere/libcudart.so")]


@pytest.mark.parametrize(
    ("fail", "code", "name", "says"),
    [
        ({"ECHO_FAKE_CUDA_DEVICES": 0}, 100, "cudaErrorNoDevice", "no GPU is visible to this process"),
        ({"ECHO_FAKE_CUDA_DRIVER": 0}, 35, "cudaErrorInsufficientDriver", "no NVIDIA driver was found"),
        ({"ECHO_FAKE_CUDA_FAIL": "cudaHostRegister:2:2"}, 2, "cudaErrorMemoryAllocation", "does not page-lock array 1"),
    ],
)
def test_cudas_errors_have_their_numbers_and_leave_nothing(scene, fail, code, name, says):
    scene.put(12, "site/nvidia/cuda_runtime/lib/libcudart.so.12")
    script = PINS + 'say(table.info()["readers"], table.reader().next(60).data["i"].tolist())'
    [[_, message, got, symbol, probes], [readers, data]] = scene.run(script, **fail)
    assert (got, symbol) == (code, name) and says in message
    assert any(rung == "installed wheels" for rung, _, _ in probes)
    assert readers == 0 and data == list(range(8)), "and the table is as it was"
    assert scene.calls().get("cudaHostRegister 0", 0) == scene.calls().get("cudaHostUnregister 0", 0)


def test_a_latest_table_is_pinned_and_its_values_say_so(scene, make_latest):
    scene.put_wheels()
    scene.table = make_latest({"x": np.zeros(512)}, capacity=2)
    scene.table.publisher().publish({"x": np.full(512, 7.0)})
    said = scene.run(
        """
latest = table.latest(pin=True)
say(latest.pinned._asdict(), repr(latest))
value = latest.get()
given = value.dlpack()["x"]
say(given.__dlpack_device__(), repr(given), float(np.from_dlpack(given).sum()))
library = latest.pinned.library
del latest, given
gc.collect()
live(library)
del value
live(library)
"""
    )
    pinned, shown = said[0]
    assert pinned["bytes"] == 2 * PAGE and shown.endswith(f"; 8.0 KiB page-locked by {pinned['library']}>")
    assert said[1] == [[3, 0], "<echod.DLPackArray of value 1: x float64[512], page-locked>", 7.0 * 512]
    counted = re.findall(r" live registrations=(\d+)", scene.text())
    assert counted[:2] == ["1", "0"], "while the value was held, and then"


def test_what_a_sampler_gathers_into_is_pinned_and_its_batches_say_so(scene, make_replay):
    scene.put_wheels()
    scene.table = make_replay({"x": np.zeros(512)})
    scene.table.writer().append({"x": np.full(512, 7.0)})
    said = scene.run(
        """
reader = table.reader(batch_size=2, prefetch=1, pin=True)
say(reader.pinned._asdict(), repr(reader))
batch = reader.next(60)
given = batch.dlpack()["x"]
say(given.__dlpack_device__(), repr(given), float(np.from_dlpack(given).sum()))
library = reader.pinned.library
del reader, given
gc.collect()
live(library)
del batch
live(library)
"""
    )
    pinned, shown = said[0]
    assert pinned["bytes"] == 4 * PAGE and shown.endswith(f"; 16.0 KiB page-locked by {pinned['library']}>")
    assert said[1] == [[3, 0], "<echod.DLPackArray of sampled batch 1: x float64[512], page-locked>", 7.0 * 1024]
    counted = re.findall(r" live registrations=(\d+)", scene.text())
    assert counted[:2] == ["1", "0"], "while the batch was held, and then"


def test_a_pickled_reader_pins_where_it_is_attached_again(scene):
    scene.put_wheels()
    again = """
import pickle
again = pickle.loads(pickle.dumps(reader))
say(again.pinned.bytes, again.next(60).dlpack()["x"].__dlpack_device__())
"""
    first, second = scene.run(PINS + again)
    assert first["bytes"] == BYTES and second == [BYTES, [3, 0]]


HOLDS = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
say("asks")
try:
    reader = table.reader(pin=True)
except BaseException as error:
    say(type(error).__name__)
else:
    say(reader.pinned.bytes)
"""


@pytest.fixture
def turns(scene, until):
    """Two processes that want to page-lock: the one that has the turn, for as long as the test wants, and one that waits."""
    scene.put_wheels()
    fifo = scene.path / "hold"  # which a registration opens, and nobody else
    os.mkfifo(fifo)
    processes = [scene.start(HOLDS, ECHO_FAKE_CUDA_HOLD=fifo) for _ in range(2)]
    [wait] = until(lambda: [wait for wait in scene.table.why() if "its turn to page-lock" in wait], "nobody waits")
    waiter, holder = re.fullmatch(r".*?\(?pid (\d+)\)? waits for .*: held by .* \(pid (\d+)\): has the turn .*", wait).groups()
    processes = {process.pid: process for process in processes}
    yield processes[int(holder)], processes[int(waiter)], fifo
    for process in processes.values():
        process.kill()
        process.communicate()


def said(process):
    return [json.loads(line) for line in process.communicate(timeout=60)[0].splitlines()]


def test_an_interrupt_ends_the_wait_for_the_turn(turns, scene, until):
    first, second, _ = turns
    second.send_signal(signal.SIGINT)
    assert said(second) == ["asks", "KeyboardInterrupt"]
    until(lambda: not scene.table.why(), "its place in the line is not given up")
    assert first.poll() is None


def test_the_turn_comes_when_the_one_before_dies(turns, until):
    first, second, fifo = turns
    first.kill()
    first.wait(60)
    # Each of its registrations waits for somebody who opens the pipe to write.
    while second.poll() is None:
        until(lambda: second.poll() is not None or opened(fifo), "it does not register")
    assert said(second) == ["asks", BYTES]


def opened(fifo):
    try:
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False  # nobody reads
    return True


def test_the_wait_for_the_turn_ends_when_the_daemon_is_gone(tmp_path, fakes, until):
    with echod.local() as daemon:
        table = daemon.create_table("t", example=EXAMPLE, batch_size=8, capacity=8)
        scene = Scene(tmp_path, fakes, table)
        scene.put_wheels()
        fifo = tmp_path / "hold"
        os.mkfifo(fifo)
        processes = [scene.start(HOLDS, ECHO_FAKE_CUDA_HOLD=fifo) for _ in range(2)]
        until(lambda: any("its turn" in wait for wait in table.why()), "nobody waits")
        os.kill(daemon.pid, signal.SIGKILL)
        # Both wait in what comes first for them: one for the daemon, the other one for the pipe.
        ended = until(lambda: next((p for p in processes if p.poll() is not None), None), "both hang")
        assert said(ended) == ["asks", "GoneError"]
        for process in processes:
            process.kill()
            process.communicate()
