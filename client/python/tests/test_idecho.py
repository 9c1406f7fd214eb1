"""`echod.compat.idecho` does what id-echo does, and raises where that would go wrong.

The tests with `api` are run with id-echo itself too, where it is installed.
"""

import collections
import contextlib
import gc
import importlib
import importlib.metadata
import inspect
import json
import multiprocessing
import os
import pathlib
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import echod
import numpy as np
import optree
import pytest
from echod.compat import idecho

OURS, THEIRS = "echod.compat.idecho", "echo"
EXAMPLE = {"obs": np.zeros(2, np.float32), "reward": np.zeros(1, np.float32)}
Point = collections.namedtuple("Point", "x y")


@pytest.fixture(params=[OURS, THEIRS])
def api(request):
    if request.param == THEIRS:
        try:
            importlib.metadata.version("id-echo")
        except importlib.metadata.PackageNotFoundError:
            pytest.skip("id-echo is not installed")
    return importlib.import_module(request.param)


@pytest.fixture
def closing():
    """Closes what was made, in the end."""
    with contextlib.ExitStack() as stack:
        yield lambda made: stack.enter_context(contextlib.closing(made))


def sample(i):
    return {"obs": np.full(2, i, np.float32), "reward": np.full(1, i, np.float32)}


def numbers(given):
    return given.batch["obs"][:, 0].tolist()


def serve(api, closing, batch_size=2, **options):
    server = closing(api.Server(EXAMPLE, batch_size, api.TcpTransport(0), **options))
    server.start()
    return server


def until(is_so):
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def later(act):
    """Does it in a thread; what it returned or raised."""
    ended = []

    def run():
        try:
            ended.append(act())
        except BaseException as error:  # noqa: BLE001
            ended.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def result():
        thread.join(30)
        assert ended, "it hangs"
        return ended[0]

    return result


