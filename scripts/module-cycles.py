#!/usr/bin/env python3
"""Finds cycles among sibling modules of the workspace's crates. Prints them and fails when there is one.

Siblings are the modules of one folder, and the top-level modules of a crate. A file depends on the modules that its
`crate::` and `super::` paths name. Not counted: references of a parent (`lib.rs`, `mod.rs`) to its children and of
children to items of their parent, which every module tree has; tests; comments.

A comment `// module cycle: REASON` on a reference, or on the lines above, excuses the dependency of that module on the
other one. An excuse for a dependency that is in no cycle is an error too.
"""

import collections
import pathlib
import re
import sys

EXCUSE = "// module cycle:"
PATH = re.compile(r"\b(crate|super(?:::super)*)::(?=[\w{])")
TESTS = re.compile(r"^#\[cfg\(test\)\]\s*mod \w+ \{.*\Z", re.DOTALL | re.MULTILINE)
TEST_FILE = re.compile(r"^#\[cfg\(test\)\]\s*mod (\w+);", re.MULTILINE)


def paths(text, at):
    """The paths that start at an offset, as lists of segments: `a::{b, c::D}` has two. Returns them and where they end."""
    segments = []
    while True:
        word = re.compile(r"\w+|\*").match(text, at)
        if word:
            segments.append(word[0])
            at = word.end()
        elif text[at : at + 1] == "{":
            found, at = [], at + 1
            while at < len(text) and text[at] != "}":
                inside, after = paths(text, at)
                found += [segments + path for path in inside]
                at = max(after, at + 1) if text[after : after + 1] not in "}" else after
            return found, at + 1
        if text[at : at + 2] != "::":
            return [segments], at
        at += 2


def references(text, module):
    """Yields the absolute module path and the line of each reference in a file of `module`."""
    for start in PATH.finditer(text):
        base = [] if start[1] == "crate" else list(module[: len(module) - start[1].count("super")])
        for path in paths(text, start.end())[0]:
            yield (*base, *path), text.count("\n", 0, start.start())


def without_comments(lines):
    return "\n".join(re.sub(r"(^|\s)//.*", "", line) for line in lines)


def excused(lines, number):
    """Whether the line, or the comment or the statement's lines above it, has an excuse."""
    while number >= 0 and lines[number].strip():
        if EXCUSE in lines[number]:
            return True
        number -= 1
        if number < 0 or not lines[number].lstrip().startswith("//"):
            return False
    return False


def module_of(file, source):
    parts = file.relative_to(source).with_suffix("").parts
    return parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts


def graphs(source):
    """For each parent module: sibling -> sibling -> the places of its references, and the excused pairs."""
    files = {file: module_of(file, source) for file in sorted(source.rglob("*.rs")) if "tests" not in file.parts[-2:]}
    tests = {(*module, name) for file, module in files.items() for name in TEST_FILE.findall(file.read_text("utf-8"))}
    files = {
        file: module
        for file, module in files.items()
        if "tests" not in module and not any(module[: len(test)] == test for test in tests)
    }
    modules = {module[:depth] for module in files.values() for depth in range(len(module) + 1)}
    edges = collections.defaultdict(lambda: collections.defaultdict(lambda: collections.defaultdict(list)))
    excuses = {}
    for file, module in files.items():
        lines = TESTS.sub("", file.read_text(encoding="utf-8")).splitlines()
        for target, line in references(without_comments(lines), module):
            common = 0
            while common < min(len(module), len(target)) and module[common] == target[common]:
                common += 1
            if common in (len(module), len(target)) or target[: common + 1] not in modules:
                continue
            parent, this, that = module[:common], module[common], target[common]
            place = f"{file}:{line + 1}"
            edges[parent][this][that].append(place)
            if excused(lines, line):
                excuses[parent, this, that] = place
    return edges, excuses


def cycles(graph):
    """The strongly connected components of more than one module."""
    reach = {}
    for start in graph:
        seen, stack = set(), [start]
        while stack:
            for other in graph.get(stack.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    stack.append(other)
        reach[start] = seen
    together = {frozenset(b for b in reach if b in reach[a] and a in reach[b]) for a in reach}
    return [sorted(component) for component in together if len(component) > 1]


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    failed = False
    for source in sorted(root.glob("crates/*/src")) + [root / "tests/harness/src"]:
        edges, excuses = graphs(source)
        for parent, graph in edges.items():
            name = "::".join((source.parent.name, *parent))
            for pair in [(this, that) for above, this, that in excuses if above == parent]:
                if not any(set(pair) <= set(cycle) for cycle in cycles(graph)):
                    failed = True
                    print(f"{excuses[parent, *pair]}: this excuse is not needed: {' -> '.join(pair)} is in no cycle")
            kept = {
                this: {that for that in targets if (parent, this, that) not in excuses} for this, targets in graph.items()
            }
            for cycle in cycles(kept):
                failed = True
                print(f"{name}: modules {', '.join(cycle)} depend on each other")
                for this in cycle:
                    for that in sorted(kept[this].intersection(cycle)):
                        places = list(dict.fromkeys(place.removeprefix(f"{root}/") for place in graph[this][that]))
                        more = f" and {len(places) - 2} more" if len(places) > 2 else ""
                        print(f"    {this} -> {that}: {', '.join(places[:2])}{more}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
