#!/usr/bin/env bash
# Prints the comments in Rust sources, and the lines of the linker script and of its list of names,
# that are longer than 100 columns, and fails if there are any. It reads every file that Git does
# not ignore, new ones too. rustfmt leaves comments alone. A line with an address may be as long as
# the address.
#
#   scripts/width.sh
set -euo pipefail
cd "$(dirname "$0")/.."

# Prints the lines of the given files that match a pattern.
lines() {
  git ls-files --cached --others --exclude-standard "${@:2}" |
    LC_ALL=C.UTF-8 xargs grep -nP "$1" -- /dev/null
}

fails=0
lines '^(?=\s*//)(?!.*https?://).{101,}' '*.rs' && fails=1
lines '.{101,}' 'crates/mallard-c/layout.*' ':!*.rs' && fails=1
if [ "$fails" = 1 ]; then
  echo "width.sh: these lines are longer than 100 columns" >&2
  exit 1
fi
