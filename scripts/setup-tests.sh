#!/usr/bin/env bash
# Installs missing programs that the end-to-end tests run on Mallard, and those that packing and
# trying the packages takes.
#
#   scripts/setup-tests.sh           install the missing programs (on Debian and its derivatives)
#   scripts/setup-tests.sh --check   only list the missing programs; exit 1 if there are any
#
# Building and using Mallard needs none of them; `cargo test` skips the tests of missing programs
# and names them, unless MALLARD_REQUIRE_PROGRAMS=1 demands them (crates/testing). Installed services
# stay disabled.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/programs.sh"

# shellcheck disable=SC2034 # for programs.sh
name=setup-tests
# One line per program: the command that shows whether it is installed, and its package.
# shellcheck disable=SC2034
programs=(
  "cc gcc"
  "c++ g++"
  "clang++ clang"
  "/usr/lib/*/libc++.so libc++-dev"
  "/usr/lib/*/libc++abi.so libc++abi-dev"
  "strip binutils"
  "clang-format clang-format"
  "shellcheck shellcheck"
  "llvm-dwp llvm"
  "make make"
  "git git"
  "perl perl"
  "ruby ruby"
  "awk mawk"
  "xz xz-utils"
  "zstd zstd"
  "wget wget"
  "gpgv gpgv"
  "python3 python3"
  "pip3 python3-pip"
  "/usr/lib/python3*/ensurepip python3-venv"
  "sqlite3 sqlite3"
  "redis-server redis-server"
  "redis-benchmark redis-tools"
  "memcached memcached"
  "nginx nginx-light"
  "wrk wrk"
  "/usr/lib/postgresql/*/bin/postgres postgresql"
  "pgbench postgresql-contrib"
  "node nodejs"
  "javac default-jdk-headless"
  "go golang-go"
  "chromium chromium"
  "libjemalloc.so.2 libjemalloc2"
  "jeprof libjemalloc-dev"
  "strace strace"
  "faketime faketime"
  "fakeroot fakeroot"
  "heaptrack heaptrack"
  "tmux tmux"
  "systemd-analyze systemd"
  "gdb gdb"
  "gcore gdb"
  "ip iproute2"
  "jq jq"
  "curl curl"
  "valgrind valgrind"
  "qemu-x86_64 qemu-user"
  "cmake cmake"
  "pkg-config pkgconf"
  "named bind9"
  "dig bind9-dnsutils"
  "varnishd varnish"
  "nghttpx nghttp2-proxy"
  "h2load nghttp2-client"
  "prometheus prometheus"
  "promtool prometheus"
  "php php-cli"
  "/usr/sbin/php-fpm* php-fpm"
  "apache2 apache2"
  "/usr/lib/apache2/modules/libphp*.so libapache2-mod-php"
)
# PHP extensions, a kind of plug-in that has broken preloaded allocators. The tests use the
# installed ones.
for extension in bcmath bz2 curl dba enchant gd gmp imap intl ldap mbstring mysqli:mysql odbc pgsql pspell snmp soap \
  sqlite3 PDO_Firebird:interbase pdo_dblib:sybase tidy xsl:xml zip; do
  programs+=("php:${extension%:*} php-${extension#*:}")
done
install_missing "every program of the end-to-end tests is installed" "$@"
