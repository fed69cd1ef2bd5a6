#!/usr/bin/env python3
"""Times reads of single blocks of lineitem through the mount, as index lookups cause them: raw and at every level.

Reads blocks in random order, each at most once, by pread with O_DIRECT, which bypasses the kernel's page cache. Warm: one
block of each allocation unit is read before the measurement. Cold (--cold, after a restart of the cluster and the cell):
drops the kernel's caches and reads the first block of each unit, then drops them again and reads a second block of each.
Runs as root, or without --cold as the cluster's user.
"""

import glob
import mmap
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import measure  # noqa: E402
from tables import cpu_seconds, schema  # noqa: E402

BLOCK = 8192


class Blocks:
    """The blocks of a relation's files, by number."""

    def __init__(self, path):
        segments = sorted(glob.glob(path + ".[0-9]*"), key=lambda name: int(name.rsplit(".", 1)[1]))
        self.files = [os.open(name, os.O_RDONLY | os.O_DIRECT) for name in [path, *segments]]
        self.each = [os.fstat(file).st_size // BLOCK for file in self.files]
        self.count = sum(self.each)
        self.page = mmap.mmap(-1, BLOCK)

    def read(self, block):
        """Reads one block; returns the elapsed microseconds."""
        file = 0
        while block >= self.each[file]:
            block -= self.each[file]
            file += 1
        start = time.perf_counter_ns()
        length = os.preadv(self.files[file], [self.page], block * BLOCK)
        took = (time.perf_counter_ns() - start) / 1e3
        if length != BLOCK:
            sys.exit(f"a short read of {length} bytes at block {block} of segment {file}")
        return took


def drop_caches():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        file.write("3")


def main():
    parser = measure.arguments(__doc__.split("\n", 1)[0], levels=True)
    parser.add_argument("--reads", type=int, default=4000, help="warm reads of each table")
    parser.add_argument("--unit", type=int, default=4, help="allocation unit of the cell, MiB")
    parser.add_argument("--cold", action="store_true", help="measure cold reads; the cluster and the cell must have just started")
    parser.add_argument("--cell-pid", type=int, help="process of the cell, to measure its CPU time")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    db = measure.Postgres(options.dsn, options.set)
    data = db.value("SHOW data_directory")
    chosen = random.Random(options.seed)
    tables = {"raw": "public.lineitem"} | {level: f"{schema(level)}.lineitem" for level in options.levels.split(",")}
    blocks = {name: Blocks(os.path.join(data, db.value("SELECT pg_relation_filepath(%s::regclass)", (t,)))) for name, t in tables.items()}
    per_unit = (options.unit << 20) // BLOCK
    times, cpu = {}, {}
    for name, table in blocks.items():
        starts = list(range(0, table.count, per_unit))
        chosen.shuffle(starts)

        def one_of_each():
            return [table.read(min(start + chosen.randrange(per_unit), table.count - 1)) for start in starts]

        if options.cold:
            drop_caches()
            times[name, "first block of a unit"] = one_of_each()
            drop_caches()
            times[name, "another block"] = one_of_each()
        else:
            one_of_each()
            order = chosen.sample(range(table.count), min(options.reads, table.count))
            before = cpu_seconds(options.cell_pid) if options.cell_pid else None
            times[name, "random block"] = [table.read(block) for block in order]
            if options.cell_pid:
                cpu[name, "random block"] = (cpu_seconds(options.cell_pid) - before) / len(order) * 1e6
    print(f"### {'Cold' if options.cold else 'Warm'} block reads, microseconds; one block of lineitem through the mount\n")
    results = {
        f"{name}: {what}": {
            "reads": len(taken),
            "p50_us": measure.percentile(taken, 50),
            "p99_us": measure.percentile(taken, 99),
            "cell_cpu_us": cpu.get((name, what)),
        }
        for (name, what), taken in times.items()
    }
    rows = [[what, one["reads"]] + [measure.number(one[key]) for key in ("p50_us", "p99_us", "cell_cpu_us")] for what, one in results.items()]
    measure.table(["", "reads", "p50", "p99", "CPU time of the cell"], rows)
    measure.save(options, "pages cold" if options.cold else "pages warm", results)


if __name__ == "__main__":
    main()
