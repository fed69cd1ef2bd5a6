#!/usr/bin/env python3
"""Checks the documentation against the code, so that neither changes alone. Needs no PostgreSQL and runs in seconds.
Unit tests of crates/cell check docs/reference/metrics.md and dist/.

  check.py [--root DIRECTORY] [AREA ...]

Areas: settings sql statistics waits config cli errors corners links words. Without an area, all of them are checked. Prints
one line per problem and exits with status 1 if there is any.

The reference pages in docs/reference/ follow one convention: an object is documented by its name in backticks, in the
first column of a table or in a heading. Each area compares those names with the names that the code defines, both ways.
An area that finds no names in the code reports that as a problem: the code has moved, and this file must follow.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

PROBLEMS = []
ROOT = Path(__file__).resolve().parents[2]


def problem(where, text):
    PROBLEMS.append(f"{where}: {text}")


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def tracked(*suffixes):
    """Paths of all files that git knows or would add, relative to the root."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [name for name in names if name.endswith(suffixes) and (ROOT / name).is_file()]


def without_code(text):
    """Markdown with the content of fenced blocks blanked; line numbers stay."""
    lines, fenced = [], False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
            line = ""
        lines.append("" if fenced else line)
    return lines


def rows(text):
    """The cells of every table row of a Markdown text, header rows excluded."""
    lines = without_code(text)
    for number, line in enumerate(lines):
        if not line.startswith("|") or re.fullmatch(r"[|\s:-]+", line):
            continue
        if number + 1 < len(lines) and re.fullmatch(r"\|[|\s:-]+", lines[number + 1]):
            continue
        yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def first_names(text):
    """Names in backticks in the first column of tables."""
    return [name for row in rows(text) for name in re.findall(r"`([^`]+)`", row[0])]


def compare(page, kind, in_code, in_page):
    if not in_code:
        problem("tests/docs/check.py", f"finds no {kind} in the code; adapt the parser")
        return
    for name in sorted(set(in_code) - set(in_page)):
        problem(page, f"{kind} `{name}` is not documented")
    for name in sorted(set(in_page) - set(in_code)):
        problem(page, f"{kind} `{name}` does not exist in the code")


# ---------------------------------------------------------------- settings


def check_settings():
    page = "docs/reference/settings.md"
    code = read("extension/settings.c")
    call = r'DefineCustom(\w+)Variable\(\s*"([^"]+)",(.*?)\w+, \w+, NULL\);'
    found = {}
    for kind, name, body in re.findall(call, code, re.S):
        arguments = re.search(r"&\w+,\s*([^,]+),(.*?)(PGC_\w+)", body, re.S)
        found[name] = (kind, arguments[1].strip(), arguments[3])
    compare(page, "setting", found, first_names(read(page)))
    for row in rows(read(page)):
        name = row[0].strip("`")
        if name not in found:
            continue
        kind, default, context = found[name]
        documented, changed = row[1].strip("`"), row[2]
        wanted = {"true": "on", "false": "off"}.get(default, default)
        if kind in ("Bool", "Real") or wanted.isdigit():
            number = re.match(r"\d+(?:\.\d+)?", documented)
            if documented != wanted and not (kind != "Bool" and number and float(number[0]) == float(wanted)):
                problem(page, f"default of `{name}` is {wanted}, documented as {documented}")
        reload = context == "PGC_SIGHUP"
        if reload != ("reload" in changed):
            problem(page, f"`{name}` is {context}, documented as changed by: {changed}")


# ---------------------------------------------------------------- SQL objects


def split_top_level(text):
    """Splits at commas outside of parentheses."""
    parts, depth, start = [], 0, 0
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [part.strip() for part in parts + [text[start:]] if part.strip()]


def flat(text):
    """The text with everything inside parentheses removed."""
    out, depth = [], 0
    for character in text:
        depth -= character == ")"
        if depth == 0:
            out.append(character)
        depth += character == "("
    return "".join(out)


