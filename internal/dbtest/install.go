package dbtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// program returns the path of an installed program, after installing the
// distribution's packages if need be and allowed. env is the environment
// variable by which a server can be named instead; empty if there is none.
func program(name, env string, packages ...string) (string, error) {
	find := func() string {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
		if path := filepath.Join("/usr/sbin", name); executable(path) {
			return path
		}
		return ""
	}
	return orInstall(find, name, env, packages...)
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir() && info.Mode()&0o111 != 0
}

// orInstall returns what find finds, before or after installing packages.
func orInstall(find func() string, name, env string, packages ...string) (string, error) {
	if path := find(); path != "" {
		return path, nil
	}
	missing := fmt.Errorf("%s is not installed: install it (Debian: apt-get install %s)", name,
		strings.Join(packages, " "))
	if env != "" {
		missing = fmt.Errorf("%w or set %s", missing, env)
	}
	apt, err := exec.LookPath("apt-get")
	if err != nil || os.Getuid() != 0 {
		return "", missing
	}
	// Several test processes want it at once: one installs, the others wait
	// for it. The distribution's own servers are neither made nor started.
	const script = `mkdir -p /etc/postgresql-common
conf=/etc/postgresql-common/createcluster.conf
[ -e $conf ] || echo 'create_main_cluster = false' > $conf
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then printf '#!/bin/sh\nexit 101\n' > $policy; chmod +x $policy; trap "rm -f $policy" EXIT; fi
apt=$1; shift
dpkg-query -W -f '${Status}\n' "$@" 2>/dev/null | grep -c '^install ok installed' | grep -qx $# && exit 0
$apt update -q && $apt -o DPkg::Lock::Timeout=300 install -yq --no-install-recommends "$@"`
	lock := filepath.Join(os.TempDir(), "headgate-dbtest.lock")
	cmd := exec.CommandContext(context.Background(), "flock",
		append([]string{lock, "sh", "-c", script, "sh", apt}, packages...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w; installing it failed: %w\n%s", missing, err, tail(string(out), 20))
	}
	if path := find(); path != "" {
		return path, nil
	}
	return "", missing
}
