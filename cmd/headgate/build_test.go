package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/tier"
)

func TestBuildInfoFillsMissingFields(t *testing.T) {
	t.Parallel()
	info := &debug.BuildInfo{
		Main: debug.Module{Version: "v0.3.1"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"},
		},
	}
	for _, tt := range []struct {
		linked, want build
		wantShort    string
	}{
		{build{}, build{"v0.3.1", "0123456789abcdef", "2026-01-02T03:04:05Z"}, "v0.3.1 0123456789ab"},
		{build{"v9", "fe", "d"}, build{"v9", "fe", "d"}, "v9 fe"},
		{build{version: "v0-0123456789ab"}, build{"v0-0123456789ab", "0123456789abcdef", "2026-01-02T03:04:05Z"}, "v0-0123456789ab"},
	} {
		got := tt.linked
		got.addBuildInfo(info)
		if got != tt.want || got.versionAndCommit() != tt.wantShort {
			t.Errorf("%+v: got %+v, %q, want %+v, %q", tt.linked, got, got.versionAndCommit(), tt.want, tt.wantShort)
		}
	}
}

// driverOfTag maps each build tag that leaves out a store to the package of its driver.
var driverOfTag = map[string]string{
	"headgate_nosqlite":   "modernc.org/sqlite",
	"headgate_nopostgres": "github.com/jackc/pgx/v5",
	"headgate_nomysql":    "github.com/go-sql-driver/mysql",
	"headgate_noredis":    "github.com/redis/rueidis",
}

// TestBuildTagsLeaveStoresOut checks that each tag leaves out the driver of its store, and no other driver.
func TestBuildTagsLeaveStoresOut(t *testing.T) {
	tier.Nightly(t)
	t.Parallel()
	for tag := range driverOfTag {
		goList := exec.Command("go", "list", "-deps", "-tags", tag, ".")
		goList.Stderr = os.Stderr
		out, err := goList.Output()
		if err != nil {
			t.Fatalf("%s: %v", tag, err)
		}
		linked := strings.Fields(string(out))
		for other, d := range driverOfTag {
			if isLinked := slices.Contains(linked, d); isLinked != (other != tag) {
				t.Errorf("%s: the driver %s is linked: %v, want %v", tag, d, isLinked, other != tag)
			}
		}
	}
}

// TestOpenTelemetryNeedsABuildTag checks that OpenTelemetry is linked only with the tag headgate_otel.
func TestOpenTelemetryNeedsABuildTag(t *testing.T) {
	t.Parallel()
	for tag, want := range map[string]bool{"": false, "headgate_otel": true} {
		goList := exec.Command("go", "list", "-deps", "-tags", tag, ".")
		goList.Stderr = os.Stderr
		out, err := goList.Output()
		if err != nil {
			t.Fatalf("%s: %v", tag, err)
		}
		if isLinked := strings.Contains(string(out), "go.opentelemetry.io/"); isLinked != want {
			t.Errorf("tag %q: OpenTelemetry is linked: %v", tag, isLinked)
		}
	}
}

// TestCommandBuiltWithoutStores builds the command without stores, with a version and the command man, and runs it.
func TestCommandBuiltWithoutStores(t *testing.T) {
	tier.Nightly(t)
	t.Parallel()
	dir := t.TempDir()
	bin := filepath.Join(dir, "headgate")
	tags := []string{"headgate_man"}
	for tag := range driverOfTag {
		tags = append(tags, tag)
	}
	ldflags := "-X main.release=v9.8.7 -X main.commit=0123456789abcdef0123 -X main.date=2026-01-02T03:04:05Z"
	build := exec.Command("go", "build", "-trimpath", "-tags", strings.Join(tags, ","), "-ldflags", ldflags,
		"-o", bin, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, tt := range []struct {
		args      string
		code      int
		wantTexts []string
	}{
		{"--version", exitOK, []string{
			"headgate v9.8.7 0123456789ab go1.", "\ncommit    0123456789abcdef0123\n",
			"\ndate      2026-01-02T03:04:05Z\n", "\nstores    memory\n",
		}},
		{"take gcra*5/s k --store memory:", exitOK, []string{"allowed"}},
		{"take gcra*5/s k", exitError, []string{
			"store: this headgate was built without the stores of sqlite (build tag headgate_nosqlite); it has memory\n",
		}},
		{"serve --store postgres://app:secret@db/app", exitError, []string{
			"this headgate was built without the stores of postgres (build tag headgate_nopostgres)",
		}},
		{"serve --store mysql://db/app", exitError, []string{"without the stores of mysql (build tag headgate_nomysql)"}},
		{"serve --store rediss://db/0", exitError, []string{"without the stores of rediss (build tag headgate_noredis)"}},
		{"schema postgres", exitError, []string{"invalid argument"}},
		{"man man", exitOK, []string{"wrote the manual into man\n"}},
	} {
		args := strings.Fields(tt.args)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "*", " ")
		}
		cmd := exec.Command(bin, args...)
		cmd.Dir = dir
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != tt.code {
			t.Errorf("%s: exit code %d, want %d: %s", tt.args, code, tt.code, out)
		}
		for _, wantText := range tt.wantTexts {
			if !strings.Contains(string(out), wantText) || strings.Contains(string(out), "secret") {
				t.Errorf("%s: %q, want %q", tt.args, out, wantText)
			}
		}
	}
	for page, wantText := range map[string]string{
		"headgate.1":       `.TH "HEADGATE" "1" "Jan 2026" "headgate v9.8.7" "Headgate"`,
		"headgate-serve.1": `\fB--store\fP`,
	} {
		text, err := os.ReadFile(filepath.Join(dir, "man", page))
		if err != nil || !strings.Contains(string(text), wantText) {
			t.Errorf("%s: %v, want %s in\n%.500s", page, err, wantText, text)
		}
	}
}
