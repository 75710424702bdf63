#!/usr/bin/env bash
# Installs the programs that the end-to-end tests run on Mallard, where they are missing.
#
#   scripts/setup-tests.sh           install what is missing (Debian and its relatives)
#   scripts/setup-tests.sh --check   only say what is missing; exit 1 if anything is
#
# Nothing here is needed to build or to use Mallard, and `cargo test` skips by name the tests whose
# programs are not there. What it installs is left switched off: no service is started by it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/programs.sh"

name=setup-tests
# One line per program: the command that tells whether it is there, and the package that brings it.
programs=(
  "cc gcc"
  "c++ g++"
  "strip binutils"
  "make make"
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
  "qemu-x86_64 qemu-user"
  "cmake cmake"
  "pkg-config pkgconf"
  "named bind9"
  "dig bind9-dnsutils"
  "varnishd varnish"
  "nghttpx nghttp2-proxy"
  "h2load nghttp2-client"
  "php php-cli"
  "/usr/sbin/php-fpm* php-fpm"
  "apache2 apache2"
  "/usr/lib/apache2/modules/libphp*.so libapache2-mod-php"
)
# PHP's extensions: plug-ins of the kind that preloaded allocators did not survive. The tests take those that are there.
for extension in bcmath bz2 curl dba enchant gd gmp imap intl ldap mbstring mysqli:mysql odbc pgsql pspell snmp soap \
  sqlite3 PDO_Firebird:interbase pdo_dblib:sybase tidy xsl:xml zip; do
  programs+=("php:${extension%:*} php-${extension#*:}")
done
install_missing "every program of the end-to-end tests is here" "$@"
