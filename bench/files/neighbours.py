#!/usr/bin/env python3
"""Measures reads and WAL writes of other files on a cell while statements update a table. Needs Python's standard library.

A process reads blocks of one file in random order, and writes blocks of another file in order, as PostgreSQL writes WAL;
every eighth block is synced. In turn, the process does so on the mount (reads with O_DIRECT, so that the kernel's page
cache answers none), and on the file system of the cell disks: with system calls, and through another process, which a
request reaches over a socket, as a request to a cell reaches the cell's process. The last two show which part of the
latency is due to the machine. First nothing else runs, then each statement. The output is a table of latencies in
microseconds, with the p99 as a multiple of the idle p99.
"""

import argparse
import mmap
import multiprocessing
import os
import random
import socket
import subprocess
import time

BLOCK = 8192
READ_BYTES = 64 << 20
WAL_BYTES = 16 << 20
BLOCKS_PER_SYNC = 8
PAUSE = 0.001
KINDS = ("read of a block", "write of a WAL block", "sync of the WAL")
READ, WRITE, SYNC = range(len(KINDS))
FILES = ("neighbour-read", "neighbour-wal")


def create(folder):
    for name, length in zip(FILES, (READ_BYTES, WAL_BYTES)):
        with open(os.path.join(folder, name), "wb") as file:
            for _ in range(length >> 20):
                file.write(os.urandom(1 << 20))
            os.fsync(file.fileno())


class Files:
    """The files of a folder, with a function for each kind of request."""

    def __init__(self, folder, read_flags):
        self.reads = os.open(os.path.join(folder, FILES[0]), os.O_RDONLY | read_flags)
        self.wal = os.open(os.path.join(folder, FILES[1]), os.O_WRONLY)
        self.buffer, self.block, self.written = mmap.mmap(-1, BLOCK), os.urandom(BLOCK), 0

    def request(self, kind):
        if kind == READ:
            os.preadv(self.reads, [self.buffer], random.randrange(READ_BYTES // BLOCK) * BLOCK)
        elif kind == WRITE:
            os.pwrite(self.wal, self.block, self.written * BLOCK % WAL_BYTES)
            self.written += 1
        else:
            os.fdatasync(self.wal)


class Served:
    """Passes requests to another process."""

    def __init__(self, files):
        self.ours, theirs = socket.socketpair()
        if os.fork() == 0:
            self.ours.close()
            while kind := theirs.recv(1):
                files.request(kind[0])
                theirs.send(kind)
            os._exit(0)
        theirs.close()

    def request(self, kind):
        self.ours.send(bytes([kind]))
        self.ours.recv(1)


def probe(folder, control, stop, results):
    """Sends the latencies of each kind in each place, in microseconds, after `stop` is set."""
    places = {"cell": Files(folder, os.O_DIRECT)}
    if control:
        places["file system"] = Files(control, 0)
        places["file system, through a process"] = Served(Files(control, 0))
    latencies = {(kind, place): [] for kind in range(len(KINDS)) for place in places}
    rounds = 0
    while not stop.is_set():
        rounds += 1
        for place, files in places.items():
            for kind in (READ, WRITE, SYNC) if rounds % BLOCKS_PER_SYNC == 0 else (READ, WRITE):
                started = time.perf_counter()
                files.request(kind)
                latencies[kind, place].append((time.perf_counter() - started) * 1e6)
            time.sleep(PAUSE)
    results.send(latencies)


def measure(options, work):
    """Runs `work` beside the probe; returns the latencies."""
    stop, (ours, theirs) = multiprocessing.Event(), multiprocessing.Pipe(duplex=False)
    process = multiprocessing.Process(target=probe, args=(options.folder, options.control_folder, stop, theirs))
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
    parser.add_argument("--control-folder", help="folder on the file system of the cell disks, for the same files")
    parser.add_argument("--dsn", required=True, help="cluster that runs the statements")
    parser.add_argument("--psql", default="psql", help="the psql program")
    parser.add_argument("--idle-seconds", type=float, default=10, help="duration of the measurement without a statement")
    parser.add_argument("statement", nargs="+", metavar="NAME=SQL", help="a statement to measure beside")
    options = parser.parse_args()
    folders = [folder for folder in (options.folder, options.control_folder) if folder]
    for folder in folders:
        create(folder)

    def run(sql):
        command = [options.psql, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", options.dsn]
        return lambda: subprocess.run(command + [word for part in sql.split(";") for word in ("-c", part)], check=True)

    columns = {"idle": measure(options, lambda: time.sleep(options.idle_seconds))}
    for statement in options.statement:
        name, sql = statement.split("=", 1)
        columns[name] = measure(options, run(sql))
    print("| us: p50, p99, maximum | " + " | ".join(columns) + " |\n|---" + "|---:" * len(columns) + "|")
    for kind, place in columns["idle"]:
        idle, cells = percentile(columns["idle"][kind, place], 99), []
        for name, latencies in columns.items():
            values = latencies[kind, place]
            ratio = "" if name == "idle" else f" (p99 {percentile(values, 99) / idle:.1f} times)"
            cells.append(f"{percentile(values, 50):.0f}, {percentile(values, 99):.0f}, {max(values):.0f}{ratio}")
        print(f"| {KINDS[kind]}, {place} | " + " | ".join(cells) + " |")
    for folder in folders:
        for name in FILES:
            os.unlink(os.path.join(folder, name))


if __name__ == "__main__":
    main()
