#!/usr/bin/env python3
"""The history of benchmark results, and what docs/benchmarks.md shows of it. Needs Python's standard library only.

bench/history/PART.jsonl has one line per run of a part, oldest first: `run` (the part and its size, such as
"compression sf=1"), date, commit, machine, command, load before the run, and the report's tables by title, each with
`head` and `rows`.

    history.py append REPORT --commit … --postgres … --command … --load … --size PART=TEXT
    history.py report

`append` reads the tables of a Markdown report of run.sh; a line `<!-- part: PART -->` starts each part. `report` writes
into docs/benchmarks.md, between `<!-- bench: RUN: TITLE -->` and `<!-- /bench -->`, the newest such table;
`<!-- bench: runs -->` becomes the list of the runs shown. It also plots bench/history as docs/images/bench-PART.svg.
"""

import argparse
import datetime
import html
import json
import math
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HISTORY = ROOT / "bench/history"
DOCUMENT = ROOT / "docs/benchmarks.md"
IMAGES = ROOT / "docs/images"

# Tables with expressions of ClickBench's queries, whose licence differs, are not kept.
NOT_KEPT = {"Not offloaded"}

# What is plotted of each part: unit, and per line its label, the table's title, the column, and the row's name (None: the
# geometric mean over all rows).
PLOTS = {
    "scans": (
        "Postgres's time / Smart Scan's, geometric mean of 12 scans",
        [("serial", "Serial", "speedup", None), ("two workers", "Two workers", "speedup", None)],
    ),
    "cold": (
        "cold scan, MB/s",
        [
            ("device (fio)", "Cold scan of lineitem", "MB/s", "fio, O_DIRECT, sequential, 1 MiB, depth 8"),
            ("Smart Scan on", "Cold scan of lineitem", "MB/s", "Smart Scan on"),
            ("Smart Scan off", "Cold scan of lineitem", "MB/s", "Smart Scan off"),
        ],
    ),
    "files": (
        "speed on the mount / speed on the file system below it",
        [
            ("pgbench -S", "The mount against the file system below it", "ratio", "pgbench -S, 4 clients, tps"),
            ("pgbench TPC-B", "The mount against the file system below it", "ratio", "pgbench TPC-B, 4 clients, tps"),
            ("COPY in", "The mount against the file system below it", "ratio", "COPY in, MB/s"),
            ("sequential scan", "The mount against the file system below it", "ratio", "sequential scan without offload, s"),
        ],
    ),
    "compression": (
        "one thread, ms, geometric mean of 5 scans of lineitem",
        [(name, "One thread", name, None) for name in ("Postgres", "heap", "query low", "query high", "DuckDB", "Parquet")],
    ),
    "awr": (
        "throughput with AWR / without, 64 clients",
        [(name, "Overhead of AWR", "on / off", name) for name in ("pgbench -S", "pgbench TPC-B")],
    ),
    "clickbench": (
        "ms, geometric mean of 43 queries",
        [("off", "Times", "off", None), ("on", "Times", "on", None), ("on, query low", "Times", "on, query low", None)],
    ),
}
# A plot shows this many of the newest runs.
SHOWN = 10
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")


def title_of(heading):
    """The part of a heading that does not change between runs: the text before the first comma, semicolon or bracket."""
    return re.split(r"[,;]| \(", heading.strip("# \n"))[0].strip()


def cells(line):
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def tables(markdown):
    """The first table below each heading of a Markdown text, by the heading's title."""
    found, title, lines = {}, "", markdown.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("#"):
            title = title_of(line)
        elif line.startswith("|---") and number and title not in NOT_KEPT:
            rows = []
            for row in lines[number + 1 :]:
                if not row.startswith("|"):
                    break
                rows.append(cells(row))
            found.setdefault(title, {"head": cells(lines[number - 1]), "rows": rows})
    return found


def markdown_table(head, rows):
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in (head, *rows)]
    ruler = "|---" + "|---:" * (len(head) - 1) + "|"
    return "\n".join(["| " + " | ".join(escaped[0]) + " |", ruler] + ["| " + " | ".join(row) + " |" for row in escaped[1:]])


def machine(postgres):
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu_model": model,
        "cpus": os.cpu_count(),
        "memory_gib": round(memory / 2**30),
        "kernel": os.uname().release,
        "postgres": postgres,
    }


