#!/usr/bin/env bash
# Installs the programs that the end-to-end tests run on Mallard, where they are missing.
#
#   scripts/setup-tests.sh           install what is missing (Debian and its relatives)
#   scripts/setup-tests.sh --check   only say what is missing; exit 1 if anything is
#
# Nothing here is needed to build or to use Mallard, and `cargo test` skips by name the tests whose
# programs are not there. What it installs is left switched off: no service is started by it.
set -euo pipefail

# One line per program: the command that tells whether it is there, and the package that brings it.
programs=(
  "cc gcc"
  "c++ g++"
  "strip binutils"
  "git git"
  "perl perl"
  "python3 python3"
  "sqlite3 sqlite3"
  "redis-server redis-server"
  "redis-benchmark redis-tools"
  "node nodejs"
  "javac default-jdk-headless"
  "go golang-go"
  "chromium chromium"
  "strace strace"
  "valgrind valgrind"
)

missing_commands=()
missing_packages=()
for line in "${programs[@]}"; do
  read -r command package <<<"$line"
  if ! command -v "$command" >/dev/null 2>&1; then
    missing_commands+=("$command")
    missing_packages+=("$package")
  fi
done

if [ ${#missing_packages[@]} -eq 0 ]; then
  echo "setup-tests: every program of the end-to-end tests is here"
  exit 0
fi
echo "setup-tests: missing: ${missing_commands[*]}"

case "${1:-}" in
  "") ;;
  --check) exit 1 ;;
  *)
    echo "setup-tests: unknown option '$1'; the only one is --check" >&2
    exit 2
    ;;
esac

if ! command -v apt-get >/dev/null 2>&1; then
  echo "setup-tests: apt-get not found; install these by your system's own means:" >&2
  echo "  ${missing_commands[*]}" >&2
  exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! sudo -n true 2>/dev/null; then
    echo "setup-tests: not root, and sudo asks for a password; run this yourself:" >&2
    echo "  sudo apt-get install ${missing_packages[*]}" >&2
    exit 1
  fi
  as_root=(sudo -n)
fi

# Debian starts a server as soon as its package is installed, unless this file says no. The tests
# start their own on a socket in a scratch folder.
policy=/usr/sbin/policy-rc.d
own_policy=no
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
  "${as_root[@]}" chmod 755 "$policy"
  own_policy=yes
fi
restore_policy() {
  if [ "$own_policy" = yes ]; then
    "${as_root[@]}" rm -f "$policy"
  fi
}
trap restore_policy EXIT

apt_get() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "$@" </dev/null
}
apt_get update -qq
apt_get install -y -qq --no-install-recommends "${missing_packages[@]}"

for command in "${missing_commands[@]}"; do
  if ! command -v "$command" >/dev/null 2>&1; then
    echo "setup-tests: $command is still missing after its package was installed" >&2
    exit 1
  fi
  # The package also asks for its server at the next boot.
  if [ "$command" = redis-server ] && [ -d /run/systemd/system ]; then
    "${as_root[@]}" systemctl disable --now redis-server.service || true
  fi
done
echo "setup-tests: installed ${missing_packages[*]}"
