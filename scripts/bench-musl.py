#!/usr/bin/env python3
"""Compares Mallard with the allocator of musl, on programs of bench/workloads.

    scripts/bench-musl.py LIBMALLARD [ROUNDS]

Compiles the programs by a compiler that links with musl: on Alpine that is `cc`, elsewhere the
x86_64-linux-musl-gcc of scripts/setup-cross.sh (MUSL_CC overrides both). Runs each by turns on musl's
own allocator and on LIBMALLARD, a build of the library for musl, and prints the least CPU time of
each, and page faults. Minima of turns say the same on a busy machine as on a quiet one.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CROSS = pathlib.Path(
    os.environ.get("MALLARD_CROSS")
    or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    / "mallard/cross"
)
# What the suite of the lab runs: the program, and its parameters.
WORKLOADS = [
    ("pairs", "threads=1 count=5000000 size=64"),
    ("pairs", "threads=4 count=500000 size=64"),
    ("batch", "threads=1 count=300000 min=16 max=1024"),
    ("batch", "threads=4 count=100000 min=16 max=1024"),
    ("larson", "threads=4"),
    ("handoff", "producers=2 consumers=2 count=200000"),
    ("calloc", ""),
    ("grow", ""),
    ("large", ""),
    ("threads", ""),
    ("start", ""),
]


def compiler():
    named = os.environ.get("MUSL_CC")
    if named:
        return named
    cross = CROSS / "bin/x86_64-linux-musl-gcc"
    if cross.exists():
        return str(cross)
    machine = subprocess.run(["cc", "-dumpmachine"], capture_output=True, text=True).stdout
    if "musl" in machine:
        return "cc"
    sys.exit("no compiler that links with musl: run scripts/setup-cross.sh musl, or name it in MUSL_CC")


def run(program, arguments, library):
    """CPU seconds and page faults of one run."""
    environment = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "MALLOC_CONF")}
    if library:
        environment["LD_PRELOAD"] = library
    child = subprocess.Popen([program, *arguments], env=environment, stdout=subprocess.PIPE)
    text = child.stdout.read().decode()
    _, status, use = os.wait4(child.pid, 0)
    child.returncode = status
    if status != 0:
        sys.exit(f"{program} {arguments} ended with {status}")
    # A figure counts only for the allocator that the loader names.
    served = [line.split()[1] for line in text.splitlines() if line.startswith("malloc ")]
    if bool(library) != ("mallard" in " ".join(served)):
        sys.exit(f"{program} was served by {served}")
    return use.ru_utime + use.ru_stime, use.ru_minflt


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    library = os.path.realpath(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) == 3 else 5
    compile_by = compiler()
    print(f"{'program':44}{'CPU seconds':>22}{'':>8}{'page faults':>18}")
    print(f"{'':44}{'musl':>11}{'Mallard':>11}{'ratio':>8}{'musl':>9}{'Mallard':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for name, parameters in WORKLOADS:
            program = os.path.join(folder, name)
            if not os.path.exists(program):
                source = ROOT / "bench/workloads" / f"{name}.c"
                flags = ["-O2", "-fno-builtin", "-pthread"]
                subprocess.run([compile_by, *flags, source, "-o", program, "-ldl"], check=True)
            best = [None, None]
            for _ in range(rounds):
                for which, preload in enumerate((None, library)):
                    found = run(program, parameters.split(), preload)
                    old = best[which]
                    best[which] = found if old is None else tuple(map(min, old, found))
            (a, faults_a), (b, faults_b) = best
            print(
                f"{(name + ' ' + parameters).strip():44}{a:11.3f}{b:11.3f}{a / max(b, 1e-4):7.1f}x"
                f"{faults_a:9}{faults_b:9}",
                flush=True,
            )


if __name__ == "__main__":
    main()
