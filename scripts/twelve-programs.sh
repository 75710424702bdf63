# Twelve programs whose memory is recorded and replayed: sourced by bound.sh, fidelity.sh and
# recording.sh, which set `root`, the repository. Goes to the folder that is the script's argument
# (default: a temporary one), and makes there what the programs need.
#
# Sets `folder`; `mallard`, the command (MALLARD, or built here); and `programs`, a line for each: its
# name, what must be installed, the command, and where that starts several processes which of them
# is meant (a pattern for its path; by default the one with the most calls).
#
# Servers listen on sockets in the folder, whose path must be short for that (100 bytes).

# Debian keeps named and postgres out of a user's PATH. The programs of postgres come first, because
# those in /usr/bin are scripts that start them.
for bin in /usr/lib/postgresql/*/bin; do
  if [ -d "$bin" ]; then PATH="$bin:$PATH"; fi
done
export PATH="$PATH:/usr/sbin"

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
# Waits until a command succeeds, but not for a server that has ended.
cat > ready.sh <<'SH'
ready() { # SERVER COMMAND…
  pid=$1
  shift
  until "$@" > /dev/null 2>&1; do
    kill -0 "$pid" 2> /dev/null || { echo "the server has ended" >&2; exit 1; }
    sleep 0.05
  done
}
SH
cat > redis.sh <<'SH'
. ./ready.sh
redis-server --port 0 --unixsocket "$PWD/r.sock" --save "" --appendonly no > /dev/null &
server=$!
ready $server redis-cli -s r.sock PING
redis-benchmark -s r.sock -q -t set,get,lpush,lrange_100 -n 200000 -r 100000 -d 100 > /dev/null
redis-cli -s r.sock SHUTDOWN NOSAVE > /dev/null 2>&1 || true
wait $server || true
SH
cat > nginx.sh <<'SH'
. ./ready.sh
mkdir -p n/logs n/html && head -c 20000 /dev/zero > n/html/index.html
printf 'daemon off; master_process off; events {} error_log /dev/null; pid n.pid; http { access_log off; server { listen unix:%s/n.sock; root html; } }' "$PWD" > n/nginx.conf
rm -f n.sock; nginx -p "$PWD/n" -c nginx.conf & server=$!
ready $server test -S n.sock
for i in $(seq 200); do curl -s --unix-socket n.sock http://x/ -o /dev/null; done
kill $server; wait $server || true
SH

# postgres refuses root. In a user namespace of its own, root is nobody, and still owns its files.
cat > as.sh <<'SH'
as=""
if [ "$(id -u)" = 0 ]; then as="unshare --user"; fi
SH
# A cluster is made once, with a table of 100,000 rows, and each run begins with a copy of it.
cat > cluster.sh <<'SH'
. ./as.sh
. ./ready.sh
rm -rf cluster.new
$as initdb -D cluster.new -U bench -A trust --no-sync > cluster.log
$as postgres -D "$PWD/cluster.new" -c listen_addresses= -c unix_socket_directories="$PWD" -c fsync=off >> cluster.log 2>&1 &
server=$!
ready $server pg_isready -h "$PWD"
pgbench -i -q -s 1 -h "$PWD" -U bench postgres >> cluster.log 2>&1
kill -INT $server; wait $server
mv cluster.new cluster
SH
cat > postgres.sh <<'SH'
. ./as.sh
. ./ready.sh
rm -rf data && cp -a cluster data
$as postgres -D "$PWD/data" -c listen_addresses= -c unix_socket_directories="$PWD" -c fsync=off > postgres.log 2>&1 &
server=$!
ready $server pg_isready -h "$PWD"
pgbench -n -c 4 -j 1 -t 1500 -h "$PWD" -U bench postgres > pgbench.log 2>&1
kill -INT $server; wait $server || true
SH
if command -v postgres > /dev/null && command -v pgbench > /dev/null && [ ! -d cluster ]; then
  sh -eu cluster.sh
fi

# A zone of 1,000 names, asked for by UDP: four times all of them.
cat > named.sh <<'SH'
. ./ready.sh
mkdir -p b
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat > b/named.conf <<CONF
options {
  directory "$PWD/b"; listen-on port $port { 127.0.0.1; }; listen-on-v6 { none; };
  pid-file none; session-keyfile none; recursion no; dnssec-validation no; notify no;
};
controls { };
zone "example.test" { type primary; file "zone"; };
CONF
{
  printf '$TTL 60\n@ IN SOA ns root ( 1 60 60 60 60 )\n@ IN NS ns\nns IN A 192.0.2.1\n'
  printf '$GENERATE 1-1000 host$ TXT text-of-host-$\n'
} > b/zone
for _ in 1 2 3 4; do for i in $(seq 1000); do echo "host$i.example.test TXT"; done; done > b/questions
rm -f named.log
named -g -n 2 -c "$PWD/b/named.conf" > named.log 2>&1 &
server=$!
ready $server grep -q ' running$' named.log
dig "@127.0.0.1" -p "$port" +short -f b/questions > answers
kill $server; wait $server || true
SH

# name|program that must be there|command|process
programs="
redis|redis-benchmark|sh redis.sh|redis-(server|check)
nginx|nginx|sh nginx.sh|nginx
postgres|pgbench|sh postgres.sh|/postgres$
named|named|sh named.sh|/named$
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
