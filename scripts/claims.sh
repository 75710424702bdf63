#!/bin/bash
# Repeats what four published articles claim about glibc's, jemalloc's and tcmalloc's allocators,
# and prints a table for each group of claims (docs/claims.md has the claims and what came of
# them).
#
#     scripts/claims.sh facts               # defaults, sizes, arenas, memory that stays: any machine
#     scripts/claims.sh times [FOLDER]      # the experiments: a quiet machine, about an hour
#     scripts/claims.sh all [FOLDER]
#
# RUNS (5) and QUICK=1 (small work, three runs: a trial of the script, no measurement) may be set,
# and MALLARD to the command. Results of the lab stay in FOLDER (default: a new temporary one).
set -eu

what=${1:-all}
root=$(cd "$(dirname "$0")/.." && pwd)
folder=${2:-$(mktemp -d)}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
runs=${RUNS:-5}
quick=${QUICK:+--quick}
mallard=${MALLARD:-}
if [ -z "$mallard" ]; then
  cargo build --release --locked --quiet --manifest-path "$root/Cargo.toml" -p mallard-cli
  mallard="$root/target/release/mallard"
fi
cd "$folder"

# The allocators of the articles that are here; gperftools is the tcmalloc that they used.
ready=""
for name in glibc mallard jemalloc tcmalloc gperftools; do
  if "$mallard" allocators list "$name" >/dev/null 2>&1; then ready="$ready $name"; fi
done
among() { # those of the arguments that are ready, with commas
  local list=""
  for name in "$@"; do case " $ready " in *" $name "*) list="$list,$name" ;; esac; done
  echo "${list#,}"
}

# The program on an allocator, with an option string for it.
on() { # ALLOCATOR OPTIONS PROGRAM…
  local allocator=$1 options=$2
  shift 2
  "$mallard" run -a "$allocator" ${options:+--conf "$options"} -- "$@"
}

facts() {
  cat > facts.c <<'C'
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void status(void) {
    char line[100];
    FILE *file = fopen("/proc/self/status", "r");
    long size = 0, rss = 0;
    while (fgets(line, sizeof line, file)) {
        sscanf(line, "VmSize: %ld", &size);
        sscanf(line, "VmRSS: %ld", &rss);
    }
    printf("%ld MiB of addresses, %ld MiB resident\n", size / 1024, rss / 1024);
}

/* 200 MB in blocks of 2,000 bytes, all freed but the last; then idle. */
static void peak(int seconds) {
    enum { COUNT = 100000 };
    static char *blocks[COUNT];
    for (int i = 0; i < COUNT; i++)
        blocks[i] = memset(malloc(2000), 1, 2000);
    for (int i = 0; i < COUNT - 1; i++)
        free(blocks[i]);
    sleep(seconds);
    status();
}

static pthread_barrier_t all;
static void *one(void *unused) {
    void *block = malloc(100);
    pthread_barrier_wait(&all);
    pthread_barrier_wait(&all);
    free(block);
    return unused;
}

/* glibc's arenas of 100 threads that all hold a block. */
static void arenas(void) {
    enum { COUNT = 100 };
    pthread_t threads[COUNT];
    pthread_barrier_init(&all, NULL, COUNT + 1);
    for (int i = 0; i < COUNT; i++)
        pthread_create(&threads[i], NULL, one, NULL);
    pthread_barrier_wait(&all);
    malloc_info(0, stdout);
    pthread_barrier_wait(&all);
    for (int i = 0; i < COUNT; i++)
        pthread_join(threads[i], NULL);
}

int main(int count, char **words) {
    if (count > 2 && strcmp(words[1], "peak") == 0)
        peak(atoi(words[2]));
    else if (count > 1 && strcmp(words[1], "arenas") == 0)
        arenas();
    else
        for (int i = 1; i < count; i++) {
            void *block = malloc(atoi(words[i]));
            printf("%s→%zu ", words[i], malloc_usable_size(block));
            free(block);
        }
    return 0;
}
C
  cc -O1 -fno-builtin -pthread -o facts facts.c
  echo "## Facts"
  echo
  echo "- CPUs: $(nproc); glibc's arenas of 100 threads: $(on glibc "" ./facts arenas | grep -c '<heap nr=')"
  for name in $(among glibc mallard jemalloc gperftools | tr , ' '); do
    echo "- usable sizes on $name: $(on "$name" "" ./facts 12 17 33 100 129 1000 5000)"
  done
  if [ -n "$(among jemalloc)" ]; then
    # shellcheck disable=SC2046 # several lines become one
    echo "- jemalloc's defaults:" $(on jemalloc stats_print:true true 2>&1 | grep -E \
      'opt\.(narenas|background_thread|tcache_max|dirty_decay_ms|muzzy_decay_ms|metadata_thp|thp):' \
      | sed -E 's/^ *opt\.//; s/ \(.*//')
  fi
  echo "- after 200 MB of which one block of 2,000 bytes stays, and 25 idle seconds:"
  (
    on glibc "" ./facts peak 25 > peak-glibc &
    for name in $(among mallard jemalloc | tr , ' '); do
      on "$name" "" ./facts peak 25 > "peak-$name" &
      for options in background_thread:true dirty_decay_ms:1000,muzzy_decay_ms:3000 \
        background_thread:true,dirty_decay_ms:1000 background_thread:true,dirty_decay_ms:-1,muzzy_decay_ms:-1; do
        on "$name" "$options" ./facts peak 25 > "peak-$name $options" &
      done
    done
    wait
  )
  for file in peak-*; do echo "  - \`${file#peak-}\`: $(cat "$file")"; done
  echo "- NUMA nodes: $(ls -d /sys/devices/system/node/node[0-9]* 2>/dev/null | wc -l) (advice for several cannot be tried on one)"
  echo
}

