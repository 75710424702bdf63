#!/bin/bash
# Measures on real servers how far `mallard baseline` can be trusted, and prints a table.
#
#     scripts/baselines.sh MINUTES [SERVER…]      # minutes for each of redis, nginx, postgres
#
# Each sitting saves a baseline and then checks it in turns until the time is up: twice the same
# server (a failure is a false alarm), once with a P99 that its load reports 8 % higher, once with a
# ballast of 15 % of its memory, which a preloaded library touches (both should fail), and once on a
# runner that busy loops slow down (must never fail). After that the measured blocks
# are used again (`mallard baseline rehearse`), because few checks fit into some minutes.
#
# Results stay in FOLDER (mallard-results/baselines), and later sittings add to them. SECONDS_EACH (1)
# is the load's length, MALLARD the command.
set -eu

minutes=${1:?"usage: scripts/baselines.sh MINUTES [SERVER…]"}
shift
servers=${*:-redis nginx postgres}
root=$(cd "$(dirname "$0")/.." && pwd)
folder=${FOLDER:-mallard-results/baselines}
each=${SECONDS_EACH:-1}
mallard=${MALLARD:-}
if [ -z "$mallard" ]; then
  cargo build --release --locked --quiet --manifest-path "$root/Cargo.toml" -p mallard-cli
  mallard="$root/target/release/mallard"
fi
mallard=$(command -v "$mallard")
mallard=$(cd "$(dirname "$mallard")" && pwd)/$(basename "$mallard")
mkdir -p "$folder"
cd "$folder"

limits=("qps<-3%" "p99>+5%" "rss_end>+10%")
# A check takes 8 to 20 blocks of two runs. So much of the time is for the save, in percent.
save_share=30

# Whatever happens, the busy loops end.
burners=""
calm() {
  for burner in $burners; do kill "$burner" 2>/dev/null || true; done
  wait $burners 2>/dev/null || true
  burners=""
}
trap calm EXIT
trap 'exit 130' INT TERM

# A busy loop for each CPU. With an argument they come and go, so that blocks differ.
disturb() { # [PAUSE]
  for _ in $(seq "$(nproc)"); do
    if [ $# = 0 ]; then
      while :; do :; done &
    else
      while :; do
        end=$((SECONDS + 1 + RANDOM % 3))
        while [ "$SECONDS" -lt "$end" ]; do :; done
        sleep "$1"
      done &
    fi
    burners="$burners $!"
  done
}

# The ballast: touched when the server begins, and shared by the processes that it forks.
ballast() { # a library in this folder
  cat > ballast.c <<'C'
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

__attribute__((constructor)) static void carry(void) {
    const char *text = getenv("BALLAST");
    size_t bytes = text ? strtoull(text, 0, 10) : 0;
    void *ballast = bytes == 0 ? MAP_FAILED
        : mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ballast != MAP_FAILED)
        memset(ballast, 1, bytes);
}
C
  cc -O1 -shared -fPIC -o ballast.so ballast.c
}

# Descriptions of a server: as it is, with a higher P99, with a ballast. All start it by the shell, so
# that they differ in nothing else.
describe() { # SERVER BALLAST-BYTES
  "$mallard" service "$1" > preset.toml
  python3 - "$1" "$2" "$PWD/ballast.so" <<'PY'
import json, re, shlex, sys, tomllib

server, ballast, library = sys.argv[1:]
preset = tomllib.load(open("preset.toml", "rb"))


def value(it):
    if isinstance(it, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {value(of)}" for key, of in it.items()) + " }"
    if isinstance(it, list):
        return "[" + ", ".join(map(value, it)) + "]"
    return json.dumps(it)


def write(name, bytes=0, scale=1.0):
    service, metrics = dict(preset["service"]), dict(preset["metrics"])
    start = service["start"]
    if isinstance(start, list):
        service["program"] = start[0]
        words = [word if re.search(r"\{\w+\}", word) else shlex.quote(word) for word in start]
        start = "exec " + " ".join(words)
    carry = f'export BALLAST={bytes} LD_PRELOAD="$LD_PRELOAD${{LD_PRELOAD:+:}}{library}"\n'
    service["start"] = carry + start
    metrics["p99"] = dict(metrics["p99"], scale=scale * metrics["p99"].get("scale", 1.0))
    with open(name, "w") as file:
        for part, keys in (("service", service), ("metrics", metrics)):
            file.write(f"[{part}]\n")
            file.writelines(f"{key} = {value(of)}\n" for key, of in keys.items())


write(f"{server}.toml")
write(f"{server}-p99.toml", scale=1.08)
write(f"{server}-rss.toml", bytes=int(ballast))
PY
}