def view_columns(body, functions):
    body = flat(body)
    select = re.search(r"\bSELECT\s+(?:DISTINCT ON \(\)\s*)?(.*?)\s+FROM\s+(\S+)", body, re.S)
    if select[1].strip() == "*":
        return functions[re.match(r"\w+\.(\w+)", select[2])[1]]
    return [re.search(r'"?(\w+)"?$', column)[1] for column in split_top_level(select[1])]


def sql_objects(schema):
    """Columns (OUT parameters, or the row type's columns) of every object of a schema of the extension, by name."""
    code = re.sub(r"--[^\n]*", "", "".join(read(path) for path in tracked(".sql") if re.match(r"extension/cellar--", path)))
    objects, functions = {}, {}
    table = rf"CREATE (?:TABLE|TYPE) {schema}\.(\w+)(?: AS)? \((.*?)\n?\)(?: PARTITION BY LIST \(\w+\))?;"
    for name, body in re.findall(table, code, re.S):
        columns = [re.match(r'"?(\w+)"?', part)[1] for part in split_top_level(body)]
        objects[name] = [column for column in columns if column not in ("PRIMARY", "CHECK", "UNIQUE")]
    for name in re.findall(rf"CREATE (?:DOMAIN|SEQUENCE) {schema}\.(\w+)", code):
        objects[name] = []
    for match in re.finditer(rf"CREATE (?:FUNCTION|PROCEDURE) {schema}\.(\w+)\(", code):
        depth, end = 1, match.end()
        while depth:
            depth += (code[end] == "(") - (code[end] == ")")
            end += 1
        parameters = split_top_level(code[match.end() : end - 1])
        out = [re.match(r'OUT\s+"?(\w+)"?', part)[1] for part in parameters if part.startswith("OUT")]
        # A function that returns a named type of this schema has the columns of that type.
        returned = re.match(rf"\s*RETURNS SETOF {schema}\.(\w+)\s", code[end:])
        functions[match[1]] = objects.get(returned[1], []) if returned and returned[1].endswith("_counters") else out
    objects.update(functions)
    for name, body in re.findall(rf"CREATE VIEW {schema}\.(\w+) AS(.*?);", code, re.S):
        objects[name] = view_columns(body, functions)
    for name in re.findall(rf"CREATE EVENT TRIGGER ({schema}_\w+)", code):
        objects[name] = []
    return objects


def check_sql():
    check_schema("docs/reference/sql.md", "cellar")
    check_schema("docs/reference/awr.md", "awr")


def check_schema(page, schema):
    """An object with a heading needs a description of each column; those in a list of names do not."""
    objects = sql_objects(schema)
    documented, current, named = {}, [], set()
    for line in without_code(read(page)):
        heading = re.match(r"#+ (.*)", line)
        if heading:
            current = re.findall(r"`(?:cellar\.|awr\.)?(\w+)[^`]*`", heading[1])
            inside = heading[1] in ("Internal objects", "Interval tables")
            documented.update((name, []) for name in current)
        elif line.startswith("| `"):
            names = re.findall(r"`([^`]+)`", line.split("|")[1])
            if inside:
                named.update(name.removeprefix(schema + ".") for name in names)
            for name in current:
                documented[name] += names
    compare(page, "SQL object", objects, set(documented) | named)
    for name in set(objects) & set(documented):
        missing, wrong = set(objects[name]) - set(documented[name]), set(documented[name]) - set(objects[name])
        if missing:
            problem(page, f"`{name}`: no description of {', '.join(sorted(missing))}")
        if wrong:
            problem(page, f"`{name}` has no {', '.join(sorted(wrong))}")


# ---------------------------------------------------------------- statistics and wait events


def check_statistics():
    page = "docs/reference/statistics.md"
    code = "".join(read(path) for path in tracked(".c", ".h") if path.startswith("extension/statistics/"))
    script = read("extension/cellar--1.0.sql")

    def array(name):
        found = re.search(name + r"\[\w*\]\s*=\s*\{(.*?)\};", code, re.S)
        return re.findall(r'"([^"]+)"', found[1]) if found else []

    statistics = array("cellar_statistic_names") + re.findall(r"SELECT '(physical [^']+)'", script)
    timed_by_cells = re.search(r"VALUES (.*?)\) e \(kind, event\)", script, re.S)
    events = array("cellar_wait_names") + re.findall(r", '([^']+)'\)", timed_by_cells[1] + ")")
    text = read(page)
    split = text.index("## Wait events")
    compare(page, "statistic", statistics, first_names(text[:split]))
    compare(page, "wait event", events, first_names(text[split:].split("\n## ")[0]))


