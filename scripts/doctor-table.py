#!/usr/bin/env python3
"""The table of docs/doctor.md: the planted bugs of crates/mallard-cli/tests/bugs under `mallard
doctor`, valgrind and AddressSanitizer: what each says, at which line, and the seconds of CPU time in
user mode that it takes; and the cost of each on programs without a bug.

    scripts/doctor-table.py [--mallard target/release/mallard] [--runs 3]
"""
import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

BUGS = ["overflow", "copy", "threads", "owners", "iterator", "mismatch", "stack", "library",
        "cache", "page"]
WHAT = {
    "overflow": "overflow by one element",
    "copy": "string copied without room for its zero",
    "threads": "use after free across threads",
    "owners": "double free by two owners",
    "iterator": "pointer into a vector that grew",
    "mismatch": "`delete` of what `new[]` gave",
    "stack": "free of a buffer on the stack",
    "library": "a library's buffer freed by the program",
    "cache": "race on a cache",
    "page": "overflow by 4 KiB",
}
FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                      "crates/mallard-cli/tests/bugs")
PERL = ("my %n; for my $i (1..600000) { my $w = 'w' . ($i * 7919 % 50021); $n{$w} .= 'x'; "
        "$n{$w} = '' if length $n{$w} > 40 } print scalar(keys %n), \"\\n\"")


def source(name):
    for end in ("c", "cpp"):
        path = os.path.join(FOLDER, f"{name}.{end}")
        if os.path.exists(path):
            return path
    raise SystemExit(f"{name}: no source")


def build(name, into, flags):
    """Builds a program; -g and -O1 as a program under test has them."""
    path = source(name)
    compiler = "g++" if path.endswith("cpp") else "gcc"
    flags = ["-g", "-O1", "-w", "-pthread", *flags]
    extra = []
    if name == "library":
        library = os.path.join(into, "libnames.so")
        subprocess.run([compiler, *flags, "-fPIC", "-shared", source("names"), "-o", library],
                       check=True)
        extra = [library]
    program = os.path.join(into, name)
    subprocess.run([compiler, *flags, path, "-o", program, *extra], check=True)
    return program


def marked(name):
    """The places that a report should have: FILE:LINE of the comments BUG and FREED."""
    places = []
    for other in [name] + (["names"] if name == "library" else []):
        with open(source(other)) as file:
            for number, line in enumerate(file, 1):
                if re.search(r"\b(BUG|FREED)\b", line):
                    places.append(f"{os.path.basename(source(other))}:{number}")
    return places


def run(words, env=None):
    """Runs a command: what it says, the wall time, and its user time with that of its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    began = time.monotonic()
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600,
                          env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL)
    took = time.monotonic() - began
    user = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    return done.stdout.decode(errors="replace"), took, user


def least(words, runs, env=None):
    """The least times of some runs."""
    all_runs = [run(words, env) for _ in range(runs)]
    return all_runs[0][0], min(it[1] for it in all_runs), min(it[2] for it in all_runs)


def doctor(mallard, program, name, repeat):
    text, _, took = run([mallard, "doctor", "--json", "--repeat", str(repeat), "--", program])
    found = json.loads(text[text.index("{\n"):])
    places = marked(name)
    for finding in found["findings"]:
        at = finding["at"] or {}
        place = f"{os.path.basename(at.get('file', ''))}:{at.get('line')}"
        if place in places:
            return f"{finding['kind']}, run {finding['run']}", took
    return "**not at its line**" if found["findings"] else "**nothing**", took


def other(text, name, pattern):
    """What another tool says first, and whether a place of the bug is in its text."""
    said = re.search(pattern, text)
    if not said:
        return "nothing"
    is_at = any(place in text for place in marked(name))
    return said.group(1).strip() + ("" if is_at else " (elsewhere)")


def main():
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--mallard", default="target/release/mallard")
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--part", choices=["bugs", "cost"], help="one of both tables")
    options.add_argument("--rounds", default="40", help="of the program without a bug")
    options = options.parse_args()
    mallard = os.path.abspath(options.mallard)
    valgrind = shutil.which("valgrind")
    if not valgrind:
        print("skipped: valgrind is not installed", file=sys.stderr)
    tool = ["valgrind", "--error-exitcode=9", "-q"]
    with tempfile.TemporaryDirectory() as folder:
        plain, asan = os.path.join(folder, "plain"), os.path.join(folder, "asan")
        os.mkdir(plain)
        os.mkdir(asan)
        print("| bug | `mallard doctor` | s | valgrind | s | AddressSanitizer (rebuilt) | s |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for name in [] if options.part == "cost" else BUGS:
            program = build(name, plain, [])
            cells = []
            said, took = doctor(mallard, program, name, 5)
            cells += [said, f"{took:.1f}"]
            if valgrind:
                text, _, took = run([*tool, program])
                cells += [other(text, name, r"==\d+== (Invalid [^\n]*|Mismatched [^\n]*)"),
                          f"{took:.1f}"]
            else:
                cells += ["–", "–"]
            checked = build(name, asan, ["-fsanitize=address"])
            text, _, took = run([checked])
            cells += [other(text, name, r"AddressSanitizer: (attempting [a-z -]+|[a-z-]+)"),
                      f"{took:.1f}"]
            print(f"| {WHAT[name]} | " + " | ".join(cells) + " |", flush=True)
        print()
        print("| program without a bug | plain | doctor, both runs | valgrind | AddressSanitizer |")
        print("| --- | --- | --- | --- | --- |")
        words = build("words", plain, [])
        words_asan = build("words", asan, ["-fsanitize=address"])
        rows = [("counting words in C", [words, options.rounds], [words_asan, options.rounds])]
        if options.part == "bugs":
            rows = []
        elif shutil.which("perl"):
            rows.append(("perl, strings in a hash", ["perl", "-e", PERL], None))
        if rows and shutil.which("python3"):
            code = "d={}\nfor i in range(400000): d.setdefault(i%9973,[]).append(str(i))\nprint(len(d))"
            rows.append(("python3 on malloc", ["env", "PYTHONMALLOC=malloc", "python3", "-c", code],
                         None))
        for name, plainly, rebuilt in rows:
            _, _, base = least(plainly, options.runs)
            cells = [f"{base:.2f} s"]
            _, _, user = least([mallard, "doctor", "--", *plainly], options.runs)
            cells.append(f"{user / base:.1f}")
            if valgrind:
                _, _, user = run([*tool, "--trace-children=yes", *plainly])
                cells.append(f"{user / base:.0f}")
            else:
                cells.append("–")
            if rebuilt:
                _, _, user = least(rebuilt, options.runs, {"ASAN_OPTIONS": "detect_leaks=0"})
                cells.append(f"{user / base:.1f}")
            else:
                cells.append("cannot be rebuilt")
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
