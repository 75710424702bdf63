#!/usr/bin/env bash
# How long a heap profile of 10,000 call stacks takes to write, in both forms: the middle of nine
# files each. Ends with status 1 if one takes more than 20 ms.
#
#   scripts/profile-dump.sh             to the folder of temporary files
#   scripts/profile-dump.sh /dev/shm    to another one
set -euo pipefail
cd "$(dirname "$0")/.."

sites=10000
most_ms=20
cargo build --release --locked --manifest-path crates/mallard-c/Cargo.toml \
  --target-dir target/mallard-c
library=$PWD/target/mallard-c/release
work=$(mktemp -d -p "${1:-${TMPDIR:-/tmp}}")
trap 'rm -rf "$work"' EXIT
cc -O1 -fno-optimize-sibling-calls -Icrates/mallard-c -o "$work/dumps" \
  crates/e2e/programs/dumps.c "$library/libmallard.so"

status=0
for form in heap_v2 pprof; do
  files=("$work/$form".{1..9})
  ms=$(LD_PRELOAD=$library/libmallard.so MALLOC_CONF=prof:true,lg_prof_sample:0,prof_format:$form \
    "$work/dumps" sites $sites "${files[@]}" |
    sed -n 's/.*, \([0-9.]*\) ms$/\1/p' | sort -n | sed -n 5p)
  bytes=$(stat -c %s "${files[8]}")
  printf '%-8s %d sites  %8.2f ms  %10d bytes\n' $form $sites "$ms" "$bytes"
  if awk "BEGIN { exit !($ms > $most_ms) }"; then
    echo "over $most_ms ms" >&2
    status=1
  fi
done
exit $status
