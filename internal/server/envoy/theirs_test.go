package envoy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/envoy"
)

// downloadRatelimit downloads the module of envoyproxy/ratelimit, and returns its folder.
func downloadRatelimit(t *testing.T) string {
	t.Helper()
	const module = "github.com/envoyproxy/ratelimit@v1.4.1-0.20260122083618-3fb702589d36"
	c := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module)
	c.Dir = t.TempDir() // outside of this module, which does not need it
	c.Env = append(os.Environ(), "GOFLAGS=", "GO111MODULE=on", "GOWORK=off")
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	var got struct{ Dir, Error string }
	if err := errors.Join(err, json.Unmarshal(out, &got)); err != nil || got.Dir == "" {
		t.Fatalf("download %s: %v %s %s", module, err, got.Error, stderr.Bytes())
	}
	return got.Dir
}

// TestFilesOfEnvoyproxyRatelimitLoad checks that the configurations of envoyproxy/ratelimit's examples and tests are
// read, and that the files which its tests expect to fail are errors here too.
func TestFilesOfEnvoyproxyRatelimitLoad(t *testing.T) {
	t.Parallel()
	dir := downloadRatelimit(t)
	countLimits := func(path string) (n int) {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.TrimSpace(line) == "rate_limit:" {
				n++
			}
		}
		return n
	}
	wantErrs := map[string]string{ // files that its tests expect to fail, with a part of the error
		"bad_limit_unit.yaml":      "unit",
		"bad_yaml.yaml":            "2:1: found unexpected end",
		"duplicate_key.yaml":       "is there twice",
		"empty_domain.yaml":        "domain",
		"empty_key.yaml":           "key: is missing",
		"misspelled_key.yaml":      "the key is not known here",
		"misspelled_key2.yaml":     "the key is not known here",
		"non_map_list.yaml":        "must be a mapping",
		"non_string_key.yaml":      "0.25: the key is not known here",
		"replaces_empty.yaml":      "replaces[0]: has no name",
		"replaces_self.yaml":       "is the name of the limit itself",
		"unlimited_with_unit.yaml": "unlimited has neither a unit",
	}
	domainsOf := map[string]int{ // numbers of domains by folder
		"examples/ratelimit/config":                         2,
		"test/integration/runtime/current/ratelimit/config": 3,
	}
	var merged []envoy.File
	for _, name := range []string{"merge_domain_key1.yaml", "merge_domain_key2.yaml"} {
		text, err := os.ReadFile(filepath.Join(dir, "test", "config", name))
		if err != nil {
			t.Fatal(err)
		}
		merged = append(merged, envoy.File{Name: name, Text: text})
	}
	if c, err := envoy.Parse(true, merged...); err != nil || c.Domains() != 1 || c.Limits() != 2 {
		t.Errorf("two files of one domain: %v; want 1 domain, 2 limits", err)
	}
	if _, err := envoy.Parse(false, merged...); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("two files of one domain that are not merged: %v", err)
	}
	for folder, domains := range domainsOf {
		c, err := envoy.Read(filepath.Join(dir, filepath.FromSlash(folder)), false)
		if err != nil || c.Domains() != domains {
			t.Errorf("%s: %v; want %d domains", folder, err, domains)
		}
	}
	valid, invalid := 0, 0
	for _, pattern := range []string{
		"examples/ratelimit/config/*.yaml", "test/config/*.yaml", "test/integration/runtime/current/ratelimit/*.yaml",
		"test/integration/runtime/current/ratelimit/config/*.yaml",
	} {
		paths, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(pattern)))
		if err != nil || len(paths) == 0 {
			t.Errorf("%s: %v, %v", pattern, paths, err)
		}
		for _, path := range paths {
			c, err := envoy.Read(path, false)
			if want, ok := wantErrs[filepath.Base(path)]; ok {
				if !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v; want an ErrInvalid with %q", path, err, want)
				}
				invalid++
				continue
			}
			if err != nil {
				t.Error(err)
				continue
			}
			if valid++; c.Domains() != 1 || c.Limits() != countLimits(path) {
				t.Errorf("%s: %d domains, %d limits; want 1 and %d", path, c.Domains(), c.Limits(), countLimits(path))
			}
		}
	}
	if invalid != len(wantErrs) || valid < 12 {
		t.Errorf("%d files are valid and %d invalid; want at least 12, and %d", valid, invalid, len(wantErrs))
	}
}

// TestFilesOfOneDomain merges files, and resources of an xDS server, that have the same domain.
func TestFilesOfOneDomain(t *testing.T) {
	t.Parallel()
	file := func(name, text string) envoy.File { return envoy.File{Name: name, Text: []byte(text)} }
	const rateLimit = " rate_limit: {unit: hour, requests_per_unit: "
	a := file("a.yaml", "domain: d\ndescriptors:\n- {key: k,"+rateLimit+"2}}\n- {key: w, value: x*,"+rateLimit+"1}}\n")
	b := file("b.yaml", "domain: d\ndescriptors:\n- {key: l,"+rateLimit+"3}}\n- {key: w, value: xy*,"+rateLimit+"9}}\n")
	otherDomain := file("c.yaml", "domain: e\ndescriptors:\n- {key: k,"+rateLimit+"4}}\n")
	c, err := envoy.Parse(true, a, b, otherDomain)
	if err != nil || c.Domains() != 2 || c.Limits() != 5 {
		t.Fatalf("%d domains, %d limits, %v; want 2 and 5", c.Domains(), c.Limits(), err)
	}
	r := startRig(t, noHeaders)
	r.server.Use(c)
	for _, tt := range []struct {
		domain, key, value string
		want               int
	}{{"d", "k", "x", 2}, {"d", "l", "x", 3}, {"d", "w", "xyz", 1}, {"e", "k", "x", 4}} {
		if got := r.countPassed(9, tt.domain, desc(tt.key, tt.value)); got != tt.want {
			t.Errorf("%s of %s: %d passed, want %d", tt.key, tt.domain, got, tt.want)
		}
	}
	// A limit has the same name as in a single file for its domain, so files can be divided later.
	whole, err := envoy.Parse(false, file("d.yaml", string(a.Text)+strings.TrimPrefix(string(b.Text), "domain: d\ndescriptors:\n")))
	if err != nil {
		t.Fatal(err)
	}
	r.server.Use(whole)
	if got := r.countPassed(9, "d", desc("l", "x")); got != 0 {
		t.Errorf("%d passed after two files became one, want 0", got)
	}
	for want, second := range map[string]string{
		`b.yaml:3:3: descriptors[0]: "k" without a value is there twice`:                     "domain: d\ndescriptors:\n- {key: k}\n",
		`b.yaml:1:1: algorithm: "gcra" differs from "" in a.yaml, which has the same domain`: "domain: d\nalgorithm: gcra\n",
		`b.yaml:1:1: all_or_nothing: differs from a.yaml, which has the same domain`:         "domain: d\nall_or_nothing: true\n",
		`b.yaml:1:1: domain: is missing or empty`:                                            "descriptors: []\n",
	} {
		if _, err := envoy.Parse(true, a, file("b.yaml", second)); !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	second := domainConfig("d", 2)
	second.Descriptors[0].Key = "second"
	if c, err = envoy.FromXDS([]*rlsconf.RateLimitConfig{domainConfig("d", 1), second}, true); err != nil || c.Domains() != 1 || c.Limits() != 2 {
		t.Errorf("resources of one domain: %v; want 1 domain, 2 limits", err)
	}
}
