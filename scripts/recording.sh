#!/bin/sh
# Measures the recorder and the replay on twelve programs, for a quiet machine, and prints a table.
#
#     scripts/recording.sh [FOLDER]
#
# Recorder: the program runs RUNS times with and without it, in turns; the difference of CPU time
# (of the threads and of the drain together) by the number of events is the cost of one, and the
# difference of wall time the slowdown. Replay: the plan without an allocator (`none=1`), by
# event. Bytes: the file by event. A program that is not installed is left out by name. The
# recordings stay in FOLDER (default: a temporary one).
set -eu

RUNS=${RUNS:-5}
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/twelve-programs.sh"
cc -std=gnu11 -O2 -fno-builtin -pthread "$root/bench/workloads/replay.c" -o replay -ldl

# CPU and wall seconds of a command: "cpu wall".
timed() {
    bash -c 'TIMEFORMAT="%U %S %R"; time ( eval "$1" > /dev/null 2>&1 )' _ "$1" 2>&1 |
        tail -1 | awk '{ printf "%.3f %.3f", $1 + $2, $3 }'
}

printf '%-10s %12s %10s %12s %10s %12s\n' program events 'bytes/ev' 'record ns/ev' 'slower' 'replay ns/ev'
printf '%s\n' "$programs" | while IFS='|' read -r name needs command _; do
    [ -n "$name" ] || continue
    if ! command -v "$needs" > /dev/null; then
        printf '%-10s skipped: %s is not installed\n' "$name" "$needs"
        continue
    fi
    file="$folder/$name.mtrace"
    recording="'$mallard' record --no-check -o '$file' -- sh -c \"\$COMMAND\""
    export COMMAND="$command"
    : > with; : > without
    for _ in $(seq "$RUNS"); do
        timed "sh -c \"\$COMMAND\"" >> without; echo >> without
        timed "$recording" >> with; echo >> with
    done
    info=$("$mallard" trace info --json "$file")
    events=$(printf '%s' "$info" | python3 -c 'import json,sys; print(sum(p["calls"] for p in json.load(sys.stdin)["processes"]))')
    bytes=$(stat -c %s "$file")
    rm -f "$file.plan"
    "$mallard" trace compile "$file" > compiled
    calls=$(./replay "plan=$file.plan" none=1 | awk '$1 == "operations" { print $2 }')
    best=$(for _ in $(seq "$RUNS"); do ./replay "plan=$file.plan" none=1; done |
        awk '$1 == "seconds" && (!s || $2 < s) { s = $2 } END { print s }')
    median() { sort -n "$1" | awk -v column="$2" '{ v[NR] = $column } END { print v[int((NR + 1) / 2)] }'; }
    awk -v name="$name" -v events="$events" -v bytes="$bytes" -v best="$best" -v calls="$calls" \
        -v c0="$(median without 1)" -v c1="$(median with 1)" \
        -v w0="$(awk '{ print $2 }' without > w0; median w0 1)" \
        -v w1="$(awk '{ print $2 }' with > w1; median w1 1)" 'BEGIN {
            printf "%-10s %12d %10.2f %12.1f %9.1f%% %12.2f\n", name, events, bytes / events,
                (c1 - c0) * 1e9 / events, (w1 / w0 - 1) * 100, best * 1e9 / calls }'
done

# Short threads: ten thousand with twenty events each.
cc -O1 -fno-builtin -pthread "$root/crates/mallard-cli/tests/recorded/recorded.c" -o recorded
"$mallard" record --no-check -o threads.mtrace -- ./recorded tiny 2> /dev/null
events=$("$mallard" trace info --json threads.mtrace | python3 -c 'import json,sys; print(sum(p["calls"] for p in json.load(sys.stdin)["processes"]))')
awk -v events="$events" -v bytes="$(stat -c %s threads.mtrace)" 'BEGIN {
    printf "%-10s %12d %10.2f\n", "10k threads", events, bytes / events }'
