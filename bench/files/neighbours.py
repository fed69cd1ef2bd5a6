#!/usr/bin/env python3
"""Measures reads and WAL writes of other files on a cell while statements update a table. Needs Python's standard library.

A process reads blocks of one file in random order, with O_DIRECT, and writes blocks of another file in order, as
PostgreSQL writes WAL; every eighth block is synced. First nothing else runs, then each statement. The output is a table
of latencies in microseconds, with the p99 as a multiple of the idle p99.
"""

import argparse
import mmap
import multiprocessing
import os
import random
import subprocess
import time

BLOCK = 8192
READ_BYTES = 64 << 20
WAL_BYTES = 16 << 20
BLOCKS_PER_SYNC = 8
PAUSE = 0.001
KINDS = ("read of a block", "write of a WAL block", "sync of the WAL")


def create(path, length):
    with open(path, "wb") as file:
        for _ in range(length >> 20):
            file.write(os.urandom(1 << 20))
        os.fsync(file.fileno())


def probe(folder, stop, results):
    """Sends the latencies of each kind, in microseconds, after `stop` is set."""
    # O_DIRECT: the kernel's page cache answers no read.
    reads = os.open(os.path.join(folder, "neighbour-read"), os.O_RDONLY | os.O_DIRECT)
    wal = os.open(os.path.join(folder, "neighbour-wal"), os.O_WRONLY)
    buffer, block, written = mmap.mmap(-1, BLOCK), os.urandom(BLOCK), 0
    latencies = {kind: [] for kind in KINDS}

    def timed(kind, call):
        started = time.perf_counter()
        call()
        latencies[kind].append((time.perf_counter() - started) * 1e6)

    while not stop.is_set():
        timed(KINDS[0], lambda: os.preadv(reads, [buffer], random.randrange(READ_BYTES // BLOCK) * BLOCK))
        timed(KINDS[1], lambda: os.pwrite(wal, block, written * BLOCK % WAL_BYTES))
        written += 1
        if written % BLOCKS_PER_SYNC == 0:
            timed(KINDS[2], lambda: os.fdatasync(wal))
        time.sleep(PAUSE)
    results.send(latencies)


def measure(folder, work):
    """Runs `work` beside the probe; returns the latencies."""
    stop, (ours, theirs) = multiprocessing.Event(), multiprocessing.Pipe(duplex=False)
    process = multiprocessing.Process(target=probe, args=(folder, stop, theirs))
    process.start()
    time.sleep(0.2)
    work()
    stop.set()
    latencies = ours.recv()
    process.join()
    return latencies


def percentile(values, percent):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--folder", required=True, help="folder on the mount for the files that are read and written")
    parser.add_argument("--dsn", required=True, help="cluster that runs the statements")
    parser.add_argument("--psql", default="psql", help="the psql program")
    parser.add_argument("--idle-seconds", type=float, default=10, help="duration of the measurement without a statement")
    parser.add_argument("statement", nargs="+", metavar="NAME=SQL", help="a statement to measure beside")
    options = parser.parse_args()
    create(os.path.join(options.folder, "neighbour-read"), READ_BYTES)
    create(os.path.join(options.folder, "neighbour-wal"), WAL_BYTES)

    def run(sql):
        command = [options.psql, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", options.dsn]
        return lambda: subprocess.run(command + [word for part in sql.split(";") for word in ("-c", part)], check=True)

    columns = {"idle": measure(options.folder, lambda: time.sleep(options.idle_seconds))}
    for statement in options.statement:
        name, sql = statement.split("=", 1)
        columns[name] = measure(options.folder, run(sql))
    print("| us: p50, p99, maximum | " + " | ".join(columns) + " |\n|---" + "|---:" * len(columns) + "|")
    for kind in KINDS:
        idle, cells = percentile(columns["idle"][kind], 99), []
        for name, latencies in columns.items():
            values = latencies[kind]
            ratio = "" if name == "idle" else f" (p99 {percentile(values, 99) / idle:.1f} times)"
            cells.append(f"{percentile(values, 50):.0f}, {percentile(values, 99):.0f}, {max(values):.0f}{ratio}")
        print(f"| {kind} | " + " | ".join(cells) + " |")
    for name in ("neighbour-read", "neighbour-wal"):
        os.unlink(os.path.join(options.folder, name))


if __name__ == "__main__":
    main()
