#!/usr/bin/env python3
"""Runs ClickBench's 43 queries with Smart Scan off and on, and on a compressed table: answers, times, offloading.

Schema and queries come from a clone of https://github.com/ClickHouse/ClickBench (CC BY-NC-SA 4.0), read at run time. The
data are the real hits.tsv (--hits) or generated rows (hits.py).

Answers must be equal. A query with LIMIT may return different rows where its ORDER BY leaves ties open: then the values of
the ORDER BY keys must be equal, and the rows without the LIMIT must have equal checksums.
"""

import collections
import gzip
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import hits  # noqa: E402
import measure  # noqa: E402

SOURCE = "https://github.com/ClickHouse/ClickBench"
TAIL = re.compile(r"\s+(?:LIMIT\s+\d+|OFFSET\s+\d+)", re.IGNORECASE)
ORDER = re.compile(r"\sORDER BY\s+(.*?)(?=\s+LIMIT\s|$)", re.IGNORECASE)
MODES = {"off": ("public", "off"), "on": ("public", "on"), "compressed": ("compressed", "on")}
# A query is reported as slower if it exceeds the time without Smart Scan by this factor and this many milliseconds.
SLOWER, SLOWER_MS = 1.1, 5


def clickbench_file(options, name):
    """Returns a file of ClickBench's newest commit; clones the repository unless --clickbench is a local folder."""
    source = options.clickbench
    if not os.path.isdir(source):
        clone = os.path.join(options.work, "ClickBench")
        if not os.path.isdir(clone):
            subprocess.run(["git", "clone", "-q", "--depth", "1", "--no-checkout", "--filter=blob:none", source, clone], check=True)
        source = clone
    shown = subprocess.run(["git", "-C", source, "show", f"HEAD:postgresql/{name}"], check=True, capture_output=True, text=True)
    return shown.stdout


def load(db, options):
    """Creates the raw table in `public` and a compressed copy in `compressed`."""
    db.rows("DROP SCHEMA IF EXISTS compressed CASCADE; CREATE SCHEMA compressed; DROP TABLE IF EXISTS public.hits")
    db.rows("SET search_path = public")
    db.rows(clickbench_file(options, "create.sql"))
    start = time.perf_counter()
    if options.hits:
        opened = gzip.open if options.hits.endswith(".gz") else open
        with opened(options.hits, "rb") as file, db.connection.cursor() as cursor:
            cursor.copy_expert("COPY hits FROM STDIN", file)
    else:
        columns = db.rows(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'hits'::regclass AND attnum > 0 ORDER BY attnum"
        )
        for statement in hits.statements(columns, options.rows, options.seed):
            db.rows(statement)
    print(f"hits loaded in {time.perf_counter() - start:.0f} s", file=sys.stderr)
    db.rows("VACUUM (FREEZE, ANALYZE) hits")
    db.rows("CREATE TABLE compressed.hits (LIKE public.hits); INSERT INTO compressed.hits SELECT * FROM public.hits")
    db.rows("SELECT cellar.compress('compressed.hits'::regclass, %s)", (options.level,))
    db.rows("ANALYZE compressed.hits")


def keys(sql):
    """Returns the expressions of ORDER BY, split at commas outside parentheses."""
    order = ORDER.search(sql)
    if not order:
        return []
    parts = re.split(r",\s*(?![^()]*\))", order[1])
    return [re.sub(r"\s+(?:ASC|DESC)$", "", part.strip(), flags=re.IGNORECASE) for part in parts]


def key_values(db, sql):
    """Returns the ORDER BY keys of each row of the answer; adds keys to the SELECT list that it lacks."""
    with db.connection.cursor() as cursor:
        cursor.execute(sql)
        names = [column.name for column in cursor.description]
    places, added = [], []
    for key in keys(sql):
        name = "count" if key.lower() == "count(*)" else key.lower()
        if name in names:
            places.append(names.index(name))
        else:
            places.append(len(names) + len(added))
            added.append(key)
    if added:
        sql = re.sub(r"\sFROM hits\b", f", {', '.join(added)} FROM hits", sql, count=1)
    return [tuple(row[place] for place in places) for row in db.rows(sql)]


def checksum(db, sql):
    """Returns the number and an order-independent checksum of the rows of a query without its LIMIT."""
    whole = TAIL.sub("", ORDER.sub("", sql) if TAIL.search(sql) else sql)
    return db.rows(f"SELECT count(*), sum(hashtextextended(whole::text, 0)::numeric) FROM ({whole}) AS whole")


def answers_differ(sql, these, those):
    """Returns how the answers of two sessions differ; None if they are equal."""
    a, b = these.rows(sql), those.rows(sql)
    differs = measure.difference(a, b)
    if differs and len(a) == len(b) and TAIL.search(sql):
        differs = measure.difference(key_values(these, sql), key_values(those, sql))
    if not differs:
        differs = measure.difference(checksum(these, sql), checksum(those, sql))
        differs = differs and f"number and checksum of all rows: {differs}"
    return differs


def notes(db, sql):
    """Returns the plan, what the plan offloads (aggregate, scan, no), and why other parts are not offloaded."""
    plan = db.plan(sql)
    why = db.rows("SELECT what, expression, reason FROM cellar.why_not_offloaded")
    kind = "aggregate" if "Smart Scan Aggregate" in plan else "scan" if "Smart Scan" in plan else "no"
    return {"plan": plan, "why": why, "offloaded": kind}


