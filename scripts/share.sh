#!/usr/bin/env bash
# Whether `mallard diagnose` finds the share of time inside malloc: a program with a planted share,
# the truth by perf, and what each of the three ways says.
#
#   scripts/share.sh               shares of 10, 30 and 60 percent
#   scripts/share.sh 5 50 ...      others
#
# The truth is the share of perf's samples in the C library and the kernel: the program calls
# nothing but malloc and free. Run it on a quiet machine. Needs perf: apt-get install linux-perf.
# MALLARD names another build of the command.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v perf >/dev/null || { echo "share.sh: perf is not installed (apt-get install linux-perf)" >&2; exit 2; }
mallard=${MALLARD:-}
if [ -z "$mallard" ]; then
  cargo build --release --locked --quiet -p mallard-cli
  mallard=$PWD/target/release/mallard
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O2 -fno-builtin -o "$work/share" bench/workloads/share.c
cd "$work"

# The percentage of perf's samples that are not in the program itself.
truth() {
  perf record -q -e cpu-clock -F 997 -o perf.data ./share run "$@" >perf.log 2>&1 ||
    { cat perf.log >&2; exit 1; }
  perf script -i perf.data -F ip,dso 2>/dev/null | awk '
    NF { all++; if ($0 !~ /\/share\)/) inside++ }
    END { if (!all) exit 1; printf "%.1f", 100 * inside / all }'
}

# What diagnose says by one way, with the interval.
found() {
  local way=$1
  shift
  local code=0
  "$mallard" diagnose --how "$way" --no-syscalls --json -- ./share run "$@" >found.json 2>found.log ||
    code=$?
  case $code in
    0 | 3) ;;
    *) cat found.log >&2; exit 1 ;;
  esac
  awk -F '[:,]' '
    /"inside":/ { inside = $2 } /"inside_low":/ { low = $2 } /"inside_high":/ { high = $2 }
    END {
      if (inside == "" || inside ~ /null/) printf "not known"
      else printf "%.1f (%.1f-%.1f)", 100 * inside, 100 * low, 100 * high
    }' found.json
}

printf '%8s %8s  %-20s %-20s %-20s\n' planted perf signals proc "perf, from outside"
for percent in "${@:-10 30 60}"; do
  for share in $percent; do
    read -r inside outside < <(./share plan "$share")
    # Long enough for a thousand samples and more of each way.
    inside=$((inside * 5)) outside=$((outside * 5))
    printf '%8s %8s  %-20s %-20s %-20s\n' "$share" "$(truth "$inside" "$outside")" \
      "$(found signals "$inside" "$outside")" "$(found proc "$inside" "$outside")" \
      "$(found perf "$inside" "$outside")"
  done
done
