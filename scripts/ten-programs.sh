# Ten programs whose memory is recorded and replayed: sourced by bound.sh, fidelity.sh and
# recording.sh, which set `root`, the repository. Goes to the folder that is the script's argument
# (default: a temporary one), and makes there what the programs need.
#
# Sets `folder`; `mallard`, the command (MALLARD, or built here); and `programs`, a line for each: its
# name, what must be installed, the command, and where that starts several processes which of them
# is meant (a pattern for its path; by default the one with the most calls).

folder=${1:-$(mktemp -d)}
mkdir -p "$folder"
cd "$folder"
mallard=${MALLARD:-}
if [ -z "$mallard" ]; then
  cargo build --release --locked --quiet --manifest-path "$root/Cargo.toml" -p mallard-cli
  mallard="$root/target/release/mallard"
fi

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

# name|program that must be there|command|process
programs="
redis|redis-benchmark|sh redis.sh|redis-(server|check)
nginx|nginx|sh nginx.sh|nginx
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
export sql
