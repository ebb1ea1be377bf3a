package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
)

// signalled ends a context when a text is written.
type signalled struct {
	bytes.Buffer
	text string
	end  context.CancelFunc
}

func (s *signalled) Write(p []byte) (int, error) {
	if strings.Contains(string(p), s.text) {
		s.end()
	}
	return s.Buffer.Write(p)
}

// TestAChangeThatASignalEndsSaysWhatGoesOn ends the command while it waits for the servers.
func TestAChangeThatASignalEndsSaysWhatGoesOn(t *testing.T) {
	store := "sqlite:" + filepath.Join(t.TempDir(), "used.db")
	command := func(ctx context.Context, stderr *signalled, args ...string) (code int, out string) {
		var stdout bytes.Buffer
		code = run(ctx, append(args, "--store", store), strings.NewReader(""), &stdout, stderr)
		return code, stdout.String()
	}
	ok := func(args ...string) string {
		t.Helper()
		stderr := &signalled{text: "\x00"}
		code, out := command(t.Context(), stderr, args...)
		if code != 0 {
			t.Fatalf("%v: exit %d: %s", args, code, stderr.String())
		}
		return out
	}
	ok("migrate")
	ok("limits", "set", "api", "sliding-log 100/30d")
	for _, key := range []string{"ann", "bob"} {
		ok("take", "api", key, "--cost", "50")
	}
	ctx, cancel := context.WithCancel(t.Context())
	stderr := &signalled{text: "waiting until every server has the change", end: cancel}
	code, out := command(ctx, stderr, "limits", "set", "api", "sliding-log 10/30d", "--used", "scale")
	if code != exitError || !strings.Contains(out, "the catalogue has version 2 now") {
		t.Errorf("exit %d, %s", code, out)
	}
	want := "0 of 2 keys are done, the others keep what they have used: context canceled; " +
		"headgate limits used api scale goes on\n"
	if !strings.HasSuffix(stderr.String(), want) {
		t.Errorf("%s, want %s", stderr.String(), want)
	}
	for range 2 { // once, however often it is said
		if out := ok("limits", "used", "api", "scale"); out != "2 keys are done\n" {
			t.Error(out)
		}
		if out := ok("inspect", "api", "bob"); !strings.Contains(out, "5 of 10") {
			t.Error(out)
		}
	}
}
