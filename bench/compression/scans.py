#!/usr/bin/env python3
"""Times scans of lineitem, warm, through SQL: PostgreSQL, Smart Scan of the heap and of every level, DuckDB.

Needs the tables that tables.py creates. The first run of a query in each engine is not timed: it warms the caches and
returns the answer to compare. A difference between engines fails the benchmark.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import measure  # noqa: E402
from tables import TABLES, schema  # noqa: E402

TPCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tpch")
SERIAL = ["max_parallel_workers_per_gather=0"]
PARALLEL = ["max_parallel_workers_per_gather=2", "parallel_leader_participation=off", "min_parallel_table_scan_size=0", "parallel_setup_cost=0"]


def queries():
    def tpch(file):
        with open(os.path.join(TPCH, file), encoding="utf-8") as query:
            return query.read().rstrip().rstrip(";")

    return {
        "count": "SELECT count(*) FROM lineitem",
        "sum": "SELECT sum(l_extendedprice) FROM lineitem",
        "Q6": tpch("q06.sql"),
        "Q1": tpch("q01.sql"),
        "LIKE": "SELECT count(*) FROM lineitem WHERE l_comment LIKE '%express%pinto%'",
    }


class Engine:
    """A database with one session per number of threads (1, 2); `smart_scan` is whether plans must have a Smart Scan."""

    def __init__(self, name, sessions, smart_scan=None):
        self.name, self.sessions, self.smart_scan = name, sessions, smart_scan


def engines(options):
    def postgres(place, offload):
        settings = [f"search_path={place}", f"cellar.cell_offload_processing={offload}", *options.set]
        return {1: measure.Postgres(options.dsn, settings + SERIAL), 2: measure.Postgres(options.dsn, settings + PARALLEL)}

    stock = "plain" if options.plain else "public"
    found = [Engine("Postgres", postgres(stock, "off"), False), Engine("heap", postgres("public", "on"), True)]
    found += [Engine(level, postgres(schema(level), "on"), True) for level in options.levels.split(",")]
    for kind, name in (("native", "DuckDB"), ("parquet", "Parquet")):
        if not options.duckdb:
            break
        sessions = {}
        for threads in (1, 2):
            duck = sessions[threads] = measure.DuckDB()
            duck.rows(f"SET threads = {threads}")
            for table in TABLES:
                file = os.path.join(options.duckdb, f"{table}.{'duckdb' if kind == 'native' else 'parquet'}")
                if kind == "native":
                    duck.rows(f"ATTACH '{file}' AS {table}_file (READ_ONLY)")
                duck.rows(f"CREATE VIEW {table} AS FROM {f'{table}_file.{table}' if kind == 'native' else repr(file)}")
        found.append(Engine(name, sessions))
    return found


def warm(engine, threads, sql):
    """Runs the query once; returns its answer and, for PostgreSQL, its plan, which is checked for Smart Scans."""
    session = engine.sessions[threads]
    plan = None
    if engine.smart_scan is not None:
        plan = session.plan(sql)
        if ("Smart Scan" in plan) != engine.smart_scan:
            print(f"unexpected plan for {engine.name}:\n{plan}", file=sys.stderr)
    return session.rows(sql), plan


def main():
    parser = measure.arguments(__doc__.split("\n", 1)[0], levels=True)
    parser.add_argument("--plain", action="store_true", help="Smart Scan off reads the copies outside the cell")
    parser.add_argument("--duckdb", metavar="FOLDER", help="folder of DuckDB's files")
    options = parser.parse_args()
    found = engines(options)
    results, different = {}, 0
    for threads in (1, 2):
        rows = []
        for name, sql in queries().items():
            answers, plans = {}, {}
            for engine in found:
                answers[engine.name], plans[engine.name] = warm(engine, threads, sql)
            for engine in found[1:]:
                differs = measure.difference(answers["Postgres"], answers[engine.name])
                if differs:
                    different += 1
                    print(f"{name}: Postgres and {engine.name} differ: {differs}", file=sys.stderr)
            cases = {
                engine.name: lambda session=engine.sessions[threads]: measure.milliseconds(lambda: session.rows(sql)) for engine in found
            }
            times = measure.interleaved(options.runs, cases)
            results[f"{name}, {threads}"] = {"ms": times, "plans": plans}
            low = times[options.levels.split(",")[0]]
            against = [measure.number(times[other] / low, "x") for other in ("Postgres", "DuckDB", "Parquet") if other in times]
            rows.append([name] + [measure.number(times[engine.name]) for engine in found] + against)
        print(f"### {'One thread' if threads == 1 else 'Two threads'}, ms\n")
        names = [engine.name for engine in found]
        first = options.levels.split(",")[0]
        measure.table(["", *names, *(f"{n} / {first}" for n in ("Postgres", "DuckDB", "Parquet") if n in names)], rows)
    duckdb = next((engine.sessions[1].version for engine in found if engine.smart_scan is None), None)
    answers = f"{different} ANSWERS DIFFER" if different else "all answers equal"
    print(f"medians of {options.runs} interleaved runs; DuckDB {duckdb}; {answers}\n", flush=True)
    measure.save(options, "scans", {"times": results, "different": different, "duckdb": duckdb})
    return different == 0


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
