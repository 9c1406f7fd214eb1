"""DeepMind Reverb: a table of single steps, in the process that samples it, which is the fastest that it has.

A server and a dataset in one process share the table without gRPC. The buffer is smaller than the others': its items are
written one by one, and as many would take longer than all the rest of the benchmark.
"""

import os

from stage import Part
from workload import look

MOST = 100_000
MOST_BYTES = 256 << 20
ALPHA = 0.6
AHEAD = 4


def version():
    """None if it is not installed."""
    import importlib.metadata

    try:
        return importlib.metadata.version("dm-reverb")
    except importlib.metadata.PackageNotFoundError:
        return None


def _fill(reverb, server, pieces):
    client = reverb.Client(f"localhost:{server.port}")
    with client.trajectory_writer(num_keep_alive_refs=1) as writer:
        for i, (sample, priority) in enumerate(pieces):
            writer.append(sample)
            trajectory = {name: column[-1] for name, column in writer.history.items()}
            writer.create_item("t", priority=priority, trajectory=trajectory)
            if i % 256 == 255:
                writer.flush()
        writer.flush()
    return client


def _sample(cue, workload, items, n, prioritized):
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import reverb
    import sampling
    import tensorflow as tf

    items = min(items, MOST, MOST_BYTES // workload.sample_bytes)
    signature = {name: tf.TensorSpec(shape, dtype) for name, dtype, shape in workload.leaves}
    sampler = reverb.selectors.Prioritized(ALPHA) if prioritized else reverb.selectors.Uniform()
    table = reverb.Table(
        "t", sampler=sampler, remover=reverb.selectors.Fifo(), max_size=items,
        rate_limiter=reverb.rate_limiters.MinSize(1), signature=signature,
    )  # fmt: skip
    server = reverb.Server(tables=[table])
    samples = workload.samples(scalars=False)
    priorities = sampling.priorities(items)
    client = _fill(reverb, server, ((samples[i % len(samples)], float(priorities[i])) for i in range(items)))
    drawn = reverb.TrajectoryDataset.from_table_signature(
        server_address=f"localhost:{server.port}", table="t", max_in_flight_samples_per_worker=2 * workload.batch
    )
    batches = iter(drawn.batch(workload.batch, drop_remainder=True).prefetch(AHEAD))
    errors = sampling.priorities(workload.batch)

    def draw():
        batch = next(batches)
        look({name: leaf.numpy() for name, leaf in batch.data.items()})
        if prioritized:
            client.mutate_priorities("t", dict(zip(batch.info.key.numpy().tolist(), errors.tolist(), strict=True)))

    cue.ready()
    return sampling.rate(draw, workload.batch, n)


def sample(workload, items, n, prioritized):
    """Samples a second."""
    part = Part(_sample, workload, items, n, prioritized)
    part.wait_ready()
    part.go()
    return part.result()
