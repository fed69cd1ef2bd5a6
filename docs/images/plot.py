#!/usr/bin/env python3
"""Draws the README's bar chart, tpch-scans.svg: times of five scans, on a logarithmic scale.

The data are the newest table "One thread" of bench/history/compression.jsonl at scale factor 1. The SVG is readable on
light and dark backgrounds.
"""

import json
import math
from pathlib import Path

HERE = Path(__file__).resolve().parent
HISTORY = HERE.parents[1] / "bench/history/compression.jsonl"
TITLE = "Scans of lineitem, TPC-H scale factor 1, one thread: milliseconds, logarithmic scale"
# A column of the table, and its name in the chart.
SERIES = {
    "Postgres": "PostgreSQL 15",
    "heap": "Smart Scan, heap",
    "query low": "Smart Scan, QUERY LOW",
    "DuckDB": "DuckDB 2.0",
}

WIDTH, TOP, LEFT, RIGHT = 880, 78, 70, 76
BAR, GAP = 15, 22
COLOURS = ["#8a94a3", "#4c8dd6", "#1f9d6b", "#d98a2b"]
STYLE = """
  text { font: 13px system-ui, "DejaVu Sans", sans-serif; fill: #24292f; }
  .title { font-size: 14px; font-weight: 600; }
  .value, .axis { font-size: 11px; }
  .axis { fill: #6e7781; }
  .grid { stroke: #d0d7de; stroke-width: 1; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .axis { fill: #9198a1; } .grid { stroke: #3d444d; }
  }
"""


def scans():
    """Milliseconds of each series, by query."""
    records = [json.loads(line) for line in HISTORY.read_text(encoding="utf-8").splitlines()]
    tables = [record["tables"] for record in records if record["run"] == "compression sf=1"]
    table = next(one["One thread"] for one in reversed(tables) if "One thread" in one)
    columns = [table["head"].index(name) for name in SERIES]
    return {row[0]: [float(row[column]) for column in columns] for row in table["rows"]}


def main():
    series, queries = list(SERIES.values()), scans()
    values = [value for row in queries.values() for value in row]
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    span = WIDTH - LEFT - RIGHT

    def x(value):
        return LEFT + span * (math.log10(value) - first) / (last - first)

    group = BAR * len(series) + GAP
    bottom = TOP + group * len(queries)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 30}" role="img" aria-label="{TITLE}">',
        f"<style>{STYLE}</style>",
        f'<text class="title" x="16" y="24">{TITLE}</text>',
    ]
    for index, name in enumerate(series):
        at = LEFT + index * (WIDTH - LEFT - 40) / len(series)
        out.append(f'<rect x="{at:.0f}" y="42" width="12" height="12" rx="2" fill="{COLOURS[index]}"/>')
        out.append(f'<text x="{at + 18:.0f}" y="53">{name}</text>')
    for power in range(first, last + 1):
        at = x(10**power)
        out.append(f'<line class="grid" x1="{at:.1f}" y1="{TOP - 8}" x2="{at:.1f}" y2="{bottom}"/>')
        out.append(f'<text class="axis" x="{at:.1f}" y="{bottom + 18}" text-anchor="middle">{10 ** power:,} ms</text>')
    for row, (query, times) in enumerate(queries.items()):
        y = TOP + row * group
        out.append(f'<text x="{LEFT - 12}" y="{y + BAR * len(series) / 2 + 4:.0f}" text-anchor="end">{query}</text>')
        for index, time in enumerate(times):
            end = x(time)
            out.append(
                f'<rect x="{LEFT}" y="{y + index * BAR}" width="{max(end - LEFT, 1):.1f}" height="{BAR - 3}" rx="2" fill="{COLOURS[index]}"/>'
            )
            out.append(f'<text class="value" x="{end + 6:.1f}" y="{y + index * BAR + 10}">{time:,g}</text>')
    out.append("</svg>")
    (HERE / "tpch-scans.svg").write_text("\n".join(out) + "\n", encoding="utf-8")


main()
