#!/usr/bin/env python3
"""Draws a bar chart of query times, logarithmic, as an SVG that is readable on light and dark backgrounds.

  plot.py DATA.json > CHART.svg

DATA: {"title": text, "series": [name, ...], "queries": {name: [milliseconds of each series, ...], ...}}.
"""

import json
import math
import sys

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


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        data = json.load(file)
    series, queries = data["series"], data["queries"]
    values = [value for row in queries.values() for value in row]
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    span = WIDTH - LEFT - RIGHT

    def x(value):
        return LEFT + span * (math.log10(value) - first) / (last - first)

    group = BAR * len(series) + GAP
    bottom = TOP + group * len(queries)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 30}" role="img" aria-label="{data["title"]}">',
        f"<style>{STYLE}</style>",
        f'<text class="title" x="16" y="24">{data["title"]}</text>',
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
            out.append(f'<text class="value" x="{end + 6:.1f}" y="{y + index * BAR + 10}">{time:,}</text>')
    out.append("</svg>")
    print("\n".join(out))


main()
