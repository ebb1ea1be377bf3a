#!/bin/sh
# After a removal. The state in /var/lib/headgate stays.
set -e
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
