#!/usr/bin/env python3
"""ClickBench's 43 queries with Smart Scan off and on, and on a compressed table: equal answers, times, what was not offloaded.

Schema and queries are ClickBench's own (https://github.com/ClickHouse/ClickBench, CC BY-NC-SA 4.0), taken from a clone at
the time of the run. The data are the real hits.tsv if there is one, else rows of their shape (hits.py).

Answers: all groups of a query, without its LIMIT, must be the same ones; with it, rows may only differ where ORDER BY
leaves open which come first, so then the values of its keys must be the same.
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
# Slower than without Smart Scan by this much, in share and in milliseconds, is told.
SLOWER, SLOWER_MS = 1.1, 5


def clickbench_file(options, name):
    """A file of the newest commit of ClickBench, cloned if it is not a folder of this machine."""
    source = options.clickbench
    if not os.path.isdir(source):
        clone = os.path.join(options.work, "ClickBench")
        if not os.path.isdir(clone):
            subprocess.run(["git", "clone", "-q", "--depth", "1", "--no-checkout", "--filter=blob:none", source, clone], check=True)
        source = clone
    shown = subprocess.run(["git", "-C", source, "show", f"HEAD:postgresql/{name}"], check=True, capture_output=True, text=True)
    return shown.stdout


def load(db, options):
    """The raw table in `public`, and the same rows in `compressed`."""
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
    print(f"hits made in {time.perf_counter() - start:.0f} s", file=sys.stderr)
    db.rows("VACUUM (FREEZE, ANALYZE) hits")
    db.rows("CREATE TABLE compressed.hits (LIKE public.hits); INSERT INTO compressed.hits SELECT * FROM public.hits")
    db.rows("SELECT cellar.compress('compressed.hits'::regclass, %s)", (options.level,))
    db.rows("ANALYZE compressed.hits")


def keys(sql):
    """The expressions of ORDER BY; only at commas outside of parentheses does a new one begin."""
    order = ORDER.search(sql)
    if not order:
        return []
    parts = re.split(r",\s*(?![^()]*\))", order[1])
    return [re.sub(r"\s+(?:ASC|DESC)$", "", part.strip(), flags=re.IGNORECASE) for part in parts]


def key_values(db, sql):
    """What the keys of ORDER BY are in the rows of the answer: of its columns where they are there, else selected, too."""
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
    """Number and content of all rows of a query, without its LIMIT, whatever their order."""
    whole = TAIL.sub("", ORDER.sub("", sql) if TAIL.search(sql) else sql)
    return db.rows(f"SELECT count(*), sum(hashtextextended(whole::text, 0)::numeric) FROM ({whole}) AS whole")


def answers_differ(sql, these, those):
    """None, or how the answers of two sessions differ."""
    a, b = these.rows(sql), those.rows(sql)
    differs = measure.difference(a, b)
    if differs and len(a) == len(b) and TAIL.search(sql):
        differs = measure.difference(key_values(these, sql), key_values(those, sql))
    if not differs:
        differs = measure.difference(checksum(these, sql), checksum(those, sql))
        differs = differs and f"all rows, number and checksum: {differs}"
    return differs


def notes(db, sql):
    """What the planner offloaded, and what it noted not to."""
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
    """Of the queries and what was found, by their numbers."""
    rows = []
    for n, (sql, found) in results.items():
        ms = found["ms"]
        times = [measure.number(ms.get(mode)) for mode in MODES]
        ratio = [measure.number(ms["off"] / ms[mode], "x") if "off" in ms and mode in ms else "–" for mode in ("on", "compressed")]
        offloaded = found["notes"].get("compressed", found["notes"].get("on", {})).get("offloaded", "–")
        state = "failed" if found["error"] else "DIFFER" if found["differs"] else "equal"
        rows.append([f"Q{n} `{sql[:60]}`", found["rows"].get("off", "–"), *times, *ratio, offloaded, state])
    print(f"### Times, ms, medians of {options.runs} interleaved runs\n")
    measure.table(["query", "rows", "off", "on", f"on, {options.level}", "on", options.level, "offloaded", "answers"], rows)

    print("### What was not offloaded, by the number of queries\n")
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
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows to make")
    parser.add_argument("--seed", type=int, default=1, help="of the rows that are made")
    parser.add_argument("--hits", metavar="FILE", help="ClickBench's hits.tsv or hits.tsv.gz, in the place of made rows")
    parser.add_argument("--level", default="query low", help="of the compressed table")
    parser.add_argument("--clickbench", default=SOURCE, help="a clone of ClickBench, or where to clone it from")
    parser.add_argument("--work", default=".", metavar="FOLDER", help="where to clone it to")
    parser.add_argument("--queries", default="", metavar="1,2,…", help="only these")
    parser.add_argument("--loaded", action="store_true", help="the tables are there from another run")
    parser.add_argument("--timeout", type=int, default=300, help="seconds after which a query has failed")
    options = parser.parse_args()
    queries = [line.strip().rstrip(";") for line in clickbench_file(options, "queries.sql").splitlines() if line.strip()]
    db = measure.Postgres(options.dsn, options.set)
    if not options.loaded:
        load(db, options)
    size, count = db.rows("SELECT pg_relation_size('public.hits'), (SELECT count(*) FROM public.hits)")[0]
    stored = db.value("SELECT sum(stored_bytes)::bigint FROM cellar.compression('compressed.hits')")
    made = "" if options.hits else f", made with seed {options.seed}"
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
