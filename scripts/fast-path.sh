#!/usr/bin/env bash
# Counts the instructions of malloc's and free's fast paths with callgrind and shows them.
#
#   scripts/fast-path.sh [LIBRARY]
#
# LIBRARY is a libmallard.so; without one, it is built. Needs valgrind, objdump and a C compiler.
set -euo pipefail
cd "$(dirname "$0")/.."

library=${1:-}
if [ -z "$library" ]; then
  make -s -C crates/mallard-c build/libmallard.so >&2
  library=crates/mallard-c/build/libmallard.so
fi
library=$(realpath "$library")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A loop of pairs, and the same loop without them: what is left over is the two functions and the two
# jumps through the procedure linkage table.
cat > "$work/pairs.c" <<'C'
#include <stdlib.h>
int main(int argc, char **argv) {
  long n = atol(argv[1]);
  size_t size = atol(argv[2]);
  for (long i = 0; i < n; i++) {
    volatile char *block = malloc(size);
    block[0] = 1;
    free((void *)block);
  }
  return argc - 3;
}
C
cc -O2 -fno-builtin -fno-plt "$work/pairs.c" -o "$work/pairs"

count() { # function, size, pairs
  LD_PRELOAD=$library valgrind --tool=callgrind --callgrind-out-file="$work/out" \
    "$work/pairs" "$3" "$2" >/dev/null 2>&1
  # The function's own instructions: free goes by the name of an operator that is the same code.
  callgrind_annotate --threshold=100 --show-percs=no "$work/out" 2>/dev/null |
    awk -v f=":($1)( |\$)" '$0 ~ f && $0 !~ /=>|main/ { gsub(",", "", $1); s += $1 } END { print s + 0 }'
}

pairs=100000
for size in 8 128 1024 4096 32768; do
  for f in 'malloc|mallard::api::alloc::alloc_medium' '_Zdl[a-zA-Z0-9_]*|_Zda[a-zA-Z0-9_]*|cfree|free'; do
    few=$(count "$f" "$size" 1000)
    many=$(count "$f" "$size" $((1000 + pairs)))
    if [[ $f = malloc* ]]; then name=malloc; else name=free; fi
    awk -v n="$name" -v s="$size" -v d=$((many - few)) -v p=$pairs \
      'BEGIN { printf "%-6s of %5d bytes: %.2f instructions\n", n, s, d / p }'
  done
done

for f in malloc free; do
  echo
  echo "$f:"
  at=$(nm -D "$library" | awk -v f=$f '$3 == f { print $1 }')
  objdump -d --no-show-raw-insn --start-address="0x$at" --stop-address="$((0x$at + 160))" "$library" |
    sed -n '/>:$/,/ret/p' | sed '1d; s/^ *[0-9a-f]*:\t/    /; /ret/q'
done