# ---------------------------------------------------------------- cell.toml


def check_config():
    page = "docs/reference/cell-toml.md"
    code = read("crates/cell/src/config.rs")
    pattern = r"#\[derive\([^)]*Deserialize[^)]*\)\][^{}]*?struct (\w+) \{(.*?)\n\}"
    structs = {name: re.findall(r"^\s+(?:pub )?(\w+): (.*),$", body, re.M) for name, body in re.findall(pattern, code, re.S)}
    used = {inner for fields in structs.values() for _, kind in fields for inner in structs if re.search(rf"\b{inner}\b", kind)}
    keys = []

    def collect(name, prefix):
        for field, kind in structs[name]:
            inner = next((other for other in structs if re.search(rf"\b{other}\b", kind)), None)
            if inner:
                collect(inner, f"{prefix}{field}.")
            else:
                keys.append(prefix + field)

    for name in structs:
        if name not in used:
            collect(name, "")
    compare(page, "key", keys, first_names(read(page)))


# ---------------------------------------------------------------- command line


def check_cli():
    page = "docs/reference/cli.md"
    code = "\n".join(read(path) for path in tracked(".rs") if path.startswith("crates/cellar/src/"))
    options = set()
    for attribute, field in re.findall(r"#\[arg\(([^\]]*)\)\]\s*(?:pub )?(\w+):", code):
        if re.search(r"\blong\b", attribute):
            given = re.search(r'long = "([\w-]+)"', attribute)
            options.add("--" + (given[1] if given else field.replace("_", "-")))
    enums = re.findall(r"#\[derive\([^)]*Subcommand[^)]*\)\][^{}]*?enum \w+ \{\n(.*?)\n\}", code, re.S)
    variants = [name for body in enums for name in re.findall(r"^    (\w+)(?:\(.*\)| \{.*\})?,", body, re.M)]
    commands = {re.sub(r"(?<!^)([A-Z])", r"-\1", name).lower() for name in variants}
    if not commands:
        problem("tests/docs/check.py", "finds no command in the code; adapt the parser")
    documented = [name for row in rows(read(page)) for name in re.findall(r"--[\w-]+", row[0])]
    compare(page, "option", options, [name for name in documented if name not in ("--help", "--version")])
    text = read(page)
    for command in sorted(commands):
        if not re.search(rf"^## `cellar[^`]* {command}\b", text, re.M):
            problem(page, f"command `{command}` is not documented")


# ---------------------------------------------------------------- errors

# Error codes that the extension names by their macros.
ERRCODES = {
    "CONFIGURATION_LIMIT_EXCEEDED": "53400",
    "CONNECTION_FAILURE": "08006",
    "INSUFFICIENT_RESOURCES": "53000",
    "INTERNAL_ERROR": "XX000",
    "INVALID_NAME": "42602",
    "INVALID_PARAMETER_VALUE": "22023",
    "ACTIVE_SQL_TRANSACTION": "25001",
    "ADMIN_SHUTDOWN": "57P01",
    "CONFIG_FILE_ERROR": "F0000",
    "NULL_VALUE_NOT_ALLOWED": "22004",
    "OBJECT_IN_USE": "55006",
    "INDEX_CORRUPTED": "XX002",
    "OBJECT_NOT_IN_PREREQUISITE_STATE": "55000",
    "OPERATOR_INTERVENTION": "57000",
    "PROTOCOL_VIOLATION": "08P01",
    "QUERY_CANCELED": "57014",
    "READ_ONLY_SQL_TRANSACTION": "25006",
    "T_R_DEADLOCK_DETECTED": "40P01",
    "UNDEFINED_TABLE": "42P01",
    "WRONG_OBJECT_TYPE": "42809",
}
STRING = r'"((?:[^"\\]|\\.)*)"'


