#!/bin/sh
# Whether the bound that `mallard diagnose` gives holds: how much faster twelve programs are on the
# best of five allocators, beside the most that diagnosis says any allocator could bring.
#
#     scripts/bound.sh [FOLDER]
#
# "bound" is the upper end, without and with the page faults of the heap; "gain" is the program's
# time on glibc to that on its best allocator, with its interval. A gain of over 3 % beyond the
# bound is marked: its reason must be found (caches that fit better, huge pages). RUNS (8) and
# ALLOCATORS may be set. A program that is not installed is left out by name.
set -eu

RUNS=${RUNS:-8}
allocators=${ALLOCATORS:-glibc,mallard,jemalloc,mimalloc,tcmalloc}
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/twelve-programs.sh"

printf '%-10s %7s %8s  %s\n' program bound 'faults' gain
printf '%s\n' "$programs" | while IFS='|' read -r name needs command _; do
    [ -n "$name" ] || continue
    if ! command -v "$needs" > /dev/null; then
        printf '%-10s skipped: %s is not installed\n' "$name" "$needs"
        continue
    fi
    rm -rf "bound-$name"
    mkdir "bound-$name"
    "$mallard" diagnose --json -- sh -c "$command" > "bound-$name/diagnose.json" \
        2> "bound-$name/errors" || true
    "$mallard" compare -r "$RUNS" -a "$allocators" -o "bound-$name" -- sh -c "$command" \
        > "bound-$name/text" 2>> "bound-$name/errors" || true
    python3 - "$name" <<'PYTHON'
import json, sys
name = sys.argv[1]
try:
    bound = json.load(open(f"bound-{name}/diagnose.json"))["bound"]
    rows = json.load(open(f"bound-{name}/compare.json"))["analysis"]
except (OSError, ValueError, KeyError) as e:
    print(f"{name:<10} failed: {e}")
    sys.exit()
best = min(rows, key=lambda row: row["time_to_glibc"]["ratio"])
time = best["time_to_glibc"]
gain = 1 / time["ratio"]
ends = [1 / time[end] if time[end] else gain for end in ("high", "low")]
most = max(bound["high"], bound.get("without_faults") or 0)
over = "  over the bound" if ends[0] > most * 1.03 else ""
print(f"{name:<10} {bound['high']:7.2f} {most:8.2f}  {gain:.2f} ({ends[0]:.2f}–{ends[1]:.2f}) {best['allocator']}{over}")
PYTHON
done