def append(options):
    sizes = dict(size.split("=", 1) for size in options.size)
    text = pathlib.Path(options.report).read_text(encoding="utf-8")
    for part, body in re.findall(r"<!-- part: (\w+) -->\n(.*?)(?=<!-- part: |\Z)", text, re.DOTALL):
        found = tables(body)
        if not found:
            continue
        record = {
            "run": f"{part} {sizes[part]}" if part in sizes else part,
            "date": datetime.date.today().isoformat(),
            "commit": options.commit,
            "machine": machine(options.postgres),
            "command": options.command,
            "load_before": options.load,
            "tables": found,
        }
        HISTORY.mkdir(exist_ok=True)
        with open(HISTORY / f"{part}.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
        print(f"added to bench/history/{part}.jsonl: {record['run']}, {', '.join(found)}", file=sys.stderr)


def records(part):
    path = HISTORY / f"{part}.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def newest(run, title):
    """The newest record of a run that has the table; None if there is none."""
    found = [record for record in records(run.split(" ")[0]) if record["run"] == run and title in record["tables"]]
    return found[-1] if found else None


def write_tables():
    """Fills the marked tables of the document; returns the records shown, or fails for a marker without a record."""
    shown = {}

    def fill(match):
        run, title = match[1], match[2]
        record = newest(run, title)
        if record is None:
            sys.exit(f"docs/benchmarks.md: bench/history has no table '{title}' of '{run}'")
        shown.setdefault((record["run"], record["commit"], record["date"]), record)
        return f"<!-- bench: {run}: {title} -->\n{markdown_table(**record['tables'][title])}\n<!-- /bench -->"

    text = DOCUMENT.read_text(encoding="utf-8")
    text = re.sub(r"<!-- bench: ([^:\n]+): ([^\n]+) -->\n.*?<!-- /bench -->", fill, text, flags=re.DOTALL)
    rows = []
    for record in shown.values():
        of = record["machine"]
        where = f"{of['cpus']} CPUs ({of['cpu_model']}), {of['memory_gib']} GiB, Linux {of['kernel']}, {of['postgres']}"
        rows.append([record["run"], record["date"], record["commit"], where, record["load_before"], f"`{record['command']}`"])
    runs = markdown_table(["run", "date", "Cellar", "machine", "load before", "command"], rows).replace("---:", "---")
    text = re.sub(r"<!-- bench: runs -->\n.*?<!-- /bench -->", lambda _: f"<!-- bench: runs -->\n{runs}\n<!-- /bench -->", text, flags=re.DOTALL)
    DOCUMENT.write_text(text, encoding="utf-8")
    return list(shown.values())


def number(text):
    found = re.match(r"[\d.]+", text)
    return float(found[0]) if found and float(found[0]) > 0 else None


def value(record, title, column, row):
    """A cell's number, or the geometric mean of a column; None where the record lacks it."""
    table = record["tables"].get(title)
    if table is None:
        return None
    head = [name.removesuffix(", ms") for name in table["head"]]
    if column not in head:
        return None
    at = head.index(column)
    numbers = [number(cells_of_row[at]) for cells_of_row in table["rows"] if row in (None, cells_of_row[0])]
    numbers = [one for one in numbers if one]
    return math.exp(sum(map(math.log, numbers)) / len(numbers)) if numbers else None


def plot(part, unit, lines):
    """One SVG per part: the runs from left to right, a logarithmic axis."""
    runs = [record for record in records(part) if record["run"].endswith(("sf=1", part)) or part == "clickbench"][-SHOWN:]
    series = [(label, [value(record, title, column, row) for record in runs]) for label, title, column, row in lines]
    series = [(label, values) for label, values in series if any(values)]
    if not series:
        return
    width, height, left, right, top, bottom = 760, 320, 60, 170, 34, 52
    numbers = [one for _, values in series for one in values if one]
    low, high = math.log10(min(numbers)) - 0.1, math.log10(max(numbers)) + 0.1

    def x(index):
        return left + (width - left - right) * ((index + 0.5) / len(runs))

    def y(one):
        return height - bottom - (height - top - bottom) * (math.log10(one) - low) / (high - low)

    def text(x_at, y_at, content, more=""):
        return f'<text x="{x_at:.1f}" y="{y_at:.1f}" {more}>{html.escape(content)}</text>'

    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        text(left, 18, f"{part}: {unit}", 'font-size="13"'),
    ]
    steps = (1, 2, 5) if high - low > 1 else (1, 1.5, 2, 3, 4, 5, 6, 8)
    for exponent in range(math.floor(low), math.ceil(high) + 1):
        for step in steps:
            tick = step * 10.0**exponent
            if low <= math.log10(tick) <= high:
                svg.append(f'<line x1="{left}" x2="{width - right}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="#ddd"/>')
                svg.append(text(left - 6, y(tick) + 4, f"{tick:g}", 'text-anchor="end"'))
    for index, record in enumerate(runs):
        svg.append(text(x(index), height - bottom + 16, record["date"], 'text-anchor="middle"'))
        svg.append(text(x(index), height - bottom + 30, record["commit"], 'text-anchor="middle" fill="#666"'))
    ends = []
    for (label, values), colour in zip(series, COLOURS):
        points = [(x(index), y(one)) for index, one in enumerate(values) if one]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        svg.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        svg += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in points]
        last = next(one for one in reversed(values) if one)
        ends.append((y(last), colour, f"{label} {last:.0f}" if last >= 100 else f"{label} {last:.3g}"))
    below = top
    for at, colour, label in sorted(ends):
        below = max(at, below + 13)
        svg.append(text(width - right + 8, below + 4, label, f'fill="{colour}"'))
    IMAGES.mkdir(parents=True, exist_ok=True)
    (IMAGES / f"bench-{part}.svg").write_text("\n".join([*svg, "</svg>"]) + "\n", encoding="utf-8")


def report(_options):
    shown = write_tables()
    for part, (unit, lines) in PLOTS.items():
        plot(part, unit, lines)
    print(f"docs/benchmarks.md shows {len(shown)} runs of bench/history")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    commands = parser.add_subparsers(required=True)
    adding = commands.add_parser("append", help="add a report's tables to bench/history")
    adding.add_argument("report", help="a Markdown report of run.sh")
    adding.add_argument("--size", action="append", default=[], metavar="PART=TEXT", help="the size of a part's data, such as compression=sf=1")
    for name in ("commit", "postgres", "command", "load"):
        adding.add_argument(f"--{name}", required=True)
    adding.set_defaults(run=append)
    commands.add_parser("report", help="write docs/benchmarks.md and the plots").set_defaults(run=report)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
