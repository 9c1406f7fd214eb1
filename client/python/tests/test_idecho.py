"""What a program that was written for id-echo 0.2 relies on."""

import multiprocessing
import socket
import threading

import echod
import numpy as np
import pytest
from echod.compat import idecho


def example():
    return {"obs": np.zeros(3, np.float32), "more": (np.zeros((), np.int64), [np.zeros((2, 2), np.uint8)])}


def sample(i):
    return {
        "obs": np.full(3, i, np.float32),
        "more": (np.array(i, np.int64), [np.full((2, 2), i % 256, np.uint8)]),
    }


@pytest.fixture
def serve():
    """Makes servers, and closes them."""
    made = []

    def serve(*args, **kwargs):
        made.append(idecho.Server(*args, **kwargs))
        return made[-1]

    yield serve
    for server in made:
        server.close()


@pytest.mark.parametrize("batch_size", [1, 4])
def test_batches_of_one_and_of_several(serve, batch_size):
    server = serve(example(), batch_size=batch_size, num_buffers=2)
    for i in range(2 * batch_size):
        server.submit(sample(i))
    for first in (0, batch_size):
        taken = server.sample()
        assert taken.batch["obs"].shape == (batch_size, 3) and not taken.batch["obs"].flags.writeable
        assert taken.batch["more"][0].tolist() == list(range(first, first + batch_size))
        assert type(taken.batch["more"]) is tuple and taken.batch["more"][1][0].shape == (batch_size, 2, 2)
        del taken


def run(port, numbers):
    client = idecho.TcpClient("localhost", port, example())
    for i in numbers:
        client.send(sample(i))
    client.wait()
    client.close()


def test_clients_of_other_processes_come_and_go(serve):
    server = serve(example(), batch_size=4, transport=idecho.TcpTransport(port=0), num_buffers=2)
    server.start()
    spawn = multiprocessing.get_context("spawn")
    seen = []
    for round in range(2):
        clients = [
            spawn.Process(target=run, args=(server.port, range(100 * k, 100 * k + 8))) for k in (2 * round, 2 * round + 1)
        ]
        for client in clients:
            client.start()
        for _ in range(4):
            seen += server.sample().batch["more"][0].tolist()
        for client in clients:
            client.join(60)
            assert client.exitcode == 0
    assert sorted(seen) == [100 * k + i for k in range(4) for i in range(8)]


def test_the_counters(serve):
    server = serve(example(), batch_size=2, transport=idecho.TcpTransport(port=0), num_buffers=8)
    server.start()
    client = idecho.TcpClient("127.0.0.1", server.port, example(), max_inflight_msgs=4)
    server.submit(sample(0))
    for i in range(4):
        client.send(sample(i))
    info = server.sample().info
    assert (info.store_size, info.active_connections) == (3, 1)
    assert (info.samples_inserted_total, info.notify_count) == (4, 2)
    assert info.memcpy.count == info.queue_depth_max == 0
    server.reset_histograms()


def test_an_iteration_ends_at_the_close_and_copies_may_be_kept(serve):
    server = serve(example(), batch_size=2, num_buffers=2)

    def feed():
        for i in range(12):
            server.submit(sample(i))

    feeder = threading.Thread(target=feed)
    feeder.start()
    kept = []
    for taken in server.dataset_iter(copy=True):
        kept.append(taken.batch["obs"])
        if len(kept) == 6:
            server.close()
    feeder.join()
    assert [array[0, 0] for array in kept] == [0, 2, 4, 6, 8, 10] and kept[0].flags.writeable
    assert server.sample() is None


def test_a_batch_may_be_looked_at_while_the_next_one_is_waited_for(serve):
    server = serve(example(), batch_size=1, num_buffers=2)
    server.submit(sample(0))
    for i, taken in enumerate(server.dataset_iter()):
        batch = taken.batch  # as a loop leaves it behind
        assert batch["more"][0].tolist() == [i]
        if i == 5:
            break
        server.submit(sample(i + 1))


def test_who_keeps_every_batch_is_told(serve):
    server = serve(example(), batch_size=1, num_buffers=2)
    for i in range(2):
        server.submit(sample(i))
    kept = [server.sample(), server.sample()]
    with pytest.raises(echod.AllHeldError):
        server.sample()
    assert [taken.batch["more"][0][0] for taken in kept] == [0, 1]


def test_a_close_ends_every_wait(serve):
    server = serve(example(), batch_size=1, num_buffers=2)
    outcome = []
    waiting = threading.Thread(target=lambda: outcome.append(server.sample()))
    waiting.start()
    server.close()
    waiting.join(30)
    assert outcome == [None]
    with pytest.raises(idecho.ConnectionClosedError):
        server.submit(sample(0))
    server.close()


