#!/usr/bin/env bash
# Installs the programs that `mallard bench --suite full` runs on each allocator, and the one allocator that is not built
# from sources, where they are missing.
#
#   scripts/setup-bench.sh           install what is missing (Debian and its relatives)
#   scripts/setup-bench.sh --check   only say what is missing; exit 1 if anything is
#
# Nothing here is needed to build or to use Mallard; without one of them the suite leaves out its
# row and says so. What it installs is left switched off: no service is started by it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/programs.sh"

name=setup-bench
# One line per program: the command that tells whether it is there, and the package that brings it.
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
install_missing "every program of the suite is here" "$@"