# A row of the lab as a table: its label, then each allocator's median and ratio to glibc's.
table() { # TITLE CSV
  echo "## $1"
  echo
  awk -F, '
    function field(name) { return $(column[name] + extra) }
    NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; fields = NF; next }
    {
      # A label in quotes may have commas: the fields are counted from the end then.
      extra = NF - fields
      row = ""; for (i = 1; i < column["allocator"] + extra; i++) row = row (i > 1 ? (i <= extra + 1 ? "," : " ") : "") $i
      gsub(/"/, "", row)
      if (row == "") row = "all"
      who = field("allocator")
      if (!(row in seen)) { seen[row] = ++rows; name[rows] = row }
      if (!(who in known)) { known[who] = ++all; called[all] = who }
      seconds = field("median_seconds")
      memory = ("peak_rss_bytes" in column) ? field("peak_rss_bytes") / 1048576 : 0
      time[row, who] = seconds; rss[row, who] = memory
    }
    END {
      line = "| |"; rule = "| --- |"
      for (a = 1; a <= all; a++) { line = line " " called[a] " |"; rule = rule " ---: |" }
      print line; print rule
      for (r = 1; r <= rows; r++) {
        line = "| " name[r] " |"
        for (a = 1; a <= all; a++) {
          s = time[name[r], called[a]]
          if (s == "") { line = line " – |"; continue }
          line = line sprintf(" %.3f s", s)
          if (time[name[r], "glibc"] > 0) line = line sprintf(" (%.2f)", s / time[name[r], "glibc"])
          if (rss[name[r], called[a]] > 0) line = line sprintf(", %.0f MiB", rss[name[r], called[a]])
          line = line " |"
        }
        print line
      }
    }' "$2"
  echo
}

bench() { # NAME WORDS… : runs the lab, with a CSV of that name
  local name=$1
  shift
  "$mallard" bench "$@" -r "$runs" $quick -o "$folder/$name" > "$name.txt" 2> "$name.err" \
    || { echo "$name failed:"; tail -5 "$name.err"; return 1; }
}

# Rows of the full set: median time, P99 of single calls, memory at the end.
rows() { # TITLE CSV
  echo "## $1"
  echo
  awk -F, '
    NR == 1 {
      for (i = 1; i <= NF; i++) column[$i] = i
      print "| row | allocator | seconds | P99, ns | longest, ns | peak, MiB | at the end, MiB |"
      print "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
      next
    }
    {
      mib = 1048576
      printf "| %s | %s | %.3f | %s | %s | %.0f | %.0f |\n", $1, $(column["allocator"]), $(column["seconds"]),
        $(column["p99_ns"]), $(column["max_ns"]), $(column["peak_rss_bytes"]) / mib, $(column["end_rss_bytes"]) / mib
    }' "$2"
  echo
}

times() {
  local four
  four=$(among glibc mallard jemalloc tcmalloc gperftools)
  bench pairs pairs --threads 1,4,16,32,64 -a "$four"
  table "Pairs of 128 bytes (000)" pairs/pairs.csv
  bench batch batch --threads 32 -a "$four"
  table "Batch of 16 to 255 bytes, 32 threads (001)" batch/batch.csv
  bench arenas arenas --threads 16 -a "$(among glibc mallard jemalloc)" \
    --set narenas:1 --set narenas:4 --set narenas:8 --set narenas:16 --set narenas:32 --set narenas:64
  table "Number of arenas, blocks of 256 bytes, 16 threads (003, 6.2)" arenas/arenas.csv
  bench tune tune --threads 16 -a "$(among mallard jemalloc)" \
    --set narenas:1 --set narenas:4 --set narenas:8 --set narenas:16 --set narenas:32 \
    --set dirty_decay_ms:0 --set dirty_decay_ms:1000 --set dirty_decay_ms:5000 --set dirty_decay_ms:30000 \
    --set dirty_decay_ms:-1 --set background_thread:true --set background_thread:false \
    --set dirty_decay_ms:1000,muzzy_decay_ms:3000 --set dirty_decay_ms:30000,muzzy_decay_ms:60000 \
    --set dirty_decay_ms:-1,muzzy_decay_ms:-1 --set background_thread:true,dirty_decay_ms:2000 \
    --set tcache_max:65536 --set metadata_thp:auto
  table "The guide's settings, blocks of 16 to 4,096 bytes, 16 threads (003, 6.3 to 6.8)" tune/tune.csv
  bench map map -a "$four"
  table "std::map with 10,000,000 inserts (004)" map/map.csv
  local background=""
  for name in $(among mallard jemalloc | tr , ' '); do
    background="$background --variant $name-on=$name:background_thread:true"
    background="$background --variant $name-off=$name:background_thread:false"
  done
  bench latency latency -a glibc $background
  rows "The background thread and single calls (003, 6.7)" latency/suite.csv
  bench idle idle -a "$four"
  rows "Memory at the end, the row itself sets dirty_decay_ms:1000 (001; 003, 6.3)" idle/suite.csv
}

echo "# The claims of the articles, on $(uname -m), $(nproc) CPUs, Linux $(uname -r), $(getconf GNU_LIBC_VERSION)"
echo
echo "allocators:$ready; runs: $runs${quick:+ ($quick: a trial, no measurement)}; results in $folder"
echo
case $what in
  facts) facts ;;
  times) times ;;
  all) facts; times ;;
  *) echo "usage: scripts/claims.sh facts|times|all [FOLDER]" >&2; exit 2 ;;
esac
