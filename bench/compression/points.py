#!/usr/bin/env python3
"""Times lookups and updates of single rows of lineitem by its index with pgbench: raw and at every level.

One client; each round runs each table for some seconds. Shared buffers are small compared with the table, so nearly every
lookup reads a block from the cell. Updates supersede blocks of compression units: compress the tables again before other
measurements use them.
"""

import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import measure  # noqa: E402
from tables import schema  # noqa: E402

# Order keys are the first eight of every 32 numbers, starting at 1 (TPC-H, clause 4.2.3); every order has a line 1.
KEY = "\\set n random(1, :orders)\n\\set key ((:n >> 3) << 5) | (:n & 7)\n"
SCRIPTS = {
    "SELECT": KEY + "SELECT l_comment, l_extendedprice FROM lineitem WHERE l_orderkey = :key AND l_linenumber = 1;\n",
    "UPDATE": KEY + "UPDATE lineitem SET l_tax = 0.08 - l_tax WHERE l_orderkey = :key AND l_linenumber = 1;\n",
}


def main():
    parser = measure.arguments(__doc__.split("\n", 1)[0], levels=True)
    parser.add_argument("--seconds", type=int, default=15, help="seconds of each pgbench run")
    parser.add_argument("--pgbench", default="pgbench", help="the pgbench program")
    parser.add_argument("--work", default=".", metavar="FOLDER", help="folder for the generated scripts")
    options = parser.parse_args()
    db = measure.Postgres(options.dsn, options.set)
    tables = {"raw": "public"} | {level: schema(level) for level in options.levels.split(",")}
    orders = db.value("SELECT count(*) FROM orders")
    for place in tables.values():
        db.rows(f"CREATE UNIQUE INDEX IF NOT EXISTS lineitem_key ON {place}.lineitem (l_orderkey, l_linenumber)")
        db.rows(f"ANALYZE {place}.lineitem")
    db.rows("CHECKPOINT")

    def run(kind, place):
        script = os.path.join(options.work, f"{kind}.sql")
        with open(script, "w", encoding="utf-8") as file:
            file.write(SCRIPTS[kind])
        command = [options.pgbench, "-n", "-M", "prepared", "-T", str(options.seconds), "-D", f"orders={orders}"]
        command += ["-f", script, f"{options.dsn} options='-c search_path={place}'"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        latency = re.search(r"latency average = ([\d.]+) ms", done.stdout)
        if done.returncode or not latency:
            sys.exit(f"pgbench failed: {done.stderr}")
        return float(latency[1]) * 1e3

    results = {}
    for kind in SCRIPTS:
        print(f"{kind} …", file=sys.stderr)
        results[kind] = measure.interleaved(options.runs, {name: lambda place=place: run(kind, place) for name, place in tables.items()})
    print(f"### One row of lineitem by its index, shared_buffers {db.value('SHOW shared_buffers')}, average latency in microseconds\n")
    measure.table(
        ["", *results, *(f"{kind} / raw" for kind in results)],
        [[name] + [measure.number(results[k][name]) for k in results] + [f"{results[k][name] / results[k]['raw']:.2f}" for k in results] for name in tables],
    )
    measure.save(options, "points", results)


if __name__ == "__main__":
    main()
