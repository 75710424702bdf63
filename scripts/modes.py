#!/usr/bin/env python3
"""Measures what modes of Mallard cost, beside hardened allocators and an older build of itself.

    scripts/modes.py programs [FOLDER]           nine real programs: each mode and rival
    scripts/modes.py suite COMMIT|FILE [FOLDER]  all rows of `bench full`: now beside that build
    scripts/modes.py suite-modes [FOLDER]        the same rows: hardened beside plain and the rivals
    scripts/modes.py instructions [FOLDER]       instructions of five programs: on any machine
    scripts/modes.py table FOLDER                the table of what such a command left there

The commands but `instructions` need a quiet machine. `programs` takes about 16 minutes on two CPUs,
`suite` and `suite-modes` 25 at most. Options come last:

    --runs N       rounds of Mallard's builds or modes (9, in `suite-modes` 5); rivals get a third
    --quick        little work: a trial of the script, no measurement
    --rows A,B     only these rows
    --mode N=OPTS  a further mode of Mallard, such as --mode fences=fence:true

MALLARD names the command of the lab (default: a release build of this checkout). A mode that the
library refuses, a rival that cannot be built and a program that is not installed are named and left
out. FOLDER (default: modes-results) gets table.md, table.json and the lab's own results.

Ratios are to plain Mallard, round by round in one session: the median of the rounds' ratios, and
behind it that of the best rounds, in parentheses.
"""

import json
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ["lua", "perl", "python3", "ruby", "sqlite3", "z3", "redis", "nginx", "cxx"]
MODES = {"guards": "guard_sample:65536,guard_rate:50", "hardened": "hardened:true"}
RIVALS = [
    "hardened_malloc",
    "hardened_malloc-light",
    "scudo",
    "snmalloc-checked",
    "mimalloc-secure",
]
PLAIN = "mallard"
# Above these, a ratio is marked: in the A/B of two builds, of a mode on programs and on the suite.
ROW_LIMIT, PROGRAM_LIMIT, SUITE_LIMIT, MEMORY_LIMIT = 1.02, 1.15, 1.45, 1.20


def say(text):
    print(text, file=sys.stderr, flush=True)


def fail(text):
    sys.exit(f"modes.py: {text}")


class Options:
    """What the command line says."""

    def __init__(self, words):
        self.runs, self.quick, self.rows, self.modes = None, False, [], dict(MODES)
        self.words = []
        words = iter(words)
        for word in words:
            value = next(words, "") if word in ("--runs", "--rows", "--mode") else None
            if word == "--quick":
                self.quick = True
            elif value == "":
                fail(f"{word} needs a value")
            elif word == "--runs":
                self.runs = int(value)
            elif word == "--rows":
                self.rows = value.split(",")
            elif word == "--mode":
                name, _, options = value.partition("=")
                self.modes[name] = options
            elif word.startswith("-"):
                fail(f"unknown option {word}")
            else:
                self.words.append(word)

    def folder(self, index):
        folder = self.words[index] if len(self.words) > index else "modes-results"
        folder = pathlib.Path(folder).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        return folder


