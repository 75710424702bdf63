#!/usr/bin/env bash
# Counts the instructions of the library's paths and compares them with those recorded in
# bench/instructions.txt. This is the check in `cargo test`, but it prints all figures.
#
#   scripts/instructions.sh              count and compare (fails if a count rose by over 3 %)
#   scripts/instructions.sh --record     and record the new counts
#   scripts/instructions.sh --listing    and print the compiled fast paths of malloc and free
#
# MALLARD_LIBRARY=/path/lib.so counts another allocator's library. Needs valgrind (and objdump for
# the listing); scripts/setup-tests.sh installs it.
set -euo pipefail
cd "$(dirname "$0")/.."

record=0
listing=0
for argument; do
  case $argument in
    --record) record=1 ;;
    --listing) listing=1 ;;
    *)
      sed -n '2,10s/^# \?//p' "$0" >&2
      echo "unknown argument: $argument" >&2
      exit 2
      ;;
  esac
done
if [ -n "${MALLARD_LIBRARY:-}" ] && [ $record = 1 ]; then
  echo "MALLARD_LIBRARY is set: only Mallard's own counts are recorded" >&2
  exit 2
fi

MALLARD_REQUIRE_PROGRAMS=1 MALLARD_RECORD_INSTRUCTIONS=$record \
  cargo test --quiet -p mallard-e2e --test instructions -- --exact --nocapture no_count_rises_unseen

if [ $listing = 1 ]; then
  library=${MALLARD_LIBRARY:-${CARGO_TARGET_DIR:-target}/mallard-c/release/libmallard.so}
  for f in malloc free; do
    echo
    echo "$f:"
    at=$(nm -D "$library" | awk -v f=$f '$3 == f { print $1 }')
    objdump -d --no-show-raw-insn --start-address="0x$at" --stop-address="$((0x$at + 160))" "$library" |
      sed -n '/>:$/,/ret/p' | sed '1d; s/^ *[0-9a-f]*:\t/    /; /ret/q'
  done
fi
