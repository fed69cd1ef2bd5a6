#!/usr/bin/env python3
"""The cost of AWR under load: pgbench runs once, AWR is switched off and on in short windows, and neighbouring windows are compared.

The speed of a machine changes over minutes by more than AWR costs. Two windows of some seconds that follow each other
see nearly the same machine, so the ratio of a pair varies much less than the throughput of separate runs does. The order
within a pair alternates. Other programs disturb throughput more than the CPU time of the server's processes per transaction,
which is compared, too. Prints lines of a Markdown table: kind, medians of both, their ratio, mean ratio and its standard error,
CPU time per transaction with AWR off and on in microseconds, mean ratio and its standard error.
"""

import argparse
import os
import statistics
import subprocess
import sys
import threading
import time

SETTLE_SECONDS = 1
KINDS = {"pgbench -S": ["-S"], "pgbench TPC-B": []}


def switch(psql, on):
    """Switches AWR's statistics of statements and samples of sessions. Sessions read the settings with their next command."""
    commands = [
        f"ALTER SYSTEM SET cellar.awr_track_statements = {'on' if on else 'off'}",
        f"ALTER SYSTEM SET cellar.awr_sample_period = {1000 if on else 0}",
        "SELECT pg_reload_conf()",
    ]
    options = [word for command in commands for word in ("-c", command)]
    subprocess.run([psql, "-X", "-q", *options], check=True, stdout=subprocess.DEVNULL)


def cpu_seconds(postmaster):
    """Returns the CPU time of the children of the postmaster. The sessions of pgbench live during all windows."""
    ticks = 0
    with open(f"/proc/{postmaster}/task/{postmaster}/children", encoding="ascii") as children:
        pids = children.read().split()
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
                ticks += sum(int(field) for field in stat.read().rsplit(")", 1)[1].split()[11:13])
        except FileNotFoundError:
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def windows(arguments, options):
    """Returns pairs (off, on) of transactions per second and CPU seconds per transaction."""
    directory = subprocess.run([arguments.psql, "-X", "-At", "-c", "SHOW data_directory"], check=True, capture_output=True, text=True)
    with open(os.path.join(directory.stdout.strip(), "postmaster.pid"), encoding="utf-8") as file:
        postmaster = int(file.readline())
    # Terminated after the last window.
    seconds = 2 * arguments.pairs * 2 * (arguments.window + SETTLE_SECONDS) + 60
    command = [arguments.pgbench, "-n", "-c", str(arguments.clients), "-j", "2", "-P", "1", "-T", str(seconds), *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as pgbench:
        progress = []

        def read():
            for line in pgbench.stderr:
                if line.startswith("progress: "):
                    progress.append(float(line.split()[3]))

        reader = threading.Thread(target=read)
        reader.start()
        time.sleep(2)
        pairs = []
        for number in range(arguments.pairs):
            pair = {}
            for on in (False, True) if number % 2 == 0 else (True, False):
                switch(arguments.psql, on)
                time.sleep(SETTLE_SECONDS)
                # From one line of progress to another: the first one began before the window.
                first = len(progress)
                while len(progress) == first:
                    time.sleep(0.001)
                first = len(progress)
                started, cpu = time.monotonic(), cpu_seconds(postmaster)
                while len(progress) < first + arguments.window:
                    if pgbench.poll() is not None:
                        sys.exit(f"pgbench ended early with status {pgbench.returncode}")
                    time.sleep(0.001)
                cpu, elapsed = cpu_seconds(postmaster) - cpu, time.monotonic() - started
                throughput = statistics.fmean(progress[first : first + arguments.window])
                pair[on] = (throughput, cpu / (throughput * elapsed))
            pairs.append((pair[False], pair[True]))
        if pgbench.poll() is not None:
            sys.exit(f"pgbench ended early with status {pgbench.returncode}")
        pgbench.terminate()
        pgbench.wait()
        reader.join()
    return pairs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pgbench", default="pgbench", help="the program; PGHOST, PGPORT, PGUSER and PGDATABASE name the cluster")
    parser.add_argument("--psql", default="psql", help="the program")
    parser.add_argument("--clients", type=int, default=64, help="sessions of pgbench (default 64)")
    parser.add_argument("--kind", choices=list(KINDS), help="only this kind")
    parser.add_argument("--pairs", type=int, default=20, help="pairs of windows (default 20)")
    parser.add_argument("--window", type=int, default=4, help="seconds of a window (default 4)")
    arguments = parser.parse_args()
    for kind, options in KINDS.items():
        if arguments.kind not in (None, kind):
            continue
        pairs = windows(arguments, options)
        columns = [kind]
        for figure, scale in ((0, 1), (1, 1e6)):
            ratios = [on[figure] / off[figure] for off, on in pairs]
            error = statistics.stdev(ratios) / len(ratios) ** 0.5
            off, on = (statistics.median(values[figure] * scale for values in side) for side in zip(*pairs))
            columns += [f"{off:.{figure}f}", f"{on:.{figure}f}"]
            if figure == 0:
                columns.append(f"{statistics.median(ratios):.3f}")
            columns.append(f"{statistics.fmean(ratios):.3f} ± {error:.3f}")
        print(f"| {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    main()