class Lab:
    """The command `mallard`."""

    def __init__(self):
        self.command = os.environ.get("MALLARD")
        if not self.command:
            manifest = str(ROOT / "Cargo.toml")
            build = ["cargo", "build", "--release", "--locked", "--manifest-path", manifest]
            subprocess.run([*build, "-p", "mallard-cli"], check=True)
            target = os.environ.get("CARGO_TARGET_DIR") or ROOT / "target"
            self.command = str(pathlib.Path(target) / "release/mallard")

    def answer(self, *words):
        """Whether the command succeeds, and what it says last."""
        done = subprocess.run([self.command, *words], capture_output=True, text=True)
        lines = (done.stdout + done.stderr).strip().splitlines()
        return done.returncode == 0, lines[-1] if lines else ""

    def library(self):
        done = subprocess.run(
            [self.command, "allocators", "--json", "list", PLAIN], capture_output=True, text=True
        )
        return json.loads(done.stdout)[0]["file"]

    def modes(self, modes):
        """The words that choose those modes which the library knows, and what is left out."""
        words, skipped = [], []
        for name, options in modes.items():
            known, reason = self.answer("run", "--conf", options, "--", "true")
            if known:
                words += ["--variant", f"{name}={PLAIN}:{options}"]
            else:
                skipped.append(f"{name}: {reason}")
        return words, skipped

    def rivals(self):
        ready, skipped = [], []
        for name in RIVALS:
            built, reason = self.answer("allocators", "build", name)
            if built:
                ready.append(name)
            else:
                skipped.append(f"{name}: {reason}")
        return ready, skipped

    def bench(self, folder, rows, runs, words, quick):
        """Runs rows of the suite; returns the results. What fails of them is in there."""
        command = [self.command, "bench", *rows, "-r", str(runs), "-o", str(folder), *words]
        subprocess.run(command + (["--quick"] if quick else []), stdout=sys.stderr)
        results = folder / "results.json"
        if not results.exists():
            fail(f"no results: {' '.join(command)}")
        return json.loads(results.read_text())


# Figures of a run.
def seconds(run):
    return run["seconds"]


def cpu(run):
    return run["user_seconds"] + run["system_seconds"]


def memory(run):
    return run["peak_rss_bytes"]


def ratios(cell, base, figure):
    """The median of the rounds' ratios to `base`, and the ratio of the best rounds."""
    pairs = [(figure(a), figure(b)) for a, b in zip(cell["runs"], base["runs"])]
    pairs = [(a, b) for a, b in pairs if a and b]
    if not pairs:
        return None
    best = min(a for a, _ in pairs) / min(b for _, b in pairs)
    return {"median": statistics.median(a / b for a, b in pairs), "best": best}


def mean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def compare(results, base, figures):
    """For each row and allocator the ratios of each figure; the second value is what is missing."""
    rows, missing = {}, []
    for row in results["experiments"][0]["rows"]:
        cells = {cell["allocator"]: cell for cell in row["cells"]}
        plain = cells.get(base)
        for name, cell in cells.items():
            if cell["failure"]:
                missing.append(f"{row['label']} on {name}: {cell['failure']['reason']}")
            elif plain and not plain["failure"]:
                entry = rows.setdefault(row["label"], {})
                entry[name] = {key: ratios(cell, plain, of) for key, of in figures.items()}
        if plain and not plain["failure"]:
            runs = plain["runs"]
            entry = rows[row["label"]]
            entry[base]["seconds"] = statistics.median(map(seconds, runs))
            entry[base]["bytes"] = statistics.median(map(memory, runs))
    return rows, missing


def table(title, rows, base, names, key, limit, shown=None):
    """Markdown: a line for each row, the geometric mean below. `shown` is the base's own figure."""
    columns = [base, *names] if shown else names
    lines = [f"### {title}", "", "| row | " + " | ".join(columns) + " |"]
    lines.append("| --- |" + " ---: |" * len(columns))
    for label, cells in rows.items():
        line = f"| {label} |" + (f" {shown(cells[base])} |" if shown else "")
        for name in names:
            found = cells.get(name, {}).get(key)
            if not found:
                line += " – |"
                continue
            mark = " **!**" if found["median"] > limit else ""
            line += f" {found['median']:.3f} ({found['best']:.3f}){mark} |"
        lines.append(line)
    line = "| **geometric mean** |" + (" |" if shown else "")
    for name in names:
        found = [cells[name][key] for cells in rows.values() if cells.get(name, {}).get(key)]
        medians, bests = mean(f["median"] for f in found), mean(f["best"] for f in found)
        count = "" if len(found) == len(rows) else f" of {len(found)}"
        line += f" **{medians:.3f}** ({bests:.3f}){count} |" if found else " – |"
    return [*lines, line, ""]


