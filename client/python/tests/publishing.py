"""Publishers and readers of latest tables in processes of their own: what `test_latest` starts. Imports no pytest."""

import sys

import echod
import numpy as np

CELLS = 1 << 14
EXAMPLE = {"w": np.zeros((3, 4), np.float32), "b": np.zeros(3), "step": 0}


def value(version):
    return {"w": np.full((3, 4), version, np.float32), "b": np.full(3, float(version)), "step": version}


def is_whole(taken):
    data = taken.data
    return bool(all((leaf == taken.version).all() for leaf in data.values()))


def take(handle, last, said):
    """Follows to that version, from a table or a reader."""
    latest = handle.latest() if isinstance(handle, echod.Table) else handle
    version = 0
    while version < last:
        taken = latest.wait_newer_than(version, 60)
        assert taken.version > version and is_whole(taken)
        version = taken.version
    said.put(version)


def publish(table):
    latest = table.latest()
    publisher = table.publisher(timeout=60)
    version = latest.version
    while True:
        version += 1
        assert publisher.publish(value(version)) == version
        print(version, flush=True)


def claim(table):
    with table.publisher().claim() as room:
        room.data["w"][:] = 7
        print("claimed", flush=True)
        sys.stdin.read()


def hold(table):
    taken = table.latest().wait_newer_than(0, 60)
    print(taken.version, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    act, path, name = sys.argv[1:4]
    {"publish": publish, "claim": claim, "hold": hold}[act](echod.connect(path).table(name))
