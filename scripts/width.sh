#!/usr/bin/env bash
# Prints the lines of comments in Rust sources that are longer than 100 columns, and fails if there
# are any. It reads every file that Git does not ignore, new ones too. rustfmt leaves comments alone.
# A line with an address may be as long as the address.
#
#   scripts/width.sh
set -euo pipefail
cd "$(dirname "$0")/.."

long='^(?=\s*//)(?!.*https?://).{101,}'
if git ls-files --cached --others --exclude-standard '*.rs' | LC_ALL=C.UTF-8 xargs grep -nP "$long" -- /dev/null; then
  echo "width.sh: these comments are longer than 100 columns" >&2
  exit 1
fi
