#!/bin/sh
# Before a removal, and not before an upgrade: dpkg says remove then, and rpm 0.
set -e
case "$1" in
remove | 0)
  if [ -d /run/systemd/system ]; then
    systemctl disable --now headgate.socket headgate.service
  fi
  ;;
esac
