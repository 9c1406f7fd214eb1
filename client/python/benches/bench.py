"""Measures the Python package beside its peers, in one run.

    pip install './client/python[bench]'
    python client/python/benches/bench.py [--quick] [--only NAME] [--json FILE]

A row measures echo and each peer in turn, several times, writer and reader in processes of their own; what is printed are
medians, and the medians of the ratios of neighbours, since machines are noisy and noise hits both. In every system
the reader reads a byte of each cache line that it gets. The row beside the Rust writer wants cargo, and the repository.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

import cpprb_buffer
import echo_table
import hand_made
import id_echo
import newest
import reverb_table
import sampling
from workload import ATARI, LARGE, LEAVES_10, TINY

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]


class Row:
    """One measurement of echo, and the peers it is compared with: (name, function, least or greatest ratio)."""

    def __init__(self, name, unit, echo, peers, limit=None):
        self.name, self.unit, self.echo, self.peers, self.limit = name, unit, echo, peers, limit
        self.less_is_better = unit == "µs"

    def measure(self, rounds):
        rounds = [(self.echo(), [peer() for _, peer, _ in self.peers]) for _ in range(rounds)]
        value = statistics.median(echo for echo, _ in rounds)
        if self.limit is not None:
            met = value <= self.limit if self.less_is_better else value >= self.limit
            yield self._line(value, "", None, None, f"{'≤' if self.less_is_better else '≥'} {self.limit:g} {self.unit}", met)
        for i, (peer, _, wanted) in enumerate(self.peers):
            ratio = statistics.median(echo / peers[i] for echo, peers in rounds)
            said = "" if wanted is None else f"{'≤' if self.less_is_better else '≥'} {wanted:g}"
            met = None if wanted is None else (ratio <= wanted if self.less_is_better else ratio >= wanted)
            yield self._line(value, peer, statistics.median(peers[i] for _, peers in rounds), ratio, said, met)

    def _line(self, value, peer, peers, ratio, wanted, met):
        return {
            "bench": self.name, "unit": self.unit, "value": value, "peer": peer, "peer_value": peers, "ratio": ratio,
            "wanted": wanted, "met": met,
        }  # fmt: skip


def rust_writer():
    """Samples a second of the Rust writer, by the Rust benchmark, which takes rounds of its own."""
    command = ["cargo", "xtask", "bench", "--only", "fifo/atari/1w", "--json", "--quick"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[0])["value"]


def rows(quick):
    """The rows, and what cannot be measured."""
    few = 4 if quick else 1
    missing = []
    id_echo_there, cpprb_there, reverb_there = id_echo.version(), cpprb_buffer.version(), reverb_table.version()
    for name, there in (("id-echo", id_echo_there), ("cpprb", cpprb_there), ("dm-reverb", reverb_there)):
        if there is None:
            missing.append(f"{name} is not installed")
    rust = shutil.which("cargo") is not None and (REPOSITORY / "xtask").is_dir()
    if not rust:
        missing.append("the Rust writer is not measured: it wants cargo, and the repository")

    def peers(*all):
        return [peer for peer in all if peer is not None]

    def tcp(workload, n, wanted=None):
        if id_echo_there is None:
            return None
        return f"id-echo {id_echo_there}, TCP", lambda: id_echo.over_tcp(workload, n // few), wanted

    def submit(workload, n):
        if id_echo_there is None:
            return None
        return f"id-echo {id_echo_there}, in process", lambda: id_echo.in_process(workload, n // few), None

    def cpprb(workload, n, many=1):
        if cpprb_there is None:
            return None
        return f"cpprb {cpprb_there}, in process", lambda: cpprb_buffer.in_process(workload, n // few, many), None

    def blocks(workload, n, wanted, many=1):
        name = "block ring by hand" if many == 1 else "block ring by hand, slices"
        return name, lambda: hand_made.block_ring(workload, n // few, many), wanted

    def slots(workload, n):
        return "slot ring by hand", lambda: hand_made.slot_ring(workload, n // few), None

    def append(workload, n, *all):
        return Row(
            f"append/{workload.name}", "samples/s", lambda: echo_table.throughput(workload, n // few), peers(*all)
        )

    def sample(kind, workload, items, n):
        of = workload, items, n, kind == "prioritized"
        wanted = 3 if of == (TINY, items, n, True) else None
        beside = None
        if cpprb_there is not None:
            beside = f"cpprb {cpprb_there}, in process", lambda: sampling.cpprb(*of), wanted
        dataset = None
        if reverb_there is not None:
            fewer = workload, items, max(20, n // 20), kind == "prioritized"
            dataset = f"dm-reverb {reverb_there}, in process", lambda: reverb_table.sample(*fewer), None
        by_hand = "numpy's gather", lambda: sampling.gather(*of[:3]), None
        return Row(f"sample/{kind}/{workload.name}", "samples/s", lambda: sampling.echo(*of), peers(beside, dataset, by_hand))

    tiny, atari, large = 1 << 20, 1 << 16, 1 << 12
    yield append(
        TINY, tiny, blocks(TINY, tiny, 0.8), slots(TINY, 1 << 16), tcp(TINY, 1 << 15, 20), submit(TINY, 1 << 17),
        cpprb(TINY, 1 << 16),
    )  # fmt: skip
    beside_rust = ("the Rust writer", rust_writer, 0.9) if rust else None
    yield append(
        ATARI, atari, blocks(ATARI, atari, 0.9), beside_rust, slots(ATARI, 1 << 15), tcp(ATARI, 1 << 15),
        submit(ATARI, 1 << 16), cpprb(ATARI, 1 << 15),
    )  # fmt: skip
    yield append(LARGE, large, blocks(LARGE, large, None), tcp(LARGE, 1 << 11))
    many = 1 << 24
    yield Row(
        "append_many/tiny", "samples/s", lambda: echo_table.throughput(TINY, many // few, 64),
        peers(blocks(TINY, tiny, 5), blocks(TINY, many, 0.8, 64), cpprb(TINY, 1 << 20, 64)),
    )  # fmt: skip
    stamps = 1000 // few
    yield Row(
        "latency/append-to-next", "µs", lambda: echo_table.latency(stamps),
        [] if id_echo_there is None else [(f"id-echo {id_echo_there}, TCP", lambda: id_echo.latency(stamps), 0.2)],
    )  # fmt: skip
    weights = 100 // few

    def taking(what):
        return lambda: newest.echo(weights)[what], ("shared memory by hand", lambda: newest.by_hand(weights)[what], None)

    nothing, by_hand = taking("nothing")
    yield Row("latest/read", "µs", nothing, [by_hand], limit=2)
    new, by_hand = taking("new")
    yield Row("latest/read/new", "µs", new, [by_hand, ("a queue", lambda: newest.queue(weights)["new"], None)])
    for workload, wanted, batches in ((TINY, 1_000_000, 4000), (ATARI, 100_000, 400)):
        items = sampling.items_of(workload, wanted // (10 if quick else 1))
        if items < wanted // (10 if quick else 1):
            missing.append(f"sample/*/{workload.name} is of {items} items, for which there is memory")
        for kind in ("uniform", "prioritized"):
            yield sample(kind, workload, items, batches // few)
    yield Row("next/10-leaves", "µs", lambda: echo_table.ready(LEAVES_10, 8 // few), [], limit=5)
    for line in missing:
        print(f"left out: {line}", file=sys.stderr)


def shown(line):
    def number(value, unit):
        if value is None:
            return ""
        if unit == "µs":
            return f"{value:.2g} µs" if value < 1 else f"{value:.1f} µs"
        for scale, letter in ((1e6, "M"), (1e3, "k")):
            if value >= scale:
                return f"{value / scale:.3g} {letter}/s"
        return f"{value:.3g} /s"

    met = {None: "", True: "yes", False: "NO"}[line["met"]]
    ratio = "" if line["ratio"] is None else f"{line['ratio']:.2f}"
    return (
        f"| `{line['bench']}` | {number(line['value'], line['unit'])} | {line['peer']} | "
        f"{number(line['peer_value'], line['unit'])} | {ratio} | {line['wanted']} | {met} |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="shorter, three rounds for five: for a look, not for a record")
    parser.add_argument("--only", default="", metavar="NAME", help="only the rows whose name contains this")
    parser.add_argument("--json", metavar="FILE", help="write a JSON object a line there as well")
    options = parser.parse_args()
    chosen = [row for row in rows(options.quick) if options.only in row.name]
    if not chosen:
        sys.exit(f"no row's name contains {options.only!r}")
    lines = []
    for row in chosen:
        print(row.name, file=sys.stderr, flush=True)
        lines += row.measure(3 if options.quick else 5)
    print("| row | echo | peer | peer's | echo / peer | wanted | met |")
    print("|---|---:|---|---:|---:|---|---|")
    for line in lines:
        print(shown(line))
    if options.json:
        with open(options.json, "w") as file:
            file.writelines(json.dumps(line) + os.linesep for line in lines)


if __name__ == "__main__":
    main()
