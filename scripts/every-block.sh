#!/usr/bin/env bash
# What it costs to record every block: a program by itself, with Mallard's profiler at
# lg_prof_sample:0, and under heaptrack. Prints the seconds and the peak of memory of each, the
# median of five runs.
#
#   scripts/every-block.sh                 a program of the tests that allocates (whole.cpp)
#   scripts/every-block.sh PROGRAM ARGS    another one
#
# Needs heaptrack: apt-get install heaptrack.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v heaptrack >/dev/null || { echo "heaptrack is not installed" >&2; exit 2; }
cargo build --release --locked --manifest-path crates/mallard-c/Cargo.toml \
  --target-dir target/mallard-c
library=$PWD/target/mallard-c/release/libmallard.so
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ $# = 0 ]; then
  c++ -O2 -pthread -o "$work/whole" crates/e2e/programs/whole.cpp
  set -- "$work/whole"
fi

# Prints the seconds and the KiB of a command's runs, in the middle of five.
measure() {
  local name=$1
  shift
  for _ in 1 2 3 4 5; do
    /usr/bin/env python3 - "$@" <<'PYTHON'
import resource, subprocess, sys, time
start = time.monotonic()
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(f"{time.monotonic() - start:.3f} {used.ru_maxrss}")
PYTHON
  done | sort -n | sed -n 3p | while read -r seconds kib; do
    printf '%-28s %8s s %10s KiB\n' "$name" "$seconds" "$kib"
  done
}

measure "alone" env "LD_PRELOAD=$library" "$@"
measure "Mallard, every block" env "LD_PRELOAD=$library" \
  "MALLARD_CONF=prof:true,prof_final:true,lg_prof_sample:0,prof_prefix:$work/profile" "$@"
measure "heaptrack" heaptrack -o "$work/trace" "$@"
