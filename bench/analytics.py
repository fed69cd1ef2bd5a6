#!/usr/bin/env python3
"""Times the queries of ClickBench, of TPC-H, or others of TPC-H's tables, warm: PostgreSQL, Smart Scan of heap and compressed, DuckDB.

    analytics.py clickbench     after clickbench/run.py, which creates public.hits and compressed.hits
    analytics.py tpch           after tpch-load; copies the eight tables with their indexes to the schema `compressed`
    analytics.py tpch-reports   the same tables; queries with the forms of TPC-DS (tpch-reports/)

All engines run in turns, with one and with two threads. The first run of a query in an engine is not timed: it warms the
caches and returns the answer. Answers that differ fail the benchmark; a query with LIMIT may leave ties open, so its answer is
compared by its length if it belongs to ClickBench (clickbench/run.py compares those answers). A query that PostgreSQL does not
finish within --timeout is no failure.
"""

import math
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "clickbench"))
import measure  # noqa: E402
import run as clickbench  # noqa: E402

FOLDER = os.path.dirname(os.path.abspath(__file__))
TPCH = ("lineitem", "orders", "partsupp", "part", "customer", "supplier", "nation", "region")
TABLES = {"clickbench": ("hits",), "tpch": TPCH, "tpch-reports": TPCH}
# PostgreSQL spills sorts and hash tables of its default work_mem to disk; DuckDB uses most of the machine's memory.
COMMON = ["work_mem=256MB", "hash_mem_multiplier=2"]
THREADS = {1: "One", 2: "Two"}
ENGINES = "Postgres,heap,compressed,DuckDB"


def thread_settings(threads):
    """Returns the settings of a session of PostgreSQL that uses a number of threads; the leader of several workers only waits."""
    if threads == 1:
        return ["max_parallel_workers_per_gather=0"]
    return [f"max_parallel_workers_per_gather={threads}", f"max_parallel_workers={threads}", "parallel_leader_participation=off"]


