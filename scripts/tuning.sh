#!/bin/bash
# Runs `mallard tune` end to end on real subjects, and prints what it recommends with the proof.
#
#     scripts/tuning.sh MINUTES [SUBJECT…]   # minutes for each of redis, nginx, postgres, python3, test
#
# The subject `test` is the program of a tuning guide: threads that allocate blocks of 16 to 4,096
# bytes and free them all. It is tuned three times (on Mallard, MINUTES each); then the guide's
# thirteen settings and the three answers run side by side, and each answer should be among the three
# best. Results stay in FOLDER (mallard-results/tuning). MALLARD is the command, SECONDS_EACH (1) the
# length of a server's load.
set -eu

minutes=${1:?"usage: scripts/tuning.sh MINUTES [SUBJECT…]"}
shift
subjects=${*:-redis nginx postgres python3 test}
root=$(cd "$(dirname "$0")/.." && pwd)
folder=${FOLDER:-mallard-results/tuning}
each=${SECONDS_EACH:-1}
mallard=${MALLARD:-}
if [ -z "$mallard" ]; then
  cargo build --release --locked --quiet --manifest-path "$root/Cargo.toml" -p mallard-cli
  mallard="$root/target/release/mallard"
fi
mallard=$(cd "$(dirname "$(command -v "$mallard")")" && pwd)/$(basename "$mallard")
mkdir -p "$folder"
cd "$folder"
stamp=$(date +%s)
trap 'exit 130' INT TERM

# A search whose results are in NAME-STAMP. Exit code 3 means that the budget was too short.
tune() { # NAME OPTION…
  local name=$1 code=0
  shift
  echo "$name: at most $minutes minutes" >&2
  "$mallard" tune --budget "${minutes}m" -o "$name-$stamp" "$@" > "$name-$stamp.txt" 2>> log || code=$?
  if [ "$code" = 130 ]; then exit 130; fi
  echo "$code" > "$name-$stamp.code"
}

# A program that makes and drops many objects, all of them by malloc.
python_work() {
  cat > work.py <<'PY'
import json

kept = []
for turn in range(40):
    rows = [{"id": i, "name": "x" * (i % 90), "tags": [str(i), str(turn)]} for i in range(2000)]
    kept.append(json.loads(json.dumps(rows)))
    del kept[:-4]
PY
}

test_program() {
  cat > tune_test.c <<'C'
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 16, BLOCKS = 10000, LEAST = 16, MOST = 4096 };

static void *work(void *number) {
    void **blocks = malloc(BLOCKS * sizeof *blocks);
    unsigned seed = 1 + (unsigned)(size_t)number;
    for (int i = 0; i < BLOCKS; i++) {
        size_t size = LEAST + rand_r(&seed) % (MOST - LEAST + 1);
        blocks[i] = malloc(size);
        memset(blocks[i], 1, size < 64 ? size : 64);
    }
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    free(blocks);
    return 0;
}

int main(void) {
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], 0, work, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], 0);
    return 0;
}
C
  cc -O2 -pthread -o tune_test tune_test.c
}

# The option string that a search recommends; nothing for the defaults.
answer() { # NAME
  python3 - "$1-$stamp/tune.json" <<'PY'
import json, sys

typed = json.load(open(sys.argv[1])).get("typed") or ""
print(next((word.split("=", 1)[1] for word in typed.split() if word.startswith("MALLARD_CONF=")), ""))
PY
}

# The answers beside the settings of the guide.
judge() {
  local variants=(--variant default=mallard) number setting
  for setting in narenas:1 narenas:4 narenas:8 narenas:16 narenas:32 dirty_decay_ms:0 \
    dirty_decay_ms:1000 dirty_decay_ms:5000 dirty_decay_ms:30000 dirty_decay_ms:-1 \
    background_thread:true background_thread:false; do
    variants+=(--variant "${setting//:/-}=mallard:$setting")
  done
  for number in 1 2 3; do
    [ -f "test$number-$stamp/tune.json" ] || continue
    setting=$(answer "test$number")
    variants+=(--variant "answer$number=mallard${setting:+:$setting}")
  done
  "$mallard" compare -o "test-judged-$stamp" -r "${RUNS:-8}" "${variants[@]}" -- ./tune_test \
    > "test-judged-$stamp.txt" 2>> log
  python3 - "test-judged-$stamp/compare.json" <<'PY'
import json, statistics, sys

times = {}
for experiment in json.load(open(sys.argv[1]))["experiments"]:
    for row in experiment["rows"]:
        for cell in row["cells"]:
            runs = [run["seconds"] for run in cell["runs"]]
            times[cell["allocator"]] = statistics.median(runs)
grid = sorted(time for name, time in times.items() if name != "glibc" and not name.startswith("answer"))
for name in sorted(name for name in times if name.startswith("answer")):
    ahead = sum(time < times[name] * 0.99 for time in grid)
    verdict = "among the three best" if ahead < 3 else "NOT among the three best"
    print(f"{name}: {times[name] * 1e3:.1f} ms; {ahead} of {len(grid)} settings are faster by 1 % or more: {verdict}")
PY
}

table() {
  python3 - "$stamp" "$@" <<'PY'
import json, os, sys

stamp, *names = sys.argv[1:]
print("| subject | answer | to type | proof | how sure |")
print("| --- | --- | --- | --- | --- |")
for name in names:
    code = open(f"{name}-{stamp}.code").read().strip()
    file = f"{name}-{stamp}/tune.json"
    if not os.path.exists(file):
        text = " ".join(open(f"{name}-{stamp}.txt").read().split())
        print(f"| {name} | exit code {code} | | {text} | |")
        continue
    found = json.load(open(file))
    lines = [(label, text) for label, text in found["lines"]]
    of = lambda label: "; ".join(text for known, text in lines if known == label)
    proof = of("against") or of("best found")
    print(f"| {name} | {found['sentence']} | `{found.get('typed') or '-'}` | {proof} | {of('how sure')} |")
PY
}

names=""
for subject in $subjects; do
  case $subject in
    python3)
      python_work
      tune python3 -- env PYTHONMALLOC=malloc "$(command -v /usr/bin/python3 || command -v python3)" work.py
      names="$names python3"
      ;;
    test)
      test_program
      for number in 1 2 3; do
        tune "test$number" -a mallard -- ./tune_test
        names="$names test$number"
      done
      ;;
    *)
      tune "$subject" --service "$subject" --seconds "$each" --settle 300ms
      names="$names $subject"
      ;;
  esac
done
echo "Tuned on $(nproc) CPUs, $minutes minutes each, $(date +%F); folder $PWD"
echo
# shellcheck disable=SC2086 # The names are words.
table $names
case " $subjects " in *" test "*) echo && judge ;; esac
