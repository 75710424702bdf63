#!/usr/bin/env bash
# What it costs to watch 100 processes: the time of a scrape of `mallard export`, the part of a core
# that `mallard top` takes at one look a second, and the time that a process takes to publish its
# figures. The bars are 50 ms, 1 % and 50 µs.
#
#   scripts/watching.sh [PROCESSES]      100 by default
#
# MALLARD names another binary than target/release/mallard, which is built otherwise. Needs cc, curl
# and script (util-linux). Run it on a machine that does nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."

processes=${1:-100}
scrapes=50
seconds=30
if [ -z "${MALLARD:-}" ]; then
  cargo build --release --locked -p mallard-cli
fi
mallard=$(realpath "${MALLARD:-target/release/mallard}")
folder=$(mktemp -d)
name=watched$$
pids=()
stop() {
  kill "${pids[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$folder"
}
trap stop EXIT

# Each has some blocks of most classes, and allocates a little ten times a second.
cat > "$folder/$name.c" <<'C'
#include <poll.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
    static void *held[64][40], *some[200];
    for (int i = 0; i < 64; i++)
        for (int size = 0; size < 40; size++)
            held[i][size] = memset(malloc(16 + size * 200), 1, 16 + size * 200);
    for (int size = 0;; size = (size + 1) % 40) {
        for (int i = 0; i < 200; i++) some[i] = malloc(16 + size * 200);
        for (int i = 0; i < 200; i++) free(some[i]);
        poll(0, 0, 100);
    }
}
C
cc -O1 -fno-builtin -o "$folder/$name" "$folder/$name.c"
for ((i = 0; i < processes; i++)); do
  "$mallard" run --conf export_stats:true -- "$folder/$name" &
  pids+=($!)
done

"$mallard" export --listen 127.0.0.1:0 --match "$name" > "$folder/export.log" &
pids+=($!)
until grep -q serving "$folder/export.log"; do sleep 0.1; done
url=$(sed -n 's/^serving //p' "$folder/export.log")
# All of them must have published their figures.
count_read() { curl -sf "$url" | sed -n 's/^mallard_export_processes{state="read"} //p'; }
for ((i = 0; i < 60; i++)); do
  if [ "$(count_read)" = "$processes" ]; then break; fi
  sleep 1
done
if [ "$(count_read)" != "$processes" ]; then
  echo "$0: $(count_read) processes can be read, not $processes" >&2
  exit 1
fi
for ((i = 0; i < scrapes; i++)); do
  curl -sf -o "$folder/metrics" -w '%{time_total}\n' "$url"
  sleep 0.1
done | sort -n > "$folder/times"
bytes=$(wc -c < "$folder/metrics")
awk -v n="$processes" -v bytes="$bytes" '
  { t[NR] = 1000 * $1 }
  END { printf "scrape of %d processes: %.1f ms (median of %d; slowest %.1f ms), %d KiB; bar 50 ms\n",
        n, t[int((NR + 1) / 2)], NR, t[NR], bytes / 1024 }' "$folder/times"

# What the last publication of each process took, by its own clock.
"$mallard" top --once --json --match "$name" \
  | sed -n 's/.*"cost_ns":\([0-9]*\).*/\1/p' | sort -n > "$folder/costs"
awk '
  { t[NR] = $1 / 1000 }
  END { printf "publication: %.1f µs (median of %d; slowest %.1f µs); bar 50 µs\n",
        t[int((NR + 1) / 2)], NR, t[NR] }' "$folder/costs"

# A terminal of its own; the first seconds find the processes.
TERM=xterm script -qfc "stty rows 50 cols 160; exec $mallard top --match $name" /dev/null \
  < <(sleep $((seconds + 8))) > "$folder/screen" &
terminal=$!
pids+=("$terminal")
sleep 4
top=$(pgrep -f "^$mallard top --match $name" | head -1)
ticks() { awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$top/stat"; }
before=$(ticks)
sleep "$seconds"
after=$(ticks)
kill "$top" 2>/dev/null || true
wait "$terminal" 2>/dev/null || true
if ! grep -aq "$name" "$folder/screen"; then
  echo "$0: mallard top did not show the processes" >&2
  exit 1
fi
awk -v n="$processes" -v ticks=$((after - before)) -v s="$seconds" -v hz="$(getconf CLK_TCK)" '
  BEGIN { printf "top of %d processes at 1 Hz: %.2f %% of a core over %d s; bar 1 %%\n",
          n, 100 * ticks / hz / s, s }'
