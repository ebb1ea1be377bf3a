package envoy_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/envoy"
)

func TestWrongFiles(t *testing.T) {
	t.Parallel()
	const head = "domain: d\ndescriptors:\n"
	for name, c := range map[string]struct{ text, want string }{
		"empty":            {"", "a.yaml: is empty"},
		"no YAML":          {"domain: [", "a.yaml:1:1: "},
		"a list":           {"- domain: d", "a.yaml:1:1: must be a mapping"},
		"two documents":    {"domain: d\n---\ndomain: e\n", "a second document"},
		"no domain":        {"descriptors: []\n", "domain: is missing or empty"},
		"empty domain":     {"domain: ''\n", "domain: is missing or empty"},
		"unknown key":      {"domain: d\nlimits: []\n", "a.yaml:2:1: limits: the key is not known here"},
		"key twice":        {"domain: d\ndomain: e\n", "a.yaml:2:1: domain: is said twice"},
		"key of another":   {head + "  - {key: k, unit: day}\n", "a.yaml:3:14: descriptors[0].unit: the key is not known here"},
		"no key":           {head + "  - {value: v}\n", "descriptors[0]: key: is missing"},
		"no descriptors":   {"domain: d\ndescriptors: 7\n", "descriptors: must be a list"},
		"no unit":          {head + "  - {key: k, rate_limit: {requests_per_unit: 1}}\n", "descriptors[0].rate_limit: unit: is missing"},
		"unknown unit":     {head + "  - {key: k, rate_limit: {unit: fortnight, requests_per_unit: 1}}\n", `unit: "fortnight" is not one of`},
		"negative":         {head + "  - {key: k, rate_limit: {unit: day, requests_per_unit: -1}}\n", "requests_per_unit: must be a whole number"},
		"too many":         {head + "  - {key: k, rate_limit: {unit: day, requests_per_unit: 4294967296}}\n", "must be a whole number"},
		"multiplier 0":     {head + "  - {key: k, rate_limit: {unit: day, requests_per_unit: 1, unit_multiplier: 0}}\n", "must be a whole number from 1"},
		"too long":         {head + "  - {key: k, rate_limit: {unit: year, requests_per_unit: 1, unit_multiplier: 11}}\n", "longer than 3660d"},
		"unlimited unit":   {head + "  - {key: k, rate_limit: {unlimited: true, unit: day}}\n", "unlimited has neither a unit"},
		"replaces itself":  {head + "  - {key: k, rate_limit: {name: n, replaces: [{name: n}], unit: day}}\n", "replaces[0]: \"n\" is the name of the limit itself"},
		"replaces nothing": {head + "  - {key: k, rate_limit: {replaces: [{}], unit: day}}\n", "replaces[0]: has no name"},
		"no bool":          {head + "  - {key: k, shadow_mode: often}\n", "shadow_mode: must be true or false"},
		"twice":            {head + "  - {key: k}\n  - {key: k}\n", `"k" without a value is there twice`},
		"twice inside":     {head + "  - key: a\n    descriptors: [{key: k, value: v}, {key: k, value: v}]\n", `descriptors[0].descriptors[1]: "k" with the value "v" is there twice`},
		"wildcard twice":   {head + "  - {key: k, value: v*}\n  - {key: k, value: v*}\n", "is there twice"},
		"nothing to share": {head + "  - {key: k, value: v, share_threshold: true}\n", "share_threshold: needs a value with a wildcard"},
		"charge":           {head + "  - {key: k, charge: sometimes}\n", "is neither when_allowed nor always"},
		"charge nothing":   {head + "  - {key: k, charge: always}\n", "charge: needs a rate_limit"},
		"refund nothing":   {head + "  - {key: k, refunds: true}\n", "refunds: needs a rate_limit"},
		"refund a log":     {head + "  - {key: k, refunds: true, rate_limit: {headgate: sliding-log 5/1h}}\n", "gives back single charges only"},
		"notation":         {head + "  - {key: k, rate_limit: {headgate: token-bukket 5/1h}}\n", "rate_limit.headgate: algorithm"},
		"two notations":    {head + "  - {key: k, rate_limit: {headgate: 5/1h, unit: day}}\n", "headgate says the whole limit"},
		"held":             {head + "  - {key: k, rate_limit: {headgate: concurrency 5 ttl 1m}}\n", "held until it is released"},
		"algorithm":        {"domain: d\nalgorithm: magic\n", `algorithm: "magic" is not one of`},
		"own algorithm":    {head + "  - {key: k, rate_limit: {algorithm: magic, unit: day}}\n", `algorithm: "magic" is not one of`},
		"always together":  {"domain: d\nall_or_nothing: true\ndescriptors:\n  - {key: k, charge: always, rate_limit: {unit: day}}\n", "has no meaning where all_or_nothing"},
		"aliases":          {"domain: d\ndescriptors: &a\n  - key: k\n    descriptors: *a\n", "d"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := envoy.Parse(false, envoy.File{Name: "a.yaml", Text: []byte(c.text)})
			if !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an ErrInvalid with %q", err, c.want)
			}
		})
	}
	_, err := envoy.Parse(false, envoy.File{Name: "a.yaml", Text: []byte(shopFile)}, envoy.File{Name: "b.yaml", Text: []byte(shopFile)})
	if err == nil || !strings.Contains(err.Error(), `b.yaml`) || !strings.Contains(err.Error(), `"shop" is defined twice`) {
		t.Errorf("a domain in two files: %v", err)
	}
}

func TestAliasesAndMerges(t *testing.T) {
	t.Parallel()
	r := startRig(t, noHeaders, `
domain: d
descriptors:
  - key: a
    rate_limit: &small {unit: hour, requests_per_unit: 3}
  - key: b
    rate_limit: {<<: *small, requests_per_unit: 5}
  - key: c
    value: 404
    rate_limit: *small
`)
	for key, want := range map[string]int{"a": 3, "b": 5, "c": 3} {
		if got := r.countPassed(9, "d", desc(key, "404")); got != want {
			t.Errorf("%s: %d passed, want %d", key, got, want)
		}
	}
}

func TestPathsWithoutFiles(t *testing.T) {
	t.Parallel()
	for _, path := range []string{filepath.Join(t.TempDir(), "away"), t.TempDir()} {
		if _, err := envoy.Read(path, false); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v, want that nothing is there", path, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		shopFile, mailFile, edgeFile, nestedFile, insideFile, shadowFile, replacingFile, wildFile, quotasFile,
		hourly + "}\n",
		"domain: d\nalgorithm: gcra\nall_or_nothing: true\ndescriptors:\n- {key: k, refunds: true, rate_limit: {headgate: 5/1h}}\n",
		"domain: d\ndescriptors: &a\n  - key: k\n    descriptors: *a\n",
		"domain: d\nx: &x {<<: *x}\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := envoy.Parse(false, envoy.File{Name: "f", Text: text})
		if err != nil && !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("%v is not an ErrInvalid", err)
		}
		if err == nil && c.Domains() != 1 {
			t.Errorf("%d domains in one file", c.Domains())
		}
	})
}
