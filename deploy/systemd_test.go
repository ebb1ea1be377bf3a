package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
)

// maxExposure bounds the exposure that systemd-analyze security reports. The unit has 1.1: it needs the network.
const maxExposure = 1.5

// TestUnits checks that systemd accepts the units, and that their exposure is low.
func TestUnits(t *testing.T) {
	tier.Nightly(t)
	t.Parallel()
	analyze := dbtest.Program(t, "systemd-analyze", "systemd")
	dir := t.TempDir()
	program, err := os.Executable() // any existing program
	if err != nil {
		t.Fatal(err)
	}
	files := []string{}
	for _, name := range []string{"headgate.service", "headgate.socket"} {
		text, err := os.ReadFile(filepath.Join("systemd", name))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, name)
		unit := strings.ReplaceAll(string(text), "/usr/bin/headgate", program)
		if err := os.WriteFile(file, []byte(unit), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	out, err := exec.Command(analyze, append([]string{"verify", "--man=no"}, files...)...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	out, err = exec.Command(analyze, "security", "--offline=true", files[0]).CombinedOutput()
	if err != nil {
		t.Fatalf("systemd-analyze security: %v\n%s", err, out)
	}
	m := regexp.MustCompile(`Overall exposure level for headgate.service: ([\d.]+)`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("systemd-analyze security does not say how exposed the service is:\n%s", out)
	}
	if level, err := strconv.ParseFloat(string(m[1]), 64); err != nil || level > maxExposure {
		t.Errorf("the exposure is %s, at most %v is allowed:\n%s", m[1], maxExposure, out)
	}
}
