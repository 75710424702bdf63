#!/usr/bin/env bash
# Lists the functions that are longer than a screen, the longest first, with their file and line.
# Code is as rustfmt leaves it: a function ends at the brace that stands below its first letter.
#
#   scripts/long-functions.sh           those above 60 lines
#   scripts/long-functions.sh LINES     those above that many lines
set -euo pipefail
cd "$(dirname "$0")/.."

most="${1:-60}"
git ls-files '*.rs' | xargs awk -v most="$most" '
  FNR == 1 { open = 0 }
  !open && match($0, /^ *(pub(\([^)]*\))? )?(const )?(unsafe )?(extern "[^"]*" )?fn [a-z_0-9]+/) {
    indent = match($0, /[^ ]/) - 1
    name = $0
    sub(/.*fn /, "", name)
    sub(/[^a-z_0-9].*/, "", name)
    begin = FNR
    open = $0 !~ /[;}]$/
    next
  }
  open && match($0, /[^ ]/) - 1 == indent && $0 ~ /^ *}$/ {
    length_ = FNR - begin + 1
    if (length_ > most) printf "%5d  %s:%d  %s\n", length_, FILENAME, begin, name
    open = 0
  }
  # A declaration without a body.
  open && match($0, /[^ ]/) - 1 == indent && $0 ~ /;$/ { open = 0 }
' | sort -rn
