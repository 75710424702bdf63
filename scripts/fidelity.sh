#!/bin/sh
# How true a replay is to its program, on twelve programs: the curve of live bytes, and what four
# allocators need at the peak, in the program itself and in the replay of its recording.
#
#     scripts/fidelity.sh [FOLDER]
#
# Prints a line for each program. "live" is the largest distance of the replay's live bytes from the
# recording's, as a part of the peak; "ratios" is the largest distance between an allocator's peak
# RSS as a multiple of glibc's in the program and in the replay. The bars are 2 % and 10 %. RUNS (3)
# may be set, and ALLOCATORS (glibc,mallard,jemalloc,mimalloc). A program that is not installed is
# left out by name. Recordings and reports stay in FOLDER (default: a temporary one).
set -eu

RUNS=${RUNS:-3}
allocators=${ALLOCATORS:-glibc,mallard,jemalloc,mimalloc}
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/twelve-programs.sh"

printf '%-10s %8s %8s  %s\n' program live ratios 'peak RSS to glibc, in the replay and in the program'
printf '%s\n' "$programs" | while IFS='|' read -r name needs command process; do
    [ -n "$name" ] || continue
    if ! command -v "$needs" > /dev/null; then
        printf '%-10s skipped: %s is not installed\n' "$name" "$needs"
        continue
    fi
    export COMMAND="$command"
    file=$name.mtrace
    # A recording that is in FOLDER is used again.
    if ! [ -s "$file" ] &&
        ! "$mallard" record --no-check -o "$file" -- sh -c "$command" > "$name.txt" 2>&1; then
        printf '%-10s failed: %s\n' "$name" "$(tail -n 1 "$name.txt")"
        continue
    fi
    which=$("$mallard" trace info --json "$file" | python3 -c '
import json, re, sys
found = [p for p in json.load(sys.stdin)["processes"] if re.search(sys.argv[1], (p["process"] or {}).get("program") or "")]
most = max(found, key=lambda p: p["calls"], default=None)
print(most["number"] if most and sys.argv[1] else "main")' "$process")
    if ! "$mallard" replay --check --speed 1x -r "$RUNS" -a "$allocators" -o "$name" \
        ${process:+--process "$which"} "$file" -- sh -c "$command" > "$name.txt" 2>&1; then
        printf '%-10s failed: %s\n' "$name" "$(tail -n 1 "$name.txt")"
        continue
    fi
    { tr -s ' \n' '  ' < "$name.txt"; echo; } | sed -nE \
        's/.*live bytes within ([0-9.]+) %.*ratios of peak RSS to glibc within ([0-9.]+) % \(([^)]*)\).*/\1|\2|\3/p' |
        while IFS='|' read -r live ratios pairs; do
            printf '%-10s %7s%% %7s%%  %s\n' "$name" "$live" "$ratios" "$pairs"
        done
done