def write(folder, kind, base, limit, sessions, skipped):
    """table.md and table.json from the results of one or two sessions with the same base."""
    figures = {"time": seconds, "cpu": cpu, "memory": memory}
    rows, names = {}, []
    for results in sessions:
        found, missing = compare(results, base, figures)
        skipped = skipped + missing
        for label, cells in found.items():
            own = rows.setdefault(label, {})
            for name, cell in cells.items():
                own.setdefault(name, cell)
                if name not in names and name != base:
                    names.append(name)
    facts = sessions[0]["machine"]
    head = [
        f"{facts['cpu']}, {facts['cpus']} CPUs, {facts['distribution']}, {facts['kernel']}, "
        f"{sessions[0]['started']}; `{kind}`.",
        f"Ratios to {base} of the same round: median (best). **!** is above {limit}, of memory "
        f"{MEMORY_LIMIT}.",
        "",
    ]
    seconds_of = lambda cell: f"{cell['seconds']:.3g} s"
    bytes_of = lambda cell: f"{cell['bytes'] / 2**20:.3g} MiB"
    lines = head + table("Time", rows, base, names, "time", limit, seconds_of)
    lines += table("CPU time", rows, base, names, "cpu", limit)
    lines += table("Peak RSS", rows, base, names, "memory", MEMORY_LIMIT, bytes_of)
    lines += [f"- skipped: {reason}" for reason in skipped]
    (folder / "table.md").write_text("\n".join(lines) + "\n")
    data = {"kind": kind, "base": base, "rows": rows, "skipped": skipped, "machine": facts}
    (folder / "table.json").write_text(json.dumps(data, indent=1) + "\n")
    print("\n".join(lines))
    say(f"modes.py: {folder}/table.md, table.json")


def kept(folder):
    """What `table` needs to write the table again."""
    return folder / "kept.json"


def keep_and_write(folder, kind, base, limit, names, skipped):
    data = {"kind": kind, "base": base, "limit": limit, "sessions": names, "skipped": skipped}
    kept(folder).write_text(json.dumps(data) + "\n")
    again(folder)


def again(folder):
    data = json.loads(kept(folder).read_text())
    sessions = [json.loads((folder / n / "results.json").read_text()) for n in data["sessions"]]
    write(folder, data["kind"], data["base"], data["limit"], sessions, data["skipped"])


def measure_modes(options, folder, kind, rows, runs, modes, limit):
    """Mallard's modes in one session, the rivals beside plain Mallard in another."""
    lab = Lab()
    words, skipped = lab.modes(modes)
    rivals, lacking = lab.rivals()
    lab.bench(folder / "modes", rows, runs, ["-a", PLAIN, *words], options.quick)
    few = max(1, runs // 3)
    names = ",".join([PLAIN, "glibc", *rivals])
    lab.bench(folder / "rivals", rows, few, ["-a", names], options.quick)
    keep_and_write(folder, kind, PLAIN, limit, ["modes", "rivals"], skipped + lacking)


def build(commit):
    """The library of a commit, built once."""
    short = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short=12", f"{commit}^{{commit}}"],
        capture_output=True,
        text=True,
    ).stdout.strip()
    if not short:
        fail(f"{commit} is neither a file nor a commit")
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    library = cache / f"mallard/commits/{short}/libmallard.so"
    if not library.exists():
        with tempfile.TemporaryDirectory() as place:
            archive = subprocess.run(
                ["git", "-C", str(ROOT), "archive", short], stdout=subprocess.PIPE, check=True
            ).stdout
            subprocess.run(["tar", "-x", "-C", place], input=archive, check=True)
            build_in(pathlib.Path(place), pathlib.Path(place) / "built", library)
    return library


def build_in(checkout, target, library):
    manifest = str(checkout / "crates/mallard-c/Cargo.toml")
    command = ["cargo", "build", "--release", "--locked", "--manifest-path", manifest]
    subprocess.run([*command, "--target-dir", str(target)], check=True)
    library.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(target / "release/libmallard.so", library)


def programs(options):
    rows, runs = options.rows or PROGRAMS, options.runs or 9
    folder = options.folder(1)
    measure_modes(options, folder, "programs", rows, runs, options.modes, PROGRAM_LIMIT)


