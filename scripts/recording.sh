#!/bin/sh
# Measures the recorder and the replay on ten programs, for a quiet machine, and prints a table.
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
folder=${1:-$(mktemp -d)}
mkdir -p "$folder"
cd "$folder"
cargo build --release --locked --quiet --manifest-path "$root/Cargo.toml" -p mallard-cli
mallard="$root/target/release/mallard"
cc -std=gnu11 -O2 -fno-builtin -pthread "$root/bench/workloads/replay.c" -o replay -ldl

cat > x.cpp <<'CPP'
#include <map>
#include <regex>
#include <string>
#include <vector>
std::map<std::string, std::vector<int>> m;
std::regex r("a+|b*");
int main() { for (int i = 0; i < 10; i++) m["a"].push_back(i); }
CPP

sql='create table t(a, b); with recursive c(x) as (select 1 union all select x + 1 from c where x < 400000)
     insert into t select x, hex(x) from c; create index i on t(b); select count(*) from t group by b limit 1;'
cat > redis.sh <<'SH'
redis-server --port 0 --unixsocket "$PWD/r.sock" --save "" --appendonly no > /dev/null &
server=$!
until redis-cli -s r.sock PING > /dev/null 2>&1; do sleep 0.05; done
redis-benchmark -s r.sock -q -t set,get,lpush,lrange_100 -n 200000 -r 100000 -d 100 > /dev/null
redis-cli -s r.sock SHUTDOWN NOSAVE > /dev/null 2>&1 || true
wait $server || true
SH
cat > nginx.sh <<'SH'
mkdir -p n/logs n/html && head -c 20000 /dev/zero > n/html/index.html
printf 'daemon off; master_process off; events {} error_log /dev/null; pid n.pid; http { access_log off; server { listen unix:%s/n.sock; root html; } }' "$PWD" > n/nginx.conf
rm -f n.sock; nginx -p "$PWD/n" -c nginx.conf & server=$!
until [ -S n.sock ]; do sleep 0.05; done
for i in $(seq 200); do curl -s --unix-socket n.sock http://x/ -o /dev/null; done
kill $server; wait $server || true
SH

# name|program that must be there|command
programs="
redis|redis-benchmark|sh redis.sh
nginx|nginx|sh nginx.sh
python3|python3|env PYTHONMALLOC=malloc python3 -c 'print(len({str(i): [i] for i in range(600000)}))'
node|node|node -e 'let a=[];for(let i=0;i<3e6;i++)a.push({i,s:String(i)});console.log(a.length)'
ruby|ruby|ruby -e 'puts (1..1500000).map(&:to_s).sort.join.size'
sqlite3|sqlite3|sqlite3 :memory: \"\$sql\"
cc1plus|g++|g++ -c -O2 x.cpp -o x.o
z3|z3|z3 -T:20 queens.smt2
perl|perl|perl -e 'my %h; \$h{\$_}=\"v\$_\" for 1..800000; print scalar keys %h'
git|git|git -C '$root' log --stat -n 2000
"
z3input='(declare-fun x () (_ BitVec 64)) (declare-fun y () (_ BitVec 64)) (assert (= (bvmul x y) #x00000d3b62b1c34f)) (assert (bvugt x #x0000000000000001)) (assert (bvult x #x0000000001000000)) (assert (bvugt y #x0000000000000001)) (check-sat)'
printf '%s\n' "$z3input" > queens.smt2

# CPU and wall seconds of a command: "cpu wall".
timed() {
    bash -c 'TIMEFORMAT="%U %S %R"; time ( eval "$1" > /dev/null 2>&1 )' _ "$1" 2>&1 |
        tail -1 | awk '{ printf "%.3f %.3f", $1 + $2, $3 }'
}

export sql
printf '%-10s %12s %10s %12s %10s %12s\n' program events 'bytes/ev' 'record ns/ev' 'slower' 'replay ns/ev'
printf '%s\n' "$programs" | while IFS='|' read -r name needs command; do
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