def normal(message):
    """A message with every variable part replaced by an ellipsis."""
    message = message.replace('\\"', '"')
    message = re.sub(r"%[-0-9.]*(?:l|z)*[dsuXx]|\" UINT64_FORMAT \"|\{[^}]*\}", "…", message)
    return re.sub(r"\s+", " ", message).strip()


def code_errors():
    """SQLSTATE (None: any) by message, of errors that reach a client or the server's log."""
    found = {}
    for path in tracked(".c"):
        if not path.startswith("extension/"):
            continue
        for statement in re.findall(r"ereport\((?:FATAL|ERROR|WARNING|LOG|NOTICE),(.*?)\)\);", read(path), re.S):
            message = re.search(r"errmsg\(\s*((?:" + STRING + r"\s*)+)", statement)
            text = normal("".join(re.findall(STRING, message[1]))) if message else ""
            code = re.search(r"errcode\(ERRCODE_(\w+)\)", statement)
            if code and code[1] not in ERRCODES:
                problem("tests/docs/check.py", f"does not know ERRCODE_{code[1]}; add its SQLSTATE")
            if text and text != "…":
                found[text] = ERRCODES.get(code[1]) if code else None
    for path in tracked(".rs"):
        if not re.match(r"crates/(cell|client)/src/", path):
            continue
        code = read(path).split("#[cfg(test)]")[0]
        pairs = re.findall(r'"([0-9][0-9A-Z]{4}|XX00[01])"(?:\.to_owned\(\))?,\s*(?:message:\s*)?(?:format!\()?' + STRING, code)
        found.update((normal(message), sqlstate) for sqlstate, message in pairs)
    return found


def check_errors():
    page = "docs/reference/errors.md"
    found = code_errors()
    documented = {}
    text = read(page)
    messages, reasons = text.split("## Why a scan is not offloaded")
    for row in rows(messages):
        for name in re.findall(r"`([^`]+)`", row[0]):
            documented[name] = row[1].strip("`") if len(row) > 1 else ""
    compare(page, "message", found, documented)
    for message in set(found) & set(documented):
        if found[message] and documented[message] != found[message]:
            problem(page, f"`{message}` has SQLSTATE {found[message]}, documented as {documented[message]}")
    code = "\n".join(read(path).replace('\\"', '"') for path in tracked(".c", ".h") if path.startswith("extension/"))
    for reason in first_names(reasons):
        for fragment in reason.split("…"):
            if fragment.strip('"') not in code:
                problem(page, f"reason `{reason}` does not exist in the code")
    # Functions of planner and executor return a reason, set it, or reject an expression with it.
    assigned = r'(?:\breturn|(?:reason|fallback)\s*=|reject\(context,)\s*(?:psprintf\()?' + STRING
    given = set()
    for path in tracked(".c"):
        if path.startswith(("extension/planner/", "extension/executor/")):
            given.update(normal(reason) for reason in re.findall(assigned, read(path)) if " " in reason)
    known = first_names(reasons)
    if not given:
        problem("tests/docs/check.py", "finds no reason in the code; adapt the parser")
    for reason in sorted(given):
        if not any(reason == name.strip('"') or reason in name for name in known):
            problem(page, f"reason `{reason}` is not documented")
    # What the daemon prints; the operations guide quotes parts of messages.
    rust = "\n".join(re.sub(r"\\\n\s*", "", read(path)) for path in tracked(".rs") if path.startswith("crates/"))
    for fragment in first_names(read("docs/operations.md")):
        if fragment not in rust:
            problem("docs/operations.md", f"message `{fragment}` does not exist in the code")


# ---------------------------------------------------------------- corners


def check_corners():
    """The scenarios of corners.sh are the names in backticks in the last column of the page's tables."""
    page, script = "docs/compatibility.md", read("tests/compression/corners.sh")
    in_page = [name for row in rows(read(page)) for name in re.findall(r"`(\w+)`$", row[-1])]
    compare(page, "scenario", re.findall(r"^corner_(\w+)\(\)", script, re.M), in_page)


# ---------------------------------------------------------------- links and paths