def suite_modes(options):
    """Guarded blocks are left out: they have a bar on programs alone."""
    rows, runs = options.rows or ["full"], options.runs or 5
    modes = {name: conf for name, conf in options.modes.items() if name != "guards"}
    measure_modes(options, options.folder(1), "suite-modes", rows, runs, modes, SUITE_LIMIT)


def suite(options):
    """This checkout's library and another build, by turns: both built the same way."""
    if len(options.words) < 2:
        fail("suite needs a commit or the file of a library")
    folder = options.folder(2)
    base = pathlib.Path(options.words[1])
    base = base.resolve() if base.is_file() else build(options.words[1])
    now = folder / "now/libmallard.so"
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "mallard-c"
    build_in(ROOT, target, now)
    words = ["-a", "base,now", "--add", f"base={base}", "--add", f"now={now}"]
    lab = Lab()
    lab.bench(folder / "ab", options.rows or ["full"], options.runs or 9, words, options.quick)
    keep_and_write(folder, "suite", "base", ROW_LIMIT, ["ab"], [])


def counted_programs(place, quick):
    """Five programs of the suite: name, command, input."""
    files = ROOT / "bench/programs"
    queries = place / "queries.sql"
    rows = "5000" if quick else "25000"
    queries.write_text((files / "queries.sql").read_text().replace("@ROWS@", rows))
    # The compiler itself, without the driver, which knows where headers are.
    source, flags = place / "templates.ii", ["-std=c++17", "-O0"]
    width = f"-DWIDTH={0 if quick else 1}"
    if shutil.which("g++"):
        expanded = [*flags, width, "-E", str(files / "templates.cpp"), "-o", str(source)]
        subprocess.run(["g++", *expanded], check=True)
        cc1plus = subprocess.check_output(["g++", "-print-prog-name=cc1plus"], text=True).strip()
    else:
        cc1plus = "g++"
    compile_it = [cc1plus, "-quiet", "-fpreprocessed", *flags, str(source), "-o", "/dev/null"]
    rounds = lambda full, few: str(few if quick else full)
    return [
        ("lua", ["lua5.4", str(files / "documents.lua"), rounds(80, 16)], None),
        ("perl", ["perl", str(files / "records.pl"), rounds(20, 4)], None),
        ("sqlite3", ["sqlite3", "-init", "/dev/null", "-batch", "-bail", ":memory:"], queries),
        # Not `python3`, which may be a script that looks for one.
        ("python3", [sys.executable, str(files / "objects.py"), rounds(12, 2)], None),
        ("cxx", compile_it, None),
    ]


def clock(place):
    """A library in which it is always the same time: Lua's hashes depend on it."""
    library = pathlib.Path(place) / "clock.so"
    text = "long time(long *at) { if (at) *at = 1; return 1; }\n"
    command = ["cc", "-shared", "-fPIC", "-fno-builtin", "-o", str(library), "-x", "c", "-"]
    subprocess.run(command, input=text, text=True, check=True)
    return library


class Counted:
    """A program whose instructions are counted: in user mode, by cachegrind."""

    def __init__(self, command, source, place):
        self.command, self.source, self.place = command, source, place

    def run(self, tool, library, conf):
        """What it writes to standard error, and the seconds that it takes."""
        own = {k: v for k, v in os.environ.items() if not re.match("LD_PRELOAD|MALL", k)}
        # The same work in each run.
        own |= {"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0", "PERL_HASH_SEED": "0"}
        own |= {"LD_PRELOAD": f"{library}:{self.place}/clock.so", "MALLOC_CONF": conf}
        # The environment's length moves the stack, whose address is in Lua's hashes, too.
        own["PAD"] = "-" * (200 - len(conf))
        front = ["setarch", "-R", *tool]
        begin = time.monotonic()
        with open(self.source or os.devnull) as stdin, open(os.devnull, "w") as stdout:
            done = subprocess.run(
                front + self.command, env=own, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE
            )
        text = done.stderr.decode(errors="replace") if done.returncode == 0 else ""
        return text, time.monotonic() - begin

    def instructions(self, library, conf):
        """All instructions, those in the library, and the seconds that counting took."""
        out = pathlib.Path(self.place) / "out"
        tool = ["valgrind", "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={out}"]
        text, taken = self.run(tool, library, conf)
        return (*counts(out), taken) if "refs:" in text else (None, None, taken)


