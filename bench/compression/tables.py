#!/usr/bin/env python3
"""Copies lineitem and orders at every level of compression, and measures encoding and sizes.

Each level is a schema (query_low, …) with tables of the same names: search_path selects the level for a query. `public`
contains the raw tables. --plain copies the raw rows to a tablespace in an ordinary folder; --duckdb exports them as
DuckDB's native files and as Parquet with zstd. A churned copy of lineitem (10 % of the rows updated, then vacuumed) is
compressed at the query levels.
"""

import argparse
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import measure  # noqa: E402

TABLES = ("lineitem", "orders")
CHURN = "UPDATE {table} SET l_comment = reverse(l_comment), l_tax = 0.08 - l_tax WHERE hashint8(l_orderkey * 8 + l_linenumber) % 10 = 0"


def schema(level):
    return level.replace(" ", "_")


def cpu_seconds(pid):
    """User and system time of all threads of a process, including exited threads."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def compress(db, table, level, cell_pid):
    """Compresses a table; returns sizes and times. Freezes and writes the table first, so that only encoding is timed."""
    db.rows(f"VACUUM (FREEZE) {table}")
    db.rows("CHECKPOINT")
    heap = db.value("SELECT pg_relation_size(%s::regclass)", (table,))
    start, before = time.perf_counter(), cpu_seconds(cell_pid) if cell_pid else None
    stored = db.value("SELECT sum(stored_bytes)::bigint FROM cellar.compress(%s::regclass, %s)", (table, level))
    seconds = time.perf_counter() - start
    other = db.rows("SELECT level FROM cellar.compression(%s::regclass) WHERE level <> %s", (table, level))
    if other:
        sys.exit(f"{table} is not completely at {level}: {other}")
    cpu = cpu_seconds(cell_pid) - before if cell_pid else None
    return {"heap_bytes": heap, "stored_bytes": stored, "seconds": seconds, "cell_cpu_seconds": cpu}


def copy_table(db, table, copy, where=""):
    """Creates and fills a copy in one transaction: with wal_level = minimal, its rows need no WAL."""
    db.rows(f"CREATE TABLE {copy} (LIKE {table}) WITH (parallel_workers = 2) {where}; INSERT INTO {copy} SELECT * FROM {table}")


def make_levels(db, levels, cell_pid):
    made = {}
    for level in levels:
        db.rows(f"DROP SCHEMA IF EXISTS {schema(level)} CASCADE; CREATE SCHEMA {schema(level)}")
        for name in TABLES:
            copy = f"{schema(level)}.{name}"
            copy_table(db, f"public.{name}", copy)
            made[f"{name} {level}"] = compress(db, copy, level, cell_pid)
            db.rows(f"ANALYZE {copy}")
    return made


def make_churned(db, levels, cell_pid):
    db.rows("DROP SCHEMA IF EXISTS churned CASCADE; CREATE SCHEMA churned")
    copy_table(db, "public.lineitem", "churned.lineitem")
    db.rows(CHURN.format(table="churned.lineitem"))
    db.rows("VACUUM churned.lineitem")
    made = {f"churned lineitem {level}": compress(db, "churned.lineitem", level, cell_pid) for level in levels}
    db.rows("DROP SCHEMA churned CASCADE")
    return made


def make_plain(db, folder):
    """Copies the tables outside the cell, as a stock PostgreSQL stores them."""
    db.rows("DROP SCHEMA IF EXISTS plain CASCADE; CREATE SCHEMA plain")
    db.rows("DROP TABLESPACE IF EXISTS plain")
    db.rows(f"CREATE TABLESPACE plain LOCATION '{folder}'")
    for name in TABLES:
        copy_table(db, f"public.{name}", f"plain.{name}", "TABLESPACE plain")
        db.rows(f"VACUUM (FREEZE, ANALYZE) plain.{name}")


def export(db, folder):
    """Exports the rows as DuckDB's native files and as Parquet, char(n) without trailing blanks; returns the sizes."""
    duck = measure.DuckDB()
    sizes = {}
    for name in TABLES:
        native, parquet, text = (os.path.join(folder, f"{name}.{kind}") for kind in ("duckdb", "parquet", "csv"))
        for old in (native, parquet):
            if os.path.exists(old):
                os.remove(old)
        duck.rows(f"ATTACH '{native}' AS {name}_file")
        measure.copy_to_duckdb(db, duck, name, f"{name}_file.{name}", text)
        duck.rows(f"COPY {name}_file.{name} TO '{parquet}' (FORMAT parquet, COMPRESSION zstd)")
        duck.rows(f"DETACH {name}_file")
        sizes[name] = {"native": os.path.getsize(native), "parquet": os.path.getsize(parquet)}
    return sizes


def main():
    parser = measure.arguments(__doc__.split("\n", 1)[0], levels=True)
    parser.add_argument("--cell-pid", type=int, help="process of the cell, to measure its CPU time")
    parser.add_argument("--duckdb", metavar="FOLDER", help="folder for DuckDB's files")
    parser.add_argument("--plain", metavar="FOLDER", help="an empty folder outside the cell, owned by the server's user")
    parser.add_argument("--churned", action=argparse.BooleanOptionalAction, default=True, help="also compress a churned copy")
    options = parser.parse_args()
    levels = options.levels.split(",")
    db = measure.Postgres(options.dsn, options.set)
    for name in TABLES:
        db.rows(f"ALTER TABLE public.{name} SET (parallel_workers = 2)")
        db.rows(f"VACUUM (FREEZE, ANALYZE) public.{name}")
    files = export(db, options.duckdb) if options.duckdb else {}
    if options.plain:
        make_plain(db, options.plain)
    made = make_levels(db, levels, options.cell_pid)
    if options.churned:
        made |= make_churned(db, [level for level in levels if level.startswith("query")], options.cell_pid)

    print("### Sizes, MB (heap size / stored size)\n")
    rows = []
    for name in (*TABLES, "churned lineitem"):
        stored = [made.get(f"{name} {level}", {}).get("stored_bytes") for level in levels]
        stored += [files[name]["native"], files[name]["parquet"]] if name in files else [None] * 2
        heap = next((one["heap_bytes"] for what, one in made.items() if what.startswith(name)), None)
        if heap is None:
            continue
        rows.append([name, measure.number(heap / 1e6)] + [f"{measure.number(s / 1e6)} ({heap / s:.2f})" if s else "" for s in stored])
    measure.table(["", "heap", *levels, "DuckDB native", "Parquet zstd"], rows)
    print("### Sizes against Parquet with zstd\n")
    rows = [[name] + [f"{made[f'{name} {level}']['stored_bytes'] / files[name]['parquet']:.2f}" for level in levels] for name in files]
    measure.table(["", *levels], rows)
    print("### Encoding, MB of heap per second; every page verified; one run\n")
    rows = []
    for what, one in made.items():
        cpu = one["cell_cpu_seconds"]
        rows.append([what, measure.number(one["heap_bytes"] / 1e6 / one["seconds"]), measure.number(one["heap_bytes"] / 1e6 / cpu if cpu else None)])
    measure.table(["", "elapsed", "per CPU second of the cell"], rows)
    measure.save(options, "tables", {"files": files, "compressed": made})


if __name__ == "__main__":
    main()
