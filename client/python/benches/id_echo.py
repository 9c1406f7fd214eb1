"""id-echo with its default settings: over TCP from a process of its own, and in process."""

import time

import numpy as np
from stage import Part, Stopwatch
from workload import STAMP, look


def version():
    """None if it is not installed."""
    try:
        import echo
    except ImportError:
        return None
    return echo.__version__


def _serve(cue, workload, n):
    import echo

    server = echo.Server(workload.example(), workload.batch, transport=echo.TcpTransport(port=_free_port()))
    server.start()
    watch = Stopwatch(workload, n)
    cue.ready(server.port)
    for _ in range(watch.batches):
        look(server.sample().batch)
        watch.lap()
    rate = watch.rate()
    server.close()
    return rate


def _send(cue, workload, n, port):
    import echo

    client = echo.TcpClient("127.0.0.1", port, workload.example())
    samples = workload.samples(scalars=False)
    cue.ready()
    for _ in range(n // len(samples)):
        for sample in samples:
            client.send(sample)
    client.wait()
    client.close()


def _free_port():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def over_tcp(workload, n):
    """Samples a second."""
    reader = Part(_serve, workload, n)
    port = reader.wait_ready()
    writer = Part(_send, workload, Stopwatch.samples(workload, n), port)
    writer.wait_ready()
    reader.go(), writer.go()
    writer.result()
    return reader.result()


def _submit(cue, workload, n):
    import echo

    server = echo.Server(workload.example(), workload.batch)
    samples = workload.samples(scalars=False)
    cue.ready()
    began, i = time.monotonic(), 0
    for _ in range(n // workload.batch):
        for _ in range(workload.batch):
            server.submit(samples[i])
            i = (i + 1) % len(samples)
        look(server.sample().batch)
    rate = n / (time.monotonic() - began)
    server.close()
    return rate


def in_process(workload, n):
    """Samples a second, one thread that submits and samples."""
    part = Part(_submit, workload, n)
    part.wait_ready()
    part.go()
    return part.result()


def _serve_stamps(cue, n):
    import echo

    server = echo.Server(STAMP.example(), 1, transport=echo.TcpTransport(port=_free_port()))
    server.start()
    cue.ready(server.port)
    took = []
    for _ in range(n):
        sent = server.sample().batch["sent"]
        took.append(time.monotonic_ns() - int(sent[0, 0]))
    server.close()
    return took


def _send_stamps(cue, n, port):
    import echo

    client = echo.TcpClient("127.0.0.1", port, STAMP.example())
    sample = {"sent": np.zeros(1, np.int64)}
    cue.ready()
    for _ in range(n):
        time.sleep(0.001)  # so that the reader is asleep
        sample["sent"][0] = time.monotonic_ns()
        client.send(sample)
    client.wait()
    client.close()


def latency(n):
    """Microseconds from `send` to `sample` returning, the reader asleep."""
    reader = Part(_serve_stamps, n)
    port = reader.wait_ready()
    writer = Part(_send_stamps, n, port)
    writer.wait_ready()
    reader.go(), writer.go()
    writer.result()
    return float(np.median(reader.result())) / 1e3
