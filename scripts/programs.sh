# Sourced by setup-tests.sh and setup-bench.sh: finds the missing programs of a list and installs
# their packages.
#
# The caller sets its own name in `name`, fills `programs` with lines "COMMAND PACKAGE", and ends
# with `install_missing "a line for when all are installed" "$@"`. COMMAND may also be LIBRARY.so.N,
# a path with a `*` for the part that differs between releases, or php:EXTENSION.

# Commands whose package enables a service at the next boot, and the service.
declare -A services=([redis-server]=redis-server.service [nginx]=nginx.service [named]=named.service
  [memcached]=memcached.service [varnishd]=varnish.service [nghttpx]=nghttpx.service
  [apache2]=apache2.service [prometheus]=prometheus.service)

restore_policy() {
  if [ "$own_policy" = yes ]; then
    "${as_root[@]}" rm -f "$policy"
  fi
}

apt_get() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "$@" </dev/null
}

# Debian has servers and ldconfig in /usr/sbin or /sbin, which not every PATH has. A library must be
# known to the loader.
is_there() {
  local PATH="$PATH:/usr/sbin:/sbin"
  case $1 in
    /*) compgen -G "$1" >/dev/null ;;
    php:*) [[ $'\n'"$(php -m 2>/dev/null)"$'\n' == *$'\n'"${1#php:}"$'\n'* ]] ;;
    *.so.*) [[ "$(ldconfig -p)" == *"$1 "* ]] ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
  esac
}

install_missing() {
  local all_there=$1
  shift
  local missing_commands=() missing_packages=() line command package
  for line in "${programs[@]}"; do
    read -r command package <<<"$line"
    if ! is_there "$command"; then
      missing_commands+=("$command")
      missing_packages+=("$package")
    fi
  done

  if [ ${#missing_packages[@]} -eq 0 ]; then
    echo "$name: $all_there"
    exit 0
  fi
  echo "$name: missing: ${missing_commands[*]}"

  case "${1:-}" in
    "") ;;
    --check) exit 1 ;;
    *)
      echo "$name: unknown option '$1'; the only one is --check" >&2
      exit 2
      ;;
  esac

  if ! command -v apt-get >/dev/null 2>&1; then
    echo "$name: apt-get not found; install these with your system's package manager:" >&2
    echo "  ${missing_commands[*]}" >&2
    exit 1
  fi
  as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then
      echo "$name: not root, and sudo asks for a password; run this yourself:" >&2
      echo "  sudo apt-get install ${missing_packages[*]}" >&2
      exit 1
    fi
    as_root=(sudo -n)
  fi

  # Debian starts a server as soon as its package is installed, unless this file forbids it. Tests
  # and experiments start their own servers in scratch folders.
  policy=/usr/sbin/policy-rc.d
  own_policy=no
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
    own_policy=yes
  fi
  trap restore_policy EXIT

  apt_get update -qq
  # The tests use the extensions of PHP that are there, and a release may have dropped one, as Debian
  # 13 did with php-imap. All other packages must be there.
  local to_install=() dropped=()
  for i in "${!missing_packages[@]}"; do
    package=${missing_packages[i]}
    if [[ ${missing_commands[i]} == php:* ]] &&
      ! apt_get install -s -qq --no-install-recommends "$package" >/dev/null 2>&1; then
      dropped+=("$package")
    else
      to_install+=("$package")
    fi
  done
  if [ ${#dropped[@]} -gt 0 ]; then
    echo "$name: not in this release: ${dropped[*]}" >&2
  fi
  if [ ${#to_install[@]} -gt 0 ]; then
    apt_get install -y -qq --no-install-recommends "${to_install[@]}"
  fi

  for i in "${!missing_commands[@]}"; do
    command=${missing_commands[i]}
    if [[ " ${dropped[*]} " == *" ${missing_packages[i]} "* ]]; then
      continue
    fi
    if ! is_there "$command"; then
      echo "$name: $command is still missing after its package was installed" >&2
      exit 1
    fi
    if [ -n "${services[$command]:-}" ] && [ -d /run/systemd/system ]; then
      "${as_root[@]}" systemctl disable --now "${services[$command]}" || true
    fi
    # The service's name has the release: php8.2-fpm for php-fpm8.2.
    if [ "$command" = "/usr/sbin/php-fpm*" ] && [ -d /run/systemd/system ]; then
      for file in /usr/sbin/php-fpm*; do
        "${as_root[@]}" systemctl disable --now "php${file#*-fpm}-fpm.service" || true
      done
    fi
  done
  echo "$name: installed ${to_install[*]:-nothing}"
}