def test_a_submit_that_waits_for_room_ends_with_the_server(serve):
    server = serve(example(), batch_size=1, num_buffers=2)
    failed = []

    def feed():
        try:
            while True:
                server.submit(sample(0))
        except idecho.ConnectionClosedError as error:
            failed.append(error)

    feeder = threading.Thread(target=feed)
    feeder.start()
    while server._writer.committed < 2:
        feeder.join(0.001)
    server.close()
    feeder.join(30)
    assert len(failed) == 1


def test_a_client_whose_server_is_gone_is_told(serve):
    server = serve(example(), batch_size=1, transport=idecho.TcpTransport(port=0))
    server.start()
    client = idecho.TcpClient("127.0.0.1", server.port, example())
    port = server.port
    server.close()
    with pytest.raises(idecho.ConnectionClosedError):
        for _ in range(10):
            client.send(sample(0))
    with pytest.raises(ConnectionError, match="no server at port"):
        idecho.TcpClient("127.0.0.1", port, example())
    with pytest.raises(idecho.ConnectionClosedError):
        server.start()


@pytest.mark.parametrize(
    "wrong",
    [
        {"obs": np.zeros(3, np.int32), "more": sample(0)["more"]},
        {"obs": np.zeros((3, 1), np.float32), "more": sample(0)["more"]},
        {"sbo": np.zeros(3, np.float32), "more": sample(0)["more"]},
    ],
)
def test_samples_that_are_not_like_the_example_are_refused(serve, wrong):
    server = serve(example(), batch_size=1)
    with pytest.raises(echod.SampleError):
        server.submit(wrong)


def test_what_is_asked_for_out_of_order(serve):
    server = serve(example(), batch_size=1)
    with pytest.raises(RuntimeError, match="no transport configured"):
        server.start()
    with pytest.raises(RuntimeError, match="no transport configured"):
        server.port
    server = serve(example(), batch_size=1, transport=idecho.TcpTransport(port=0))
    with pytest.raises(RuntimeError, match="call start"):
        server.port


@pytest.mark.parametrize("options", [{"num_buffers": 1}, {"batch_size": 0}, {"num_drainers": 0}])
def test_numbers_that_make_no_sense(options):
    with pytest.raises(ValueError):
        idecho.Server(example(), **{"batch_size": 1, **options})


def test_leaves_must_be_arrays():
    for wrong in ({"x": 1.0}, {}):
        with pytest.raises(TypeError, match="numpy arrays"):
            idecho.Server(wrong, batch_size=1)


def test_other_machines_and_other_servers_are_refused():
    with pytest.raises(ConnectionError, match="another machine"):
        idecho.TcpClient("192.0.2.1", 80, example())
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer():
            client, _ = other.accept()
            with client:
                client.sendall(b"220 mail")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ConnectionError, match="no server of"):
            idecho.TcpClient("127.0.0.1", other.getsockname()[1], example())
        thread.join()


def test_pinning_without_cuda_is_a_runtime_error(monkeypatch):
    monkeypatch.setenv("ECHO_CUDART", "/nowhere/libcudart.so")
    with pytest.raises(RuntimeError, match="/nowhere/libcudart.so"):
        idecho.Server(example(), batch_size=1, pin_host_memory=True)


def test_trajectories(serve):
    whole = {"step": {"obs": np.zeros((3, 2), np.float32)}, "end": {"value": np.zeros((), np.float32)}}
    accumulator = idecho.TrajectoryAccumulator(whole)
    server = serve(whole, batch_size=1)
    for i in range(3):
        accumulator.add("step", {"obs": np.full(2, i, np.float32)})
    with pytest.raises(echod.NotFullError):
        accumulator.build()
    accumulator.add("end", {"value": np.float32(9)})
    with pytest.raises(IndexError):
        accumulator.add("step", {"obs": np.zeros(2, np.float32)})
    server.submit(accumulator.build())
    accumulator.reset()
    batch = server.sample().batch
    assert batch["step"]["obs"][0, :, 0].tolist() == [0, 1, 2] and batch["end"]["value"].tolist() == [9]
    with pytest.raises(KeyError):
        accumulator.add("nothing", {})
    with pytest.raises(TypeError):
        idecho.TrajectoryAccumulator([np.zeros(3)])
    with pytest.raises(ValueError):
        idecho.TrajectoryAccumulator({"x": (np.zeros((2, 1)), np.zeros((3, 1)))})
