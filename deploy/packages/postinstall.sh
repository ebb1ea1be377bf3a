#!/bin/sh
# After an installation or an upgrade. Nothing is started or restarted: before a new version serves a database,
# headgate migrate has to run.
set -e
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
