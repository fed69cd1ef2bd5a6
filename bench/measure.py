"""Shared by the benchmarks in Python: sessions of PostgreSQL and DuckDB, interleaved timing, comparison of answers, reports.

Starts no servers and does not depend on cells. Two answers are equal if they are equal multisets of rows. Exact numbers
compare exactly, floating-point numbers to nine digits, strings without trailing blanks.
"""

import argparse
import datetime
import json
import os
import sys
import time
from decimal import Decimal
from statistics import median

FLOAT_DIGITS = 9


class Postgres:
    """A session; `settings` ("name=value") override those of the cluster."""

    def __init__(self, dsn, settings=()):
        import psycopg2

        self.connection = psycopg2.connect(dsn)
        self.connection.autocommit = True
        for setting in settings:
            name, value = setting.split("=", 1)
            self.rows("SELECT set_config(%s, %s, false)", (name.strip(), value.strip()))

    def rows(self, sql, parameters=None):
        with self.connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return cursor.fetchall() if cursor.description else []

    def value(self, sql, parameters=None):
        return self.rows(sql, parameters)[0][0]

    def plan(self, sql):
        return "\n".join(line for (line,) in self.rows("EXPLAIN " + sql))


class DuckDB:
    """An in-memory session; callers attach database files and Parquet files."""

    def __init__(self):
        import duckdb

        self.connection = duckdb.connect()
        self.version = duckdb.__version__

    def rows(self, sql):
        return self.connection.execute(sql).fetchall()


def copy_to_duckdb(db, duck, table, copy, file):
    """Copies a table of `public` into a new table of DuckDB, char(n) without trailing blanks; `file` is created and removed."""
    columns = db.rows(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = ('public.' || %s)::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        (table,),
    )
    types = ", ".join(f"{column} {'varchar' if 'char' in kind else kind}" for column, kind in columns)
    selected = ", ".join(f"{column}::text" if kind.startswith("character(") else column for column, kind in columns)
    with open(file, "w", encoding="utf-8") as text, db.connection.cursor() as cursor:
        cursor.copy_expert(f"COPY (SELECT {selected} FROM public.{table}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)", text)
    duck.rows(f"CREATE TABLE {copy} ({types})")
    duck.rows(f"COPY {copy} FROM '{file}' (FORMAT csv, HEADER false, ALLOW_QUOTED_NULLS false)")
    os.remove(file)


def milliseconds(work):
    """Returns the elapsed milliseconds of a call."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3


def interleaved_runs(runs, cases):
    """Calls every case once in each of `runs` rounds; returns each case's results, by name."""
    times = {name: [] for name in cases}
    for _ in range(runs):
        for name, case in cases.items():
            times[name].append(case())
    return times


def interleaved(runs, cases):
    """Calls every case once in each of `runs` rounds; returns the median of each case's results, by name."""
    return {name: median(values) for name, values in interleaved_runs(runs, cases).items()}


def percentile(values, percent):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def _comparable(value):
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (int, Decimal)):
        return Decimal(value)
    return value.rstrip(" ") if isinstance(value, str) else value


def _sort_key(row):
    return tuple(f"{float(v):.5e}" if isinstance(v, (int, float, Decimal)) else str(v) for v in row)


def _equal(a, b):
    if isinstance(a, float) or isinstance(b, float):
        try:
            return abs(float(a) - float(b)) <= max(abs(float(a)), abs(float(b)), 1e-300) * 10**-FLOAT_DIGITS
        except (TypeError, ValueError):
            return False
    return _comparable(a) == _comparable(b)


def difference(these, those):
    """Returns the first difference between two answers; None if they are equal."""
    if len(these) != len(those):
        return f"{len(these)} rows and {len(those)}"
    for a, b in zip(sorted(these, key=_sort_key), sorted(those, key=_sort_key)):
        if len(a) != len(b) or not all(map(_equal, a, b)):
            return f"{a} and {b}"
    return None


def number(value, unit=""):
    """Formats a number with three or four significant digits."""
    if value is None:
        return "–"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:.{digits}f}{unit}"


def table(head, rows):
    """Prints a Markdown table: the first column is text, the others are numbers."""
    print("| " + " | ".join(head) + " |")
    print("|---" + "|---:" * (len(head) - 1) + "|")
    for row in rows:
        print("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |")
    print(flush=True)


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "?")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpus": os.cpu_count(),
        "model": model,
        "memory_bytes": memory,
        "kernel": os.uname().release,
        "load_after": os.getloadavg(),
    }


def arguments(description, levels=False):
    """Returns a parser with the options that all benchmarks share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--dsn", default="host=/var/run/postgresql user=postgres dbname=postgres", help="a cluster on a cell")
    parser.add_argument("--runs", type=int, default=5, help="interleaved timed runs")
    parser.add_argument("--json", metavar="FILE", help="JSON file to add the results to")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="setting of all sessions")
    if levels:
        parser.add_argument("--levels", default="query low,query high,archive high", help="compression levels")
    return parser


def save(options, part, results):
    """Adds the results of a part to the report's JSON file."""
    if not options.json:
        return
    report = {}
    if os.path.exists(options.json):
        with open(options.json, encoding="utf-8") as file:
            report = json.load(file)
    when = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    report[part] = {"when": when, "machine": machine(), "command": sys.argv, "results": results}
    with open(options.json, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1, default=str)
        file.write("\n")