# The subject's memory at the end, in bytes.
memory() { # BASELINE
  python3 - "$1" <<'PY'
import json, statistics, sys

save = json.load(open(f".mallard/baselines/{sys.argv[1]}.json"))["saves"][-1]
print(int(statistics.median(block["subject"]["rss_end"] for block in save["blocks"])))
PY
}

left() { echo $((until - SECONDS)); }

# A check whose outcome is kept as KIND-SERVER-NUMBER.json, with its exit code in codes.
check() { # SERVER KIND [OPTION…]
  local server=$1 kind=$2 code=0 file
  shift 2
  file="$kind-$server-$sitting-$turn.json"
  "$mallard" baseline check "$server" --json --budget "$(left)s" "$@" > "$file" 2>> log || code=$?
  if [ "$code" = 130 ]; then exit 130; fi
  if [ "$code" != 0 ] && [ ! -s "$file" ]; then
    echo "$server: a check failed; the end of $PWD/log:" >&2
    tail -5 log >&2
    rm -f "$file"
    return
  fi
  echo "$server $kind $code $file" >> codes
}

sit() { # SERVER
  local server=$1
  until=$((SECONDS + minutes * 60))
  sitting=$(date +%s)
  turn=0
  describe "$server" 0
  echo "$server: save, at most $((minutes * 60 * save_share / 100)) s" >&2
  "$mallard" baseline save "$server" --service "$server.toml" --anchor "./$server.toml" --seconds "$each" \
    --settle 300ms --budget $((minutes * 60 * save_share / 100))s --fail-if "${limits[@]}" >> log 2>&1 || {
    echo "$server: nothing was saved; the end of $PWD/log:" >&2
    tail -5 log >&2
    return
  }
  describe "$server" $(($(memory "$server") * 15 / 100))
  # A check of 8 blocks takes about as long as 8 blocks of the save.
  local took=0 begun
  while [ "$(left)" -gt $((took * 3 / 2)) ]; do
    begun=$SECONDS
    turn=$((turn + 1))
    case $((turn % 5)) in
      1 | 3) check "$server" same ;;
      2) check "$server" p99 --service "$server-p99.toml" --seconds "$each" --settle 300ms ;;
      4) check "$server" rss --service "$server-rss.toml" --seconds "$each" --settle 300ms ;;
      0)
        case $((turn / 5 % 2)) in
          1) disturb ;;
          0) disturb 0.7 ;;
        esac
        check "$server" slow
        calm
        ;;
    esac
    took=$((SECONDS - begun))
    echo "$server: check $turn, $(left) s left" >&2
  done
}

# How often each kind ended with each exit code.
table() {
  python3 - $servers <<'PY'
import collections, glob, json, os, sys

counts = collections.Counter()
blocks = collections.Counter()
for line in open("codes") if os.path.exists("codes") else ():
    server, kind, code, file = line.split()
    outcome = json.load(open(file))
    gate = {"p99": "p99", "rss": "rss_end"}.get(kind)
    verdicts = [line["verdict"] for line in outcome["gates"] if gate in (None, line["metric"])]
    worst = "WORSE" if "WORSE" in verdicts else "cannot tell" if "cannot tell" in verdicts else "ok"
    counts[server, kind, worst] += 1
    blocks[server] += outcome["blocks"]

rows = (
    ("same", "nothing changed", "false alarms"),
    ("p99", "P99 +8 %", "found"),
    ("rss", "ballast of 15 %", "found"),
    ("slow", "slowed runner", "exit code 1"),
)
print("| server | real checks with | checks | failed (exit 1) | cannot tell (3) | passed (0) |")
print("| --- | --- | --- | --- | --- | --- |")
for server in sys.argv[1:]:
    for kind, what, meaning in rows:
        of = [counts[server, kind, word] for word in ("WORSE", "cannot tell", "ok")]
        print(f"| {server} | {what} | {sum(of)} | {of[0]} {meaning} | {of[1]} | {of[2]} |")
PY
  echo
  local server real
  for server in $servers; do
    real=$(grep -c "^$server " codes 2>/dev/null || true)
    echo "$server: real checks ${real:-0}; resampled from the real blocks of its saves and of checks of the same:"
    # shellcheck disable=SC2046 # names of blocks, each an argument
    "$mallard" baseline rehearse "$server" --plant p99=+8% --plant rss_end=+15% \
      $(awk -v server="$server" '$1 == server && $2 == "same" { print $4 }' codes 2>/dev/null) || true
    echo
  done
}

ballast
for server in $servers; do sit "$server"; done
echo "Measured on $(nproc) CPUs, load of ${each} s, $(date +%F); folder $PWD"
echo
table
