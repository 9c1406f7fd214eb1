"""What a typed user writes. `test_types` has mypy read it; each mistake is one that mypy finds, or its comment is too much."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import echod
import numpy as np


class Sample(NamedTuple):
    obs: np.ndarray[Any, np.dtype[np.float32]]
    reward: Any


def work(table: echod.Table, steps: int) -> int:
    with table.writer(timeout=5.0) as writer:
        for step in range(steps):
            writer.append(Sample(np.zeros(4, np.float32), float(step)))
        writer.append_many(Sample(np.zeros((2, 4), np.float32), np.zeros(2)), timeout=None)
        with writer.claim() as slot:
            slot.data.obs[:] = 1
        with writer.claim(8, timeout=1) as slots:
            room: int = len(slots)
        return writer.committed + writer.waits + room


def train(table: echod.Table) -> float:
    total = 0.0
    reader = table.reader(prefetch=4, pin=False, copy=True, patience=None)
    for batch in reader:
        total += float(batch.data.reward.sum()) + batch.seq / len(batch) + batch.nbytes
        batch.release(after=None)
    pinned: echod.Pinned | None = reader.pinned
    return total if pinned is None else pinned.bytes


def publish(table: echod.Table) -> int:
    with table.publisher(timeout=5.0) as publisher:
        version: int = publisher.publish({"w": np.zeros(3)})
        with publisher.claim(timeout=1) as room:
            room.data["w"][:] = 1
        return version + publisher.version + publisher.waits + (room.version or 0)


async def follow(table: echod.Table) -> int:
    latest = table.latest(pin=False, poll=0.0, copy=False)
    first: echod.Value | None = latest.newer_than(0)
    value: echod.Value = await latest.wait_newer_than_async(1, timeout=30)
    assert first is not None and latest.get() is not None
    first.release(after=None)
    return int(value.data["w"].sum()) + value.version + value.nbytes + latest.version + latest.held


def remember(table: echod.ReplayTable) -> echod.Counted:
    with table.writer(timeout=5.0) as writer:
        writer.append({"x": 1.0}, 2.0, version=3)
        writer.append_many({"x": np.zeros(8)}, np.ones(8), versions=[1] * 8)
        with writer.claim() as slot:
            slot.data["x"][...] = 2
            slot.priority = 0.5
    reader = table.reader(batch_size=4, prefetch=1, threads=1)
    batch: echod.SampledBatch = reader.next(timeout=30)
    info: echod.SampleInfo = batch.info
    weights: np.ndarray[Any, np.dtype[np.float64]] = batch.weights(0.4, largest="table")
    reader.update_priorities(info.keys, weights)
    counted: echod.Counted = reader.update_priorities(info.keys, weights, wait=True)
    short: str | None = batch.short
    removed: int = reader.state_version(3)
    assert short is None and removed == 0 and reader.delete([99]).skipped == 1
    return counted


async def both(table: echod.Table) -> int:
    writer, reader = table.writer(), table.reader()
    await writer.append_async(1.0)
    await writer.append_many_async(np.zeros(7))
    one: echod.Batch = await reader.next_async(timeout=30)
    other: echod.Batch | None = reader.try_next()
    writer.finish()
    trees = [] if other is None else [other.copy(), other.dlpack()]
    return len(one) + len(trees) + sum([batch.seq async for batch in reader])


def main() -> None:
    with echod.local(host_budget="64 MiB") as daemon:
        connection: echod.Connection = daemon.connect(name="typed")
        table = connection.create_table(
            "typed", example=Sample(np.zeros(4, np.float32), 0.0), batch_size=4, capacity=2, access=["everyone=observe"]
        )
        names: list[str] = connection.tables()
        leaf: echod.Leaf = table.leaves[0]
        said: list[str] = [*table.why(), *names, leaf.name, leaf.dtype, connection.path]
        try:
            connection.table("none", example={"x": 1})
        except echod.NoSuchTableError as error:
            said.append(error.kind)
        except echod.TimeoutError as error:
            raise SystemExit(error.after) from None
        work(table, 4)
        train(table)
        asyncio.run(both(daemon.create_table("numbers", example=0.0, batch_size=4, capacity=2)))
        latest = connection.create_latest("weights", example={"w": np.zeros(3)}, capacity=3)
        said.append(f"{latest.kind} {publish(latest)}")
        asyncio.run(follow(latest))
        replay = daemon.create_replay(
            "replay", example={"x": 1.0}, max_size=100, sampler=echod.Prioritized(0.6),
            rate_limiter=echod.SampleToInsertRatio(4, min_size=1, error_buffer=(-50, 50.0)), max_staleness=8,
        )  # fmt: skip
        said.append(str(remember(replay).applied))
        print(said)


def mistakes(table: echod.Table) -> None:
    table.writer(timeout="long")  # type: ignore[arg-type]
    table.writer().append()  # type: ignore[call-arg]
    table.writer().claim("many")  # type: ignore[arg-type]
    table.reader().next("soon")  # type: ignore[arg-type]
    table.reader(depth=3)  # type: ignore[call-arg]
    table.reader().next().seq.append  # type: ignore[attr-defined]
    table.connection.create_table("t", example=1.0)  # type: ignore[call-arg]
    table.connection.create_table("t", example=1.0, batch_size="4", capacity=1)  # type: ignore[arg-type]
    table.connection.create_latest("t", example=1.0, batch_size=4)  # type: ignore[call-arg]
    table.publisher().publish()  # type: ignore[call-arg]
    table.latest().get().data  # type: ignore[union-attr]
    table.latest().newer_than("1")  # type: ignore[arg-type]
    replay = table.connection.create_replay("r", example=1.0)  # type: ignore[call-arg]
    replay.writer().append(1.0, priority="high")  # type: ignore[arg-type]
    replay.reader().next().weights(0.4, "all")  # type: ignore[arg-type]
    replay.reader().update_priorities([1])  # type: ignore[call-overload]
    replay.reader(depth=3)  # type: ignore[call-arg]
    echod.connect(1)  # type: ignore[arg-type]
    echod.Batch().missing  # type: ignore[attr-defined]
    seq: str = table.reader().next().seq  # type: ignore[assignment]
    print(seq)


if __name__ == "__main__":
    main()
