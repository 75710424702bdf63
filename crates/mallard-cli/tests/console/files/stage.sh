#!/usr/bin/env bash
# The first process of a chapter's namespaces. Reads the name of a script from each line of standard
# input, runs the script, and answers with its exit code.
#   stage.sh FOLDER INSTALLED KEPT…
# FOLDER becomes the current folder. INSTALLED lies over the root: its usr/local holds Mallard. The
# folders tmp and var/tmp beside FOLDER become those of the root, in which the folders KEPT stay as
# they are outside.
set -eu
folder=$1 installed=$2
shift 2
cd "$folder"
mkdir ../layers
mount -t tmpfs layers ../layers
for place in tmp var/tmp; do
  mkdir -p "../$place"
  chmod 1777 "../$place"
  for kept; do
    case $kept in
      "/$place"/*)
        mkdir -p "..$kept"
        mount --rbind "$kept" "..$kept"
        ;;
    esac
  done
  mount --rbind "../$place" "/$place"
done
cd "$folder"
for place in usr/local etc; do
  mkdir -p "$installed/$place" "../layers/$place/new" "../layers/$place/work"
  mount -t overlay overlay "/$place" -o \
    "lowerdir=$installed/$place:/$place,upperdir=../layers/$place/new,workdir=../layers/$place/work"
done
ldconfig
ip link set lo up
export PATH="$PWD:/usr/local/bin:$PATH"

# The process that the documentation calls 4711.
serve() {
  if [ -e /proc/4711 ]; then kill -9 4711; fi
  export LD_PRELOAD=/usr/local/lib/libmallard.so SERVER_SECONDS=3600
  export MALLOC_CONF=export_stats:true,prof:true,lg_prof_sample:14,prof_prefix:dump
  echo 4710 >/proc/sys/kernel/ns_last_pid
  ./server >../server.log 2>&1 &
  unset LD_PRELOAD SERVER_SECONDS MALLOC_CONF
}
serve
test -e /proc/4711
while read -r script seconds; do
  code=0
  # shellcheck disable=SC2016
  bash -c 'echo $$ >../group; exec timeout -k 5 "$1" bash "$2"' - "$seconds" "$script" \
    <../in >"$script.out" 2>"$script.err" || code=$?
  group=$(cat ../group)
  # A server that was stopped may take a moment more, and the next line wants its port. `timeout`
  # leads a process group of its own.
  for ((i = 0; i < 50; i++)); do
    if [ "$code" != 124 ] || ! kill -0 -- "-$group" 2>/dev/null; then break; fi
    sleep 0.1
  done
  echo "$code"
done
