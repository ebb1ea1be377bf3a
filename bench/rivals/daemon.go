package rivals

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/headgate/headgate/bench/daemon"
)

// program is a rival that is a server: built by the go command from its
// module, which no go.mod of ours needs to know, and kept in the user's cache.
type program struct{ module, version, command string }

// build returns the path of the program's file.
func (p program) build(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "headgate-bench", filepath.Base(p.command)+"@"+p.version)
	file := filepath.Join(dir, filepath.Base(p.command))
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	text := fmt.Sprintf("module rival\n\ngo 1.26.0\n\nrequire %s %s\n", p.module, p.version)
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(text), 0o644); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-mod=mod", "-o", file, p.command)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return "", fmt.Errorf("build %s@%s: %w: %s", p.command, p.version, err, lines[len(lines)-1])
	}
	return file, nil
}

// start starts the program, and returns when it answers at an address.
func (p program) start(ctx context.Context, addr string, args []string, env ...string) (stop func(), err error) {
	file, err := p.build(ctx)
	if err != nil {
		return nil, err
	}
	return daemon.Start(ctx, file, addr, args, env...)
}
