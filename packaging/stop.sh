#!/bin/sh
# Before removal, and not before an upgrade: no instance of the service goes on, or would at the next
# start of the system.
case $1 in
  remove | 0)
    if [ -d /run/systemd/system ]; then systemctl stop 'mallard-export@*.service' || true; fi
    if [ -x /bin/systemctl ]; then systemctl --quiet disable mallard-export@.service || true; fi
    ;;
esac