def queries(options):
    """Returns the SQL of each query by its name."""
    if options.suite == "clickbench":
        lines = [line.strip().rstrip(";") for line in clickbench.clickbench_file(options, "queries.sql").splitlines()]
        return {f"Q{number}": line for number, line in enumerate(filter(None, lines), 1)}
    found, folder = {}, os.path.join(FOLDER, options.suite)
    for name in sorted(os.listdir(folder)):
        if name[0] == "q" and name.endswith(".sql"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                found[name.removesuffix(".sql")] = "".join(line for line in file if not line.startswith("--")).strip().rstrip(";")
    return found


def compress_tables(db, options):
    """Copies the raw tables with their indexes to the schema `compressed`; very small tables stay raw."""
    db.rows("DROP SCHEMA IF EXISTS compressed CASCADE; CREATE SCHEMA compressed; SET search_path = public")
    if not db.value("SELECT count(*) FROM pg_index WHERE indrelid = 'public.lineitem'::regclass"):
        with open(os.path.join(FOLDER, "tpch", "indexes.sql"), encoding="utf-8") as file:
            db.rows(file.read())
    for table in TABLES[options.suite]:
        db.rows(f"VACUUM (FREEZE, ANALYZE) public.{table}")
        db.rows(f"CREATE TABLE compressed.{table} (LIKE public.{table} INCLUDING INDEXES); INSERT INTO compressed.{table} SELECT * FROM public.{table}")
        db.rows(f"VACUUM (FREEZE, ANALYZE) compressed.{table}")
        db.rows("SELECT cellar.compress(%s::regclass, %s)", (f"compressed.{table}", options.level))


def export(db, options, file):
    """Copies the raw tables to a database file of DuckDB."""
    duck = measure.DuckDB()
    duck.rows(f"ATTACH '{file}' AS copied")
    for table in TABLES[options.suite]:
        measure.copy_to_duckdb(db, duck, table, f"copied.{table}", f"{file}.csv")
    duck.rows("DETACH copied")


def sessions(options, threads, file):
    """Returns a session of each engine."""
    found, wanted = {}, options.engines.split(",")
    for name, place, offload in (("Postgres", "public", "off"), ("heap", "public", "on"), (options.level, "compressed", "on")):
        if name not in wanted and not (name == options.level and "compressed" in wanted):
            continue
        settings = [f"search_path={place}", f"cellar.cell_offload_processing={offload}", f"statement_timeout={options.timeout}s"]
        found[name] = measure.Postgres(options.dsn, settings + COMMON + thread_settings(threads) + options.set)
    if file and "DuckDB" in wanted:
        duck = found["DuckDB"] = measure.DuckDB()
        duck.rows(f"ATTACH '{file}' AS copied (READ_ONLY)")
        duck.rows("USE copied")
        duck.rows(f"SET threads = {threads}")
    return found


def differs(options, sql, these, those):
    """Returns how two answers differ; None if they are equal, or if the query leaves its answer open."""
    if "LIMIT" in sql.upper() and options.suite == "clickbench":
        return None if len(these) == len(those) else f"{len(these)} rows and {len(those)}"
    return measure.difference(these, those)


def geometric_mean(values):
    """Returns the geometric mean; None of no values."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def measure_threads(options, threads, found):
    """Measures all queries with a number of threads; prints a table. Returns the measurements and the number of failures."""
    results, failures, rows = {}, 0, []
    engines = sessions(options, threads, found["file"])
    for name, sql in found["queries"].items():
        print(f"{name}, {threads} …", file=sys.stderr)
        answers, plans, errors, canceled = {}, {}, {}, 0
        for engine, session in engines.items():
            try:
                answers[engine] = session.rows(sql)
                plans[engine] = session.plan(sql) if isinstance(session, measure.Postgres) else None
            except Exception as error:  # pylint: disable=broad-except
                errors[engine] = str(error).strip()
                canceled += engine == "Postgres" and "statement timeout" in errors[engine]
        reference = next(iter(answers), None)
        for engine, answer in answers.items():
            trouble = differs(options, sql, answers[reference], answer)
            if trouble:
                errors[engine] = f"differs from the answer of {reference}: {trouble}"
        for engine, error in errors.items():
            print(f"{name}: {engine}: {error}", file=sys.stderr)
        failures += len(errors) > canceled
        times = measure.interleaved_runs(
            options.runs, {engine: lambda s=engines[engine]: measure.milliseconds(lambda: s.rows(sql)) for engine in answers}
        )
        results[name] = {"ms": times, "plans": plans, "errors": errors}
    columns = list(engines)
    medians = {name: {engine: measure.median(runs) for engine, runs in one["ms"].items()} for name, one in results.items()}
    ratios = {}
    for other in [engine for engine in columns if engine in ("Postgres", "DuckDB")]:
        ratios[other] = {name: ms[other] / ms[options.level] for name, ms in medians.items() if other in ms and options.level in ms}
    for name, one in results.items():
        cells = [f"{measure.number(medians[name].get(engine))} ({measure.number(min(one['ms'].get(engine, [0])))})" for engine in columns]
        plan = one["plans"].get(options.level) or ""
        offloaded = "aggregate" if "Smart Scan Aggregate" in plan else "scan" if "Smart Scan" in plan else "no"
        rows.append([name, *cells, *(measure.number(ratio.get(name), "x") for ratio in ratios.values()), offloaded])
    whole = [measure.number(geometric_mean([ms[engine] for ms in medians.values() if engine in ms])) for engine in columns]
    rows.append(["geometric mean", *whole, *(measure.number(geometric_mean(list(ratio.values())), "x") for ratio in ratios.values()), ""])
    whole = [measure.number(sum(ms[engine] for ms in medians.values() if engine in ms)) for engine in columns]
    rows.append(["sum", *whole, *("" for _ in ratios), ""])
    print(f"### {THREADS.get(threads, threads)} {'thread' if threads == 1 else 'threads'}; median (minimum) of {options.runs} runs, ms\n")
    measure.table(["", *columns, *(f"{other} / {options.level}" for other in ratios), "offloaded"], rows)
    slower = [f"{name} {1 / ratio:.1f}" for name, ratio in ratios.get("DuckDB", {}).items() if ratio < 1 / 3]
    print(f"more than 3 times DuckDB's time: {', '.join(slower) or 'none'}\n")
    for mode in ("heap", options.level):
        slower = [name for name, ms in medians.items() if mode in ms and "Postgres" in ms and ms[mode] > max(ms["Postgres"] * 1.1, ms["Postgres"] + 5)]
        print(f"{mode}: slower than PostgreSQL: {', '.join(slower) or 'none'}\n", flush=True)
    return results, failures


def main():
    parser = measure.arguments(__doc__.split("\n", 1)[0])
    parser.add_argument("suite", choices=sorted(TABLES), help="the queries to run")
    parser.add_argument("--level", default="query low", help="level of the compressed tables")
    parser.add_argument("--duckdb", metavar="FILE", help="DuckDB's database file; is created if it does not exist")
    parser.add_argument("--threads", default="1,2", metavar="1,2", help="numbers of threads")
    parser.add_argument("--workers", type=int, metavar="N", help="parallel workers planned for a scan of each table above 8 MiB")
    parser.add_argument("--engines", default=ENGINES, metavar=ENGINES, help="engines to measure")
    parser.add_argument("--queries", default="", metavar="q01,q02,…", help="run only these queries")
    parser.add_argument("--clickbench", default=clickbench.SOURCE, help="a clone of ClickBench, or the URL to clone")
    parser.add_argument("--work", default=".", metavar="FOLDER", help="folder for the clone")
    parser.add_argument("--loaded", action="store_true", help="use the compressed tables of an earlier run")
    parser.add_argument("--timeout", type=int, default=300, help="seconds until a query is canceled and counts as failed")
    options = parser.parse_args()
    db = measure.Postgres(options.dsn, options.set)
    if options.suite != "clickbench" and not options.loaded:
        compress_tables(db, options)
    if options.workers is not None:
        for (table,) in db.rows(
            "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relname = ANY (%s) AND pg_table_size(oid) > 8 << 20", (list(TABLES[options.suite]),)
        ):
            db.rows(f"ALTER TABLE {table} SET (parallel_workers = {options.workers})")
    if options.duckdb and not os.path.exists(options.duckdb):
        export(db, options, options.duckdb)
    chosen = [name for name in options.queries.split(",") if name]
    found = {name: sql for name, sql in queries(options).items() if not chosen or name in chosen}
    results, failures = {}, 0
    for threads in map(int, options.threads.split(",")):
        results[threads], failed = measure_threads(options, threads, {"queries": found, "file": options.duckdb})
        failures += failed
    print(f"{len(found)} queries; " + (f"{failures} FAILED OR DIFFER" if failures else "no query failed, all answers equal"), flush=True)
    measure.save(options, f"analytics {options.suite}", results)
    return not failures


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
