package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
)

const compose = "compose/compose.yaml"

// composition has the fields of a compose file that tests check.
type composition struct {
	Services map[string]struct {
		Image   string
		Build   map[string]string
		Ports   []string
		Volumes []string
	}
	Volumes map[string]any
}

// readYAML decodes a YAML file into out.
func readYAML(t *testing.T, path string, out any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(text, out)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// imageVersion matches the version of an image.
var imageVersion = regexp.MustCompile(`:v?\d+\.\d+`)

// TestTheComposeFile checks that the mounted files exist, that images from elsewhere have a version, that no port is
// open to other machines, and that the config file can be read.
func TestTheComposeFile(t *testing.T) {
	t.Parallel()
	var c composition
	readYAML(t, compose, &c)
	if len(c.Services) < 4 {
		t.Fatalf("got %d services, want 4 at least", len(c.Services))
	}
	for name, s := range c.Services {
		if s.Build == nil && !imageVersion.MatchString(s.Image) {
			t.Errorf("%s: the image %s has no version", name, s.Image)
		}
		if s.Build != nil {
			if _, err := os.Stat(filepath.Join("compose", s.Build["context"], "Dockerfile")); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s: other machines reach the port %s", name, p)
			}
		}
		for _, v := range s.Volumes {
			from, _, _ := strings.Cut(v, ":")
			_, isVolume := c.Volumes[from]
			if _, err := os.Stat(filepath.Join("compose", from)); err != nil && !isVolume {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if _, err := config.Load(func(name string) (string, bool) {
		return "compose/headgate/headgate.yaml", name == config.File.Flag()
	}); err != nil {
		t.Errorf("the config file: %v", err)
	}
}

// TestTheComposeFileIsValid checks the file with the reference implementation of the Compose Specification.
func TestTheComposeFileIsValid(t *testing.T) {
	t.Parallel()
	program := os.Getenv("HEADGATE_TEST_COMPOSE")
	if program == "" {
		t.Skip("HEADGATE_TEST_COMPOSE is not set: make compose builds the program and runs this test")
	}
	out, err := exec.CommandContext(t.Context(), program, compose).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "image: postgres:") {
		t.Errorf("%v\n%s", err, out)
	}
	mistyped := filepath.Join(t.TempDir(), "compose.yaml")
	text, err := os.ReadFile(compose)
	if err == nil {
		err = os.WriteFile(mistyped, []byte(strings.Replace(string(text), "depends_on:", "depend_on:", 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), program, mistyped).CombinedOutput(); err == nil {
		t.Errorf("a mistyped name: got no error:\n%s", out)
	}
}

// TestAlertRules checks the rules and the configuration of the compose file with Prometheus. Both must have the same
// name for the job of the servers.
func TestAlertRules(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	promtool := dbtest.Program(t, "promtool", "prometheus")
	run := func(args ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput()
		if err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		t.Logf("%s", out)
	}
	run("check", "rules", "--lint=all", "--lint-fatal", "prometheus/alerts.yaml")
	run("test", "rules", "prometheus/alerts_test.yaml")
	dir := t.TempDir() // in the container, both files are in one folder
	for from, to := range map[string]string{
		"compose/prometheus.yml": "prometheus.yml", "prometheus/alerts.yaml": "alerts.yaml",
	} {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	run("check", "config", filepath.Join(dir, "prometheus.yml"))
	var c struct {
		Scrape []struct {
			Job string `yaml:"job_name"`
		} `yaml:"scrape_configs"`
	}
	readYAML(t, "compose/prometheus.yml", &c)
	rules, err := os.ReadFile("prometheus/alerts.yaml")
	if err != nil || len(c.Scrape) != 1 || !strings.Contains(string(rules), `up{job="`+c.Scrape[0].Job+`"}`) {
		t.Errorf("the rules do not know the job %v, %v", c.Scrape, err)
	}
}