@contextlib.contextmanager
def answering(said):
    """A port that says so, once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            asking, _ = listener.accept()
            asking.sendall(said)
            asking.close()

        thread = threading.Thread(target=answer)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


# What both do.


@pytest.mark.parametrize("batch_size", [1, 3])
def test_samples_come_out_in_batches_in_their_order(api, closing, batch_size):
    server = closing(api.Server(EXAMPLE, batch_size))
    for first in (0, 10):
        for i in range(batch_size):
            server.submit(sample(first + i))
        given = server.sample()
        assert given is not None and given._fields == ("batch", "info")
        batch, _ = given
        assert batch["obs"].shape == (batch_size, 2) and batch["reward"].shape == (batch_size, 1)
        assert numbers(given) == [first + i for i in range(batch_size)]
        assert batch["obs"].flags.c_contiguous and not batch["obs"].flags.writeable
        del batch, given


def test_nested_structures_stay(api, closing):
    def tree(i):
        return {
            "a": (np.full(2, i, np.float32), [np.full((1,), i, np.int64)]),
            "p": Point(np.full((2, 3), i, np.uint8), {"deep": np.full((), i % 2, bool)}),
            "none": None,
        }

    server = closing(api.Server(tree(0), 2))
    server.submit(tree(1))
    server.submit(tree(2))
    batch = server.sample().batch
    assert optree.tree_structure(batch) == optree.tree_structure(tree(0))
    assert batch["a"][1][0].tolist() == [[1], [2]] and batch["p"].y["deep"].tolist() == [True, False]


@pytest.mark.parametrize(
    "dtype", "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64 complex64 complex128".split()
)
def test_dtypes_and_shapes_stay(api, closing, dtype):
    shapes = [(), (1,), (2, 3), (0, 2)]
    values = [np.arange(int(np.prod(shape)) + 1)[1:].reshape(shape).astype(dtype) for shape in shapes]
    server = closing(api.Server(values, 1))
    server.submit(values)
    for given, value in zip(server.sample().batch, values):
        assert given.dtype == value.dtype and given.shape == (1, *value.shape) and given.tobytes() == value.tobytes()


def test_a_sample_may_be_one_array_and_need_not_lie_in_a_row(api, closing):
    server = closing(api.Server(np.zeros(3), 1))
    server.submit(np.arange(6.0)[::-2])
    assert server.sample().batch.tolist() == [[5, 3, 1]]


def test_an_iteration_ends_when_the_server_is_closed(api, closing):
    server = closing(api.Server(EXAMPLE, 2))
    for i in range(5):
        server.submit(sample(i))
    server.close()
    assert [numbers(given) for given in server.dataset_iter()] == [[0, 1], [2, 3]]
    assert server.sample() is None and list(server.dataset_iter()) == []
    server.close()


def test_copies_are_ones_own(api, closing):
    server = closing(api.Server(EXAMPLE, 1, num_buffers=2))
    copies = []
    batches = server.dataset_iter(copy=True)
    for i in range(6):
        server.submit(sample(i))
        copies.append(next(batches).batch["obs"])
    assert [copy[0, 0] for copy in copies] == list(range(6)) and copies[0].flags.writeable
    with pytest.raises(TypeError):
        server.dataset_iter(True)


def test_close_ends_a_sample_that_waits(api, closing):
    server = serve(api, closing)
    threading.Timer(0.3, server.close).start()
    assert server.sample() is None


def test_ports_are_told_and_wrong_calls_are_runtime_errors(api, closing):
    without = closing(api.Server(EXAMPLE, 2))
    for call in (without.start, lambda: without.port):
        with pytest.raises(RuntimeError, match="no transport configured"):
            call()
    server = closing(api.Server(EXAMPLE, 2, api.TcpTransport(0)))
    with pytest.raises(RuntimeError, match="not started"):
        server.port  # noqa: B018
    server.start()
    assert 0 < server.port < 65536
    with pytest.raises(RuntimeError, match="failed to start transport"):
        server.start()
    other = closing(api.Server(EXAMPLE, 2, api.TcpTransport(server.port)))
    with pytest.raises(RuntimeError, match="in use"):
        other.start()
    port = server.port
    server.close()
    with pytest.raises(RuntimeError, match="not started"):
        server.port  # noqa: B018
    other.start()
    assert other.port == port
    for number in (-1, 70000):
        with pytest.raises(OverflowError):
            api.TcpTransport(number)


def test_clients_send(api, closing):
    server = serve(api, closing, num_buffers=4)
    clients = [closing(api.TcpClient("127.0.0.1", server.port, EXAMPLE)) for _ in range(2)]
    for i in range(4):
        for first, client in zip((0, 10), clients):
            client.send(sample(first + i))
    for client in clients:
        client.wait()
    seen = sum((numbers(server.sample()) for _ in range(4)), [])
    assert sorted(seen) == [0, 1, 2, 3, 10, 11, 12, 13]
    assert [i for i in seen if i < 10] == [0, 1, 2, 3]


def test_a_closed_client_says_so(api, closing):
    server = serve(api, closing)
    client = api.TcpClient("localhost", server.port, EXAMPLE, max_inflight_msgs=4)
    client.close()
    client.close()
    client.wait()
    with pytest.raises(api.ConnectionClosedError, match="closed"):
        client.send(sample(0))
    assert issubclass(api.ConnectionClosedError, ConnectionError)


def test_a_client_of_a_closed_server_is_told(api, closing):
    server = serve(api, closing)
    client = closing(api.TcpClient("127.0.0.1", server.port, EXAMPLE))
    port = server.port
    server.close()

    def is_told():
        try:
            client.send(sample(0))
        except api.ConnectionClosedError:
            return True
        return False

    until(is_told)
    with pytest.raises(ConnectionError):
        closing(api.TcpClient("127.0.0.1", port, EXAMPLE))


def test_clients_that_find_nobody(api, closing):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        api.TcpClient("127.0.0.1", port, EXAMPLE)


@pytest.mark.parametrize(
    "other",
    [
        {**EXAMPLE, "obs": np.zeros(2)},
        {**EXAMPLE, "obs": np.zeros((1, 2), np.float32)},
        {"obs": EXAMPLE["obs"]},
        {**EXAMPLE, "more": np.zeros(1)},
    ],
)
def test_clients_with_another_example_are_refused(api, closing, other):
    server = serve(api, closing)
    with pytest.raises(ValueError, match="Server spec mismatch"):
        api.TcpClient("127.0.0.1", server.port, other)


def test_examples_are_of_arrays(api, closing):
    server = serve(api, closing)
    for example in ({"x": 1.0}, {"x": np.float32(1)}):
        with pytest.raises(TypeError, match="must be numpy arrays"):
            api.Server(example, 2)
        with pytest.raises(TypeError, match="must be numpy arrays"):
            api.TcpClient("127.0.0.1", server.port, example)


UNMEASURED = "cas_success_total cas_failure_total reservation_retries_total".split()
QUEUES = "push_blocked_count queue_depth_sum queue_depth_max".split()
HISTOGRAMS = "drain_round memcpy queue_dwell".split()


def test_the_counters_count(api, closing):
    server = serve(api, closing, num_buffers=4)
    with contextlib.closing(api.TcpClient("127.0.0.1", server.port, EXAMPLE)) as client:
        for i in range(4):
            client.send(sample(i))
        seen = numbers(server.sample()) + numbers(server.sample())
        assert seen == [0, 1, 2, 3]
        for i in range(5):
            server.submit(sample(i))
        info = server.sample().info
        assert info.active_connections == 1 and info.samples_inserted_total == 4
        assert info.store_size == 3 and info.notify_count == 4
        server.reset_histograms()
        info = server.sample().info
        assert info.samples_inserted_total == 4 and info.store_size == 1 and info.notify_count == 4
        for name in UNMEASURED + (QUEUES if api is idecho else []):
            assert getattr(info, name) == 0, name
        for name in HISTOGRAMS:
            for field in "count min_ns max_ns mean_ns p50_ns p90_ns p99_ns".split():
                assert getattr(getattr(info, name), field) == 0, (name, field)
        with pytest.raises(AttributeError):
            info.store_size = 1


def send_from_elsewhere(module, port, first):
    client = importlib.import_module(module).TcpClient("127.0.0.1", port, EXAMPLE)
    for i in range(4):
        client.send(sample(first + i))
    client.wait()
    client.close()


def test_clients_in_other_processes_send(api, closing):
    server = serve(api, closing)
    spawn = multiprocessing.get_context("spawn")
    workers = [
        spawn.Process(target=send_from_elsewhere, args=(api.__name__, server.port, first), daemon=True) for first in (0, 10)
    ]
    for worker in workers:
        worker.start()
    seen = sum((numbers(server.sample()) for _ in range(4)), [])
    assert sorted(seen) == [0, 1, 2, 3, 10, 11, 12, 13]
    for worker in workers:
        worker.join(30)
        assert worker.exitcode == 0


SCALES = {
    "steps": {"obs": np.zeros((3, 2), np.float32), "reward": np.zeros(3, np.float32)},
    "last": {"obs": np.zeros((1, 2), np.float32)},
    "episode": {"won": np.zeros((), bool), "goal": np.zeros(4, np.float32)},
}


def test_trajectories_of_several_time_scales(api):
    rollout = api.TrajectoryAccumulator(SCALES)
    for round_ in (0, 10):
        rollout.add("steps", {"obs": np.full(2, round_, np.float32), "reward": np.float32(round_)})
        rollout.add("steps", {"obs": np.full((1, 2), round_ + 1, np.float32), "reward": np.full(1, round_ + 1, np.float32)})
        rollout.add("steps", {"obs": np.full(2, round_ + 2, np.float32), "reward": round_ + 2.0})
        rollout.add("last", {"obs": np.full((2,) if round_ else (1, 2), round_ + 3, np.float32)})
        rollout.add("episode", {"won": np.bool_(True), "goal": np.full((1, 4), round_, np.float32)})
        built = rollout.build()
        played = [round_, round_ + 1, round_ + 2]
        assert built["steps"]["obs"][:, 1].tolist() == played and built["steps"]["reward"].tolist() == played
        assert built["last"]["obs"].tolist() == [[round_ + 3] * 2]
        assert built["episode"]["won"].shape == () and built["episode"]["won"]
        assert built["episode"]["goal"].tolist() == [round_] * 4
        assert built["steps"]["obs"].dtype == np.float32
    # The arrays are its own, and so is what is built.
    rollout.add("last", {"obs": np.full(2, 99, np.float32)})
    assert built["last"]["obs"].tolist() == [[99, 99]]


def test_trajectories_have_so_many_items(api):
    rollout = api.TrajectoryAccumulator(SCALES)
    rollout.add("last", {"obs": np.zeros(2, np.float32)})
    with pytest.raises(IndexError, match="'last'"):
        rollout.add("last", {"obs": np.zeros(2, np.float32)})
    for _ in range(3):
        rollout.add("steps", {"obs": np.zeros(2, np.float32), "reward": np.float32(0)})
    with pytest.raises(IndexError, match="'steps'"):
        rollout.add("steps", {"obs": np.zeros(2, np.float32), "reward": np.float32(0)})
    rollout.reset()
    rollout.add("last", {"obs": np.zeros(2, np.float32)})
    with pytest.raises(KeyError, match="Unknown timescale 'nothing'"):
        rollout.add("nothing", {})
    with pytest.raises(ValueError):
        rollout.add("steps", {"obs": np.zeros(5, np.float32), "reward": np.float32(0)})
    with pytest.raises(ValueError):
        rollout.add("steps", {"obs": np.zeros(2, np.float32)})


def test_descriptions_of_trajectories_that_make_no_sense(api):
    with pytest.raises(TypeError, match="dict"):
        api.TrajectoryAccumulator([np.zeros(3)])
    with pytest.raises(ValueError, match="same leading dimension"):
        api.TrajectoryAccumulator({"a": {"x": np.zeros((3, 1)), "y": np.zeros((4, 1))}})
    with pytest.raises(ValueError, match="no array leaves"):
        api.TrajectoryAccumulator({"a": {}})


def test_a_trajectory_is_a_sample(api, closing):
    rollout = api.TrajectoryAccumulator({"steps": np.zeros((2, 3)), "end": np.zeros(())})
    server = closing(api.Server({"steps": np.zeros((2, 3)), "end": np.zeros(())}, 1, api.TcpTransport(0)))
    server.start()
    client = closing(api.TcpClient("127.0.0.1", server.port, {"steps": np.zeros((2, 3)), "end": np.zeros(())}))
    rollout.add("steps", np.full(3, 1.0))
    rollout.add("steps", np.full(3, 2.0))
    rollout.add("end", np.float64(3))
    client.send(rollout.build())
    batch = server.sample().batch
    assert batch["steps"][0].tolist() == [[1] * 3, [2] * 3] and batch["end"].tolist() == [3]


def test_the_names_and_signatures_are_those_of_id_echo(api):
    assert set(api.__all__) <= set(idecho.__all__)

    def parameters(of):
        return [(one.name, one.default, one.kind) for one in inspect.signature(of).parameters.values()]

    for name in "Server TcpClient TcpTransport TrajectoryAccumulator".split():
        ours, theirs = getattr(idecho, name), getattr(api, name)
        if name != "TcpTransport":  # which has none to look at
            assert parameters(ours) == parameters(theirs), name
        for method in (method for method in dir(theirs) if not method.startswith("_")):
            assert hasattr(ours, method), (name, method)
            if callable(getattr(theirs, method)):
                assert parameters(getattr(ours, method)) == parameters(getattr(theirs, method)), (name, method)
    fields = {name for name in dir(api.SampleInfo) if not name.startswith("_")}
    assert fields == {name for name in dir(idecho.SampleInfo) if not name.startswith("_")}
    assert {name for name in dir(api.HistSnapshot) if not name.startswith("_")} <= set(dir(idecho.HistSnapshot))


# What differs, as the module's documentation says.


def test_views_stay_valid_and_hold_their_part_of_the_ring(closing):
    server = closing(idecho.Server(EXAMPLE, 1, num_buffers=2))
    held = []
    for i in range(2):
        server.submit(sample(i))
        held.append(server.sample())
    waiting = later(lambda: server.submit(sample(2)))
    with pytest.raises(echod.AllHeldError, match="holds all 2"):
        server.sample()
    assert [numbers(given) for given in held] == [[0], [1]]
    held.pop(0)
    assert waiting() is None
    assert numbers(server.sample()) == [2] and numbers(held[0]) == [1]


def test_views_outlive_the_server():
    server = idecho.Server(EXAMPLE, 1)
    server.submit(sample(7))
    given = server.sample()
    server.close()
    del server
    gc.collect()
    assert numbers(given) == [7] and given.info.notify_count == 1


def test_an_iteration_keeps_no_batch(closing):
    server = closing(idecho.Server(EXAMPLE, 1, num_buffers=2))
    batches = server.dataset_iter()
    for i in range(5):
        server.submit(sample(i))
        assert numbers(next(batches)) == [i]
        assert server._reader.held == 0


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"obs": np.zeros(2, np.int32)}, echod.LeafDTypeError),
        ({"obs": np.zeros(2, np.float64)}, echod.LeafDTypeError),
        ({"obs": np.zeros((2, 1), np.float32)}, echod.LeafShapeError),
        ({"obs": np.zeros(1, np.float32), "reward": np.zeros(2, np.float32)}, echod.LeafShapeError),
        ({"more": np.zeros(1, np.float32)}, echod.StructureError),
        ({"reward": 1.0}, echod.LeafDTypeError),
    ],
)
def test_what_is_no_sample_is_refused(closing, change, error):
    server = serve(idecho, closing)
    client = closing(idecho.TcpClient("127.0.0.1", server.port, EXAMPLE))
    for write in (server.submit, client.send):
        with pytest.raises(error):
            write({**sample(0), **change})
        with pytest.raises(echod.StructureError):
            write({"obs": sample(0)["obs"]})
    server.submit(sample(1))
    client.send(sample(2))
    assert numbers(server.sample()) == [1, 2]


@pytest.mark.parametrize(
    "other",
    [
        {**EXAMPLE, "obs": np.zeros(2, np.int32)},
        {"o": EXAMPLE["obs"], "r": EXAMPLE["reward"]},
    ],
)
def test_clients_whose_example_is_of_the_same_size_alone_are_refused(closing, other):
    server = serve(idecho, closing)
    with pytest.raises(echod.SpecMismatchError, match="int32|absent"):
        idecho.TcpClient("127.0.0.1", server.port, other)


@pytest.mark.parametrize("dtype", ["U2", "S2", object, "datetime64[s]", ">f4"])
def test_what_has_no_meaning_elsewhere_is_refused(dtype):
    with pytest.raises(echod.LeafDTypeError, match="'x'"):
        idecho.Server({"x": np.zeros(2, dtype)}, 2)


def test_wrong_numbers_are_value_errors(closing):
    for arguments in ({"batch_size": 0}, {"batch_size": 2, "num_buffers": 1}):
        with pytest.raises(ValueError, match="or more"):
            idecho.Server(EXAMPLE, **arguments)
    with pytest.raises(ValueError):
        idecho.Server({}, 2)
    with pytest.raises(ValueError, match="max_inflight_msgs"):
        idecho.TcpClient("127.0.0.1", serve(idecho, closing).port, EXAMPLE, 0)


def test_a_sample_that_was_sent_is_in_its_batch(closing):
    server = serve(idecho, closing)
    client = idecho.TcpClient("127.0.0.1", server.port, EXAMPLE)
    client.send(sample(1))
    client.send(sample(2))
    client.close()
    server.close()
    assert numbers(server.sample()) == [1, 2] and server.sample() is None


@pytest.mark.parametrize("who", ["client", "server"])
@pytest.mark.parametrize("call", ["send", "submit"])
def test_close_ends_one_that_waits_for_room(closing, who, call):
    server = serve(idecho, closing, batch_size=1, num_buffers=2)
    client = idecho.TcpClient("127.0.0.1", server.port, EXAMPLE)
    for i in range(2):
        client.send(sample(i))
    write = {"send": client.send, "submit": server.submit}[call]
    waiting = later(lambda: write(sample(2)))
    until(lambda: any(member["waits"] for member in server._table.info()["members"] if member["writer"]))
    if who == "client" and call == "send":
        client.close()
    else:
        server.close()
    assert isinstance(waiting(), idecho.ConnectionClosedError)
    server.close()
    assert [numbers(given) for given in server.dataset_iter()] == [[0], [1]]


def test_a_closed_server_takes_nothing_and_does_not_start(closing):
    server = serve(idecho, closing)
    server.close()
    with pytest.raises(idecho.ConnectionClosedError):
        server.submit(sample(0))
    with pytest.raises(RuntimeError, match="closed"):
        server.start()


def test_a_daemon_that_goes_is_no_end_of_the_samples(closing):
    server = serve(idecho, closing)
    client = closing(idecho.TcpClient("127.0.0.1", server.port, EXAMPLE))
    waiting = later(server.sample)
    os.kill(server._daemon.pid, signal.SIGKILL)
    error = waiting()
    assert isinstance(error, (echod.GoneError, echod.ClosedError))
    # What was granted can be filled; then it is told.
    with pytest.raises(idecho.ConnectionClosedError):
        for _ in range(1000):
            client.send(sample(0))


SERVES = """
import sys
import numpy as np
from echod.compat.idecho import Server, TcpTransport
server = Server({"obs": np.zeros(2, np.float32), "reward": np.zeros(1, np.float32)}, 2, TcpTransport(0))
server.start()
print(server.port, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["kill", "exit"])
def test_a_server_whose_process_ends_is_gone(closing, how):
    with subprocess.Popen(
        [sys.executable, "-c", SERVES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        port = int(process.stdout.readline())
        client = closing(idecho.TcpClient("127.0.0.1", port, EXAMPLE))
        client.send(sample(0))
        if how == "kill":
            process.kill()
        process.communicate(timeout=30)
    with pytest.raises(idecho.ConnectionClosedError):
        for _ in range(1000):
            client.send(sample(0))
    with pytest.raises(ConnectionRefusedError):
        idecho.TcpClient("127.0.0.1", port, EXAMPLE)


def test_a_server_that_nobody_has_any_more_is_gone(closing):
    server = idecho.Server(EXAMPLE, 2, idecho.TcpTransport(0))
    server.start()
    port, pid = server.port, server._daemon.pid
    del server
    gc.collect()
    until(lambda: not os.path.exists(f"/proc/{pid}"))
    with pytest.raises(ConnectionRefusedError):
        idecho.TcpClient("127.0.0.1", port, EXAMPLE)


@pytest.mark.parametrize("call", ["sample", "send"])
def test_an_interrupt_ends_a_wait(closing, call):
    server = serve(idecho, closing, batch_size=1, num_buffers=2)
    client = closing(idecho.TcpClient("127.0.0.1", server.port, EXAMPLE))
    if call == "send":
        for i in range(2):
            client.send(sample(i))
    with pytest.raises(KeyboardInterrupt):
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        server.sample() if call == "sample" else client.send(sample(2))


def test_hosts_that_are_this_machine(closing):
    server = serve(idecho, closing)
    for host in ("localhost", "127.0.0.1", "127.1.2.3", "0.0.0.0", ""):
        closing(idecho.TcpClient(host, server.port, EXAMPLE))
    # Of the addresses that are for documentation, no machine has one.
    with pytest.raises(idecho.RemoteHostError, match="one") as raised:
        idecho.TcpClient("192.0.2.1", server.port, EXAMPLE)
    assert raised.value.host == "192.0.2.1" and isinstance(raised.value, ValueError)
    assert not isinstance(raised.value, ConnectionError)
    with pytest.raises(socket.gaierror):
        idecho.TcpClient("no-such-host.invalid", server.port, EXAMPLE)


@pytest.mark.parametrize(
    ("said", "says"),
    [(b"ECHO\x01\x00\x00\x00\x00", "id-echo's own"), (b"SSH-2.0\r\n", "something else"), (b"[1]\n", "else"), (b"", "else")],
)
def test_a_port_that_is_somebody_elses(said, says):
    with answering(said) as port, pytest.raises(echod.ConnectError, match=says):
        idecho.TcpClient("127.0.0.1", port, EXAMPLE)


def test_another_users_server_is_not_joined(tmp_path):
    theirs = "/etc/passwd"  # root's
    if os.geteuid() == 0:
        theirs = tmp_path / "socket"
        theirs.touch()
        os.chown(theirs, 12345, 12345)
    said = {"for": OURS, "socket": os.fspath(theirs), "table": "samples"}
    with answering(json.dumps(said).encode() + b"\n") as port, pytest.raises(echod.ConnectError, match="of user"):
        idecho.TcpClient("127.0.0.1", port, EXAMPLE)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_worker_is_a_client_and_ends_nothing(closing):
    server = serve(idecho, closing)
    worker = multiprocessing.get_context("fork").Process(target=send_from_elsewhere, args=(OURS, server.port, 0))
    worker.start()
    assert numbers(server.sample()) == [0, 1] and numbers(server.sample()) == [2, 3]
    worker.join(30)
    assert worker.exitcode == 0
    pid = os.fork()
    if pid == 0:
        try:
            try:
                server.sample()
            except echod.ForkedError:
                server.close()
                del server
                os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    client = closing(idecho.TcpClient("127.0.0.1", server.port, EXAMPLE))
    client.send(sample(8))
    client.send(sample(9))
    assert numbers(server.sample()) == [8, 9]


def test_memory_that_cannot_be_page_locked_is_a_runtime_error(monkeypatch):
    monkeypatch.setenv("ECHO_CUDART", "/nowhere/libcudart.so")
    with pytest.raises(RuntimeError, match="/nowhere") as raised:
        idecho.Server(EXAMPLE, 2, pin_host_memory=True)
    assert isinstance(raised.value.__cause__, echod.PinError)


def test_trajectories_that_are_not_full_are_not_built():
    rollout = idecho.TrajectoryAccumulator(SCALES)
    rollout.add("steps", {"obs": np.zeros(2, np.float32), "reward": np.float32(0)})
    with pytest.raises(echod.NotFullError, match="'steps' has 1 of 3") as raised:
        rollout.build()
    assert (raised.value.filled, raised.value.needed) == (1, 3)


@pytest.mark.parametrize(
    ("name", "item"),
    [
        ("steps", {"obs": np.zeros(2), "reward": np.float32(0)}),
        ("steps", {"obs": np.zeros(2, np.float32), "reward": 1}),
        ("steps", {"obs": np.zeros(1, np.float32), "reward": np.float32(0)}),
        ("steps", {"obs": np.float32(0), "reward": np.float32(0)}),
        ("episode", {"won": 1, "goal": np.zeros(4, np.float32)}),
        ("episode", {"won": True, "goal": np.float32(1)}),
    ],
)
def test_trajectories_convert_and_broadcast_nothing(name, item):
    rollout = idecho.TrajectoryAccumulator(SCALES)
    with pytest.raises(echod.SampleError):
        rollout.add(name, item)


def test_errors_are_pickled():
    error = pickle.loads(pickle.dumps(idecho.RemoteHostError("said", host="h")))
    assert error.host == "h" and str(error) == "said"
    assert isinstance(pickle.loads(pickle.dumps(idecho.ConnectionClosedError("said"))), ConnectionError)


def test_its_repr_says_where_it_is(closing):
    server = closing(idecho.Server(EXAMPLE, 2))
    assert server._daemon.path in repr(server) and "3 batches of 2 samples" in repr(server)
    server.close()
    assert "closed" in repr(server)


PAGE = pathlib.Path(__file__).parents[3] / "docs" / "from-id-echo.md"


def test_the_programs_of_the_page_run(tmp_path):
    learner, worker, native = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for name, text in {"learner.py": learner, "worker.py": worker, "native.py": native}.items():
        (tmp_path / name).write_text(text.replace("50051", str(port)))
    with subprocess.Popen([sys.executable, "-u", "learner.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "listening\n"
        subprocess.run([sys.executable, "worker.py"], cwd=tmp_path, check=True, timeout=60)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and said.splitlines()[-1] == "31 batches, 992 samples were sent"
    subprocess.run([sys.executable, "native.py"], cwd=tmp_path, check=True, timeout=60)


def test_batches_that_threads_take_at_once_are_all_counted(closing, monkeypatch):
    server = closing(idecho.Server({"x": np.zeros(2)}, batch_size=1))

    class Batch:
        """Another thread takes one in the middle of this one's count."""

        data = None

        def __init__(self, others):
            self.others = others

        def __len__(self):
            if self.others:
                monkeypatch.setattr(server, "_wait", lambda: Batch(self.others - 1))
                server.sample()
            return 1

    monkeypatch.setattr(server, "_wait", lambda: Batch(3))
    server.sample()
    assert server._counter.sampled == 4