def counts(file):
    """The instructions in a file of cachegrind: all, and those in functions of the library."""
    every, own, ours = 0, 0, False
    source = ""
    for line in file.read_text(errors="replace").splitlines():
        if line.startswith("fl="):
            source = line
        elif line.startswith("fn="):
            # The library's own files, what it has inlined of Rust's, and names without files.
            ours = any(part in source for part in ("/crates/", "rustlib")) or "mallard_" in line
        elif line[:1].isdigit():
            count = int(line.split()[1])
            every += count
            own += count if ours else 0
    return every, own


def instructions(options):
    """cachegrind slows a program down, and a rate of guarded blocks is one a second: it is set so
    that a run has about as many of them as without cachegrind.

    Blocks at other addresses change the order of some hashes, and so the program's own
    instructions, by half a percent. So there are two ratios: of all instructions, and of all if
    those outside the library had stayed the same; the second lacks what it calls in the C library.
    """
    if not shutil.which("valgrind"):
        fail("skipped: valgrind is not installed (scripts/setup-tests.sh)")
    folder, lab = options.folder(1), Lab()
    library, rows = lab.library(), {}
    known, skipped = lab.modes(options.modes)
    names = [word.split("=")[0] for word in known[1::2]]
    with tempfile.TemporaryDirectory() as place:
        clock(place)
        for name, command, source in counted_programs(pathlib.Path(place), options.quick):
            if options.rows and name not in options.rows:
                continue
            if not shutil.which(command[0]):
                skipped.append(f"{name}: {command[0]} is not installed")
                continue
            program = Counted(command, source, place)
            plain, own, slow = program.instructions(library, "")
            if not plain:
                skipped.append(f"{name}: does not run under cachegrind")
                continue
            fast = min(program.run([], library, "")[1] for _ in range(3))
            rate = lambda found: f"guard_rate:{max(1, round(int(found[1]) * fast / slow))}"
            row = rows[name] = {PLAIN: plain, "in the library": own}
            for mode in names:
                conf = re.sub(r"guard_rate:(\d+)", rate, options.modes[mode])
                every, own_then, _ = program.instructions(library, conf)
                if every:
                    row[mode] = [every / plain, (plain + own_then - own) / plain]
            say(f"{name}: {row}")
    lines = ["### Instructions: all (in the library alone), as ratios to plain Mallard", ""]
    lines += ["| program | mallard | in the library | " + " | ".join(names) + " |"]
    lines.append("| --- | ---: | ---: |" + " ---: |" * len(names))
    show = lambda pair: f"{pair[0]:.4f} ({pair[1]:.4f})" if pair else "–"
    for name, row in rows.items():
        cells = [show(row.get(mode)) for mode in names]
        share = f"{row['in the library'] / row[PLAIN]:.1%}"
        lines.append(f"| {name} | {row[PLAIN] / 1e6:.1f} M | {share} | " + " | ".join(cells) + " |")
    pairs = [[row[mode] for row in rows.values() if mode in row] for mode in names]
    means = [show([mean(column) for column in zip(*found)]) for found in pairs]
    lines += ["| **geometric mean** | | | " + " | ".join(means) + " |", ""]
    lines += [f"- skipped: {reason}" for reason in skipped]
    (folder / "instructions.md").write_text("\n".join(lines) + "\n")
    (folder / "instructions.json").write_text(json.dumps(rows, indent=1) + "\n")
    print("\n".join(lines))


def main():
    options = Options(sys.argv[1:])
    commands = {
        "programs": programs,
        "suite": suite,
        "suite-modes": suite_modes,
        "instructions": instructions,
        "table": lambda options: again(options.folder(1)),
    }
    command = commands.get(options.words[0] if options.words else "")
    if not command:
        sys.exit(__doc__)
    command(options)


if __name__ == "__main__":
    main()
