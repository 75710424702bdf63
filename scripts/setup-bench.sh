#!/usr/bin/env bash
# Installs missing programs that `mallard bench full` runs on each allocator, and the one
# allocator that is not built from sources.
#
#   scripts/setup-bench.sh           install the missing programs (on Debian and its derivatives)
#   scripts/setup-bench.sh --check   only list the missing programs; exit 1 if there are any
#
# Building and using Mallard needs none of them; the suite reports and skips the rows of missing
# programs. Installed services stay disabled.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/programs.sh"

# shellcheck disable=SC2034 # for programs.sh
name=setup-bench
# One line per program: the command that shows whether it is installed, and its package.
# shellcheck disable=SC2034
programs=(
  "redis-server redis-server"
  "redis-benchmark redis-tools"
  "nginx nginx-light"
  "wrk wrk"
  "sqlite3 sqlite3"
  "lua5.4 lua5.4"
  "python3 python3"
  "ruby ruby"
  "perl perl"
  "g++ g++"
  "z3 z3"
  "libtcmalloc_minimal.so.4 libtcmalloc-minimal4"
)
install_missing "every program of the suite is installed" "$@"
