#!/usr/bin/env python3
"""Writes what follows from tests/awr/wait_events.tsv: the function awr.wait_class of the extension, and the page
docs/reference/wait-classes.md.

  wait-classes.py [--check]

With --check, writes nothing, and exits with status 1 if a file differs.
"""

import itertools
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EVENTS = "tests/awr/wait_events.tsv"
EXTENSION = "extension/cellar--1.0--1.1.sql"
PAGE = "docs/reference/wait-classes.md"
WIDTH = 130

BEGIN = "RETURN CASE\n    WHEN wait_event IS NULL THEN 'CPU'\n"
END = "COMMENT ON FUNCTION awr.wait_class("
# Names that no list contains: wait events of extensions.
OWN = """    WHEN wait_event LIKE 'cell %' THEN 'User I/O'
    WHEN wait_event LIKE 'enq: KO%' THEN 'Application'
"""
OTHERS = """    -- Other LWLocks belong to extensions.
    WHEN wait_event_type = 'LWLock' THEN 'Concurrency'
    ELSE 'Other' END;

"""

INTRODUCTION = """# Wait classes

The class of each wait event of PostgreSQL 15 to 19 in AWR reports, ASH reports and `cellar top`. The classes are Oracle's.
`awr.wait_class` returns the class of an event. Some events have one class in foreground processes (client sessions and their
parallel workers) and another one in background processes. Version 17 spelled many names differently.

Wait events that are not listed belong to extensions. Those of Cellar have the class User I/O, except `enq: KO - fast object
checkpoint` (Application); LWLocks have the class Concurrency, and all others the class Other.

`scripts/wait-classes.py` writes this page and the function from `tests/awr/wait_events.tsv`. The extension's test
`wait_events` fails if a server has a wait event that the file does not contain.

"""


def events():
    lines = (ROOT / EVENTS).read_text(encoding="utf-8").splitlines()
    return [tuple(line.split("\t")) for line in lines[1:]]


def literals(names, indent):
    """An SQL list of strings, broken into lines."""
    lines, line = [], ""
    for name in names:
        item = f"'{name}', "
        if len(indent) + len(line) + len(item) > WIDTH:
            lines.append(line.rstrip())
            line = ""
        line += item
    lines.append(line.rstrip(", "))
    return f"\n{indent}".join(lines)


def function():
    text = OWN
    kind = lambda row: (row[0], row[3], row[4])
    for (wait_type, session, background), rows in itertools.groupby(sorted(events(), key=kind), key=kind):
        names = literals([row[1] for row in rows], " " * 6)
        result = f"'{session}'" if session == background else f"CASE WHEN foreground THEN '{session}' ELSE '{background}' END"
        text += f"    WHEN wait_event_type = '{wait_type}' AND wait_event IN (\n      {names})\n      THEN {result}\n"
    return text + OTHERS


def extension():
    text = (ROOT / EXTENSION).read_text(encoding="utf-8")
    start = text.index(BEGIN, text.index("CREATE FUNCTION awr.wait_class(")) + len(BEGIN)
    return text[:start] + function() + text[text.index(END, start) :]


def page():
    text = INTRODUCTION
    for wait_type, rows in itertools.groupby(events(), key=lambda row: row[0]):
        text += f"## {wait_type}\n\n| wait event | foreground | background | versions |\n|---|---|---|---|\n"
        text += "".join(f"| {row[1]} | {row[3]} | {row[4]} | {row[2]} |\n" for row in rows) + "\n"
    return text.rstrip("\n") + "\n"


def main():
    check = "--check" in sys.argv[1:]
    differs = False
    for path, text in ((EXTENSION, extension()), (PAGE, page())):
        file = ROOT / path
        if file.exists() and file.read_text(encoding="utf-8") == text:
            continue
        differs = True
        if check:
            print(f"{path}: does not follow from {EVENTS}; run scripts/wait-classes.py")
        else:
            file.write_text(text, encoding="utf-8")
    sys.exit(1 if check and differs else 0)


if __name__ == "__main__":
    main()