def measure_query(sessions, sql, runs):
    found = {"notes": {}, "rows": {}, "error": {}, "differs": {}, "ms": {}}
    for mode, db in sessions.items():
        try:
            found["notes"][mode] = notes(db, sql)
            found["rows"][mode] = len(db.rows(sql))
        except Exception as error:  # pylint: disable=broad-except
            found["error"][mode] = str(error).strip()
    fit = {mode: db for mode, db in sessions.items() if mode not in found["error"]}
    for mode in fit:
        if mode != "off" and "off" in fit:
            try:
                differs = answers_differ(sql, fit["off"], fit[mode])
            except Exception as error:  # pylint: disable=broad-except
                differs = f"while comparing: {str(error).strip()}"
            if differs:
                found["differs"][mode] = differs
    cases = {mode: lambda db=db: measure.milliseconds(lambda: db.rows(sql)) for mode, db in fit.items()}
    found["ms"] = measure.interleaved(runs, cases)
    off = found["ms"].get("off")
    found["slower"] = [mode for mode, ms in found["ms"].items() if off and ms > off * SLOWER and ms > off + SLOWER_MS]
    return found


def report(results, options):
    """Prints the report; `results` maps a query's number to its SQL and its measurements."""
    rows = []
    for n, (_, found) in results.items():
        ms = found["ms"]
        times = [measure.number(ms.get(mode)) for mode in MODES]
        ratio = [measure.number(ms["off"] / ms[mode], "x") if "off" in ms and mode in ms else "–" for mode in ("on", "compressed")]
        offloaded = found["notes"].get("compressed", found["notes"].get("on", {})).get("offloaded", "–")
        state = "failed" if found["error"] else "DIFFER" if found["differs"] else "equal"
        rows.append([f"Q{n}", found["rows"].get("off", "–"), *times, *ratio, offloaded, state])
    print(f"### Times, ms; medians of {options.runs} interleaved runs\n")
    measure.table(["query", "rows", "off", "on", f"on, {options.level}", "on", options.level, "offloaded", "answers"], rows)

    print("### Not offloaded, by number of queries\n")
    reasons = collections.defaultdict(dict)
    for n, (_, found) in results.items():
        for what, expression, reason in found["notes"].get("compressed", {}).get("why", []):
            reasons[what, reason].setdefault(f"Q{n}", expression)
    rows = [
        [f"{what}: {reason}", len(queries_of), ", ".join(queries_of), "; ".join(sorted({str(e)[:60] for e in queries_of.values()})[:4])]
        for (what, reason), queries_of in sorted(reasons.items(), key=lambda item: -len(item[1]))
    ]
    measure.table(["reason", "queries", "which", "such as"], rows)
    for n, (sql, found) in results.items():
        troubles = [*found["error"].items(), *found["differs"].items(), *((mode, "slower than off") for mode in found["slower"])]
        if troubles:
            print(f"#### Q{n}\n\n```\n{sql}\n")
            for mode, trouble in troubles:
                print(f"{mode}: {trouble}\n{found['notes'].get(mode, {}).get('plan', '')}\n")
            print("```\n")


def main():
    parser = measure.arguments(__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows to generate")
    parser.add_argument("--seed", type=int, default=1, help="seed of the generated rows")
    parser.add_argument("--hits", metavar="FILE", help="hits.tsv or hits.tsv.gz of ClickBench, instead of generated rows")
    parser.add_argument("--level", default="query low", help="level of the compressed table")
    parser.add_argument("--clickbench", default=SOURCE, help="a clone of ClickBench, or the URL to clone")
    parser.add_argument("--work", default=".", metavar="FOLDER", help="folder for the clone")
    parser.add_argument("--queries", default="", metavar="1,2,…", help="run only these queries")
    parser.add_argument("--loaded", action="store_true", help="use the tables of an earlier run")
    parser.add_argument("--timeout", type=int, default=300, help="seconds until a query is cancelled and counts as failed")
    options = parser.parse_args()
    queries = [line.strip().rstrip(";") for line in clickbench_file(options, "queries.sql").splitlines() if line.strip()]
    db = measure.Postgres(options.dsn, options.set)
    if not options.loaded:
        load(db, options)
    size, count = db.rows("SELECT pg_relation_size('public.hits'), (SELECT count(*) FROM public.hits)")[0]
    stored = db.value("SELECT sum(stored_bytes)::bigint FROM cellar.compression('compressed.hits')")
    made = "" if options.hits else f", generated with seed {options.seed}"
    print(f"{count} rows{made}; heap {size / 1e6:.0f} MB, {options.level} {stored / 1e6:.0f} MB ({size / stored:.2f})\n", flush=True)
    sessions = {}
    for mode, (place, offload) in MODES.items():
        settings = [f"search_path={place}", f"cellar.cell_offload_processing={offload}", f"statement_timeout={options.timeout}s"]
        sessions[mode] = measure.Postgres(options.dsn, settings + options.set)
    chosen = [int(n) for n in options.queries.split(",") if n] or range(1, len(queries) + 1)
    results = {}
    for n in chosen:
        print(f"Q{n} …", file=sys.stderr)
        results[n] = (queries[n - 1], measure_query(sessions, queries[n - 1], options.runs))
    report(results, options)
    bad = sum(bool(found["error"] or found["differs"]) for _, found in results.values())
    slower = [n for n, (_, found) in results.items() if found["slower"]]
    print(f"{len(results)} queries; " + (f"{bad} FAILED OR DIFFER" if bad else "all answers equal") + f"; slower than off: {slower or 'none'}")
    measure.save(options, "clickbench", {"rows": count, "heap_bytes": size, "stored_bytes": stored, "queries": results})
    return not bad


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