# What builds and runs leave behind, and what a reader is told to create.
GENERATED = ("bench/results", "bench/.work", "bench/.venv", "target/", "docs/reference/new")


def slug(heading):
    text = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", lambda match: match[1] or "", heading).strip().lower()
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", text))


def anchors(path):
    found = set()
    for line in without_code(path.read_text(encoding="utf-8")):
        heading = re.match(r"#+ (.*)", line)
        if heading:
            found.add(slug(heading[1]))
    return found


def check_links():
    for name in tracked(".md"):
        text = read(name)
        here = (ROOT / name).parent
        targets = re.findall(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)|<img[^>]*src=\"([^\"]+)\"", "\n".join(without_code(text)))
        for target in (one or other for one, other in targets):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = (here / path).resolve() if path else ROOT / name
            if not file.exists():
                problem(name, f"link to {target}: no such file")
            elif anchor and file.suffix == ".md" and anchor not in anchors(file):
                problem(name, f"link to {target}: no such heading")
        for path in re.findall(r"`((?:crates|extension|tests|docs|scripts|bench|dist|fuzz)/[\w./@-]+)`", text):
            if not path.startswith(GENERATED) and not (ROOT / path.rstrip("/")).exists():
                problem(name, f"names `{path}`, which does not exist")


# ---------------------------------------------------------------- wait classes


def check_waits():
    script = ROOT / "scripts/wait-classes.py"
    result = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    for line in result.stdout.splitlines():
        problem("scripts/wait-classes.py", line)
    if result.returncode != 0 and not result.stdout:
        problem("scripts/wait-classes.py", result.stderr.strip())


# ---------------------------------------------------------------- words

FORBIDDEN = (
    r"anew",
    r"whoever|whomever",
    r"some ?body",
    r"no ?body",
    r"be it",
    r"let(?:s|ting)? go of",
    r"fore(?:told|tells?|telling)",
    r"learnt",
    r"of late",
    r"the like",
    r"lest",
    r"gives? back|given back|gave back",
    r"(?:is|are|was|were) asked for",
    r"what there is",
    r"as it lies|as they lie",
    r"no more than this",
    r"dear(?:er|est)?",
    r"takes? up",
    r"so many",
    r"that much",
    r"of (?:its|their) own",
)
# These quote the words that they forbid.
QUOTING = ("tests/docs/check.py", "STYLE.md")


def check_words():
    pattern = re.compile(r"\b(?:" + "|".join(FORBIDDEN) + r")\b", re.I)
    for name in tracked(".md", ".rs", ".c", ".h", ".sh", ".sql", ".py"):
        if name in QUOTING or name.startswith(("bench/tpch/", "extension/expected/")):
            continue
        text = read(name)
        # A phrase may continue on the next line, behind a comment's marker.
        joined = re.sub(r"\n\s*(?:///?!?|\*|#|--)?[ \t]*", lambda match: " " + "\n" * match[0].count("\n"), text)
        joined = joined.replace(" \n", "\n ")
        for match in re.finditer(pattern.pattern.replace(" ", r"\s+"), joined, re.I):
            line = joined[: match.start()].count("\n") + 1
            problem(f"{name}:{line}", f"avoid \"{' '.join(match[0].split())}\"")


AREAS = {
    "settings": check_settings,
    "sql": check_sql,
    "statistics": check_statistics,
    "waits": check_waits,
    "config": check_config,
    "cli": check_cli,
    "errors": check_errors,
    "corners": check_corners,
    "links": check_links,
    "words": check_words,
}


def main():
    global ROOT
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository to check")
    parser.add_argument("areas", nargs="*", metavar="AREA", choices=[[], *AREAS], help=" ".join(AREAS))
    options = parser.parse_args()
    ROOT = options.root.resolve()
    for area in options.areas or AREAS:
        before = len(PROBLEMS)
        AREAS[area]()
        print(f"{area}: {'ok' if len(PROBLEMS) == before else f'{len(PROBLEMS) - before} problems'}")
    for line in PROBLEMS:
        print(line)
    return 1 if PROBLEMS else 0


if __name__ == "__main__":
    sys.exit(main())
