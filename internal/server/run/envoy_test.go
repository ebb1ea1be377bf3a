package run

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEnvoyFilesInAFolderMountedByKubernetes checks valid and invalid versions of the files, to which a link switches.
func TestEnvoyFilesInAFolderMountedByKubernetes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mountVersion := func(name, edgeText string) {
		sub := filepath.Join(dir, name)
		if err := os.Mkdir(sub, 0o700); err != nil {
			t.Fatal(err)
		}
		write(filepath.Join(sub, "shop.yaml"), "domain: shop\ndescriptors: [{key: a}, {key: b}]\n")
		write(filepath.Join(sub, "edge.yaml"), edgeText)
		_ = os.Remove(filepath.Join(dir, "..next"))
		if err := os.Symlink(name, filepath.Join(dir, "..next")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..next"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	const rateLimit = "rate_limit: {unit: second, requests_per_unit: 4}"
	edge := "domain: edge\ndescriptors: [{key: a, " + rateLimit + "}, {key: b, " + rateLimit + "}]\n"
	mountVersion("..1", edge)
	for _, name := range []string{"shop.yaml", "edge.yaml"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(dir, "README"), "no configuration")
	svc := &envoyService{path: dir}
	log := slog.New(slog.DiscardHandler)
	files, err := svc.open(nil, log)
	if err != nil {
		t.Fatal(err)
	}
	firstConfig := svc.server.Config()
	if firstConfig.Domains() != 2 || firstConfig.Limits() != 2 {
		t.Fatalf("%d domains, %d limits, want 2 of both", firstConfig.Domains(), firstConfig.Limits())
	}
	mountVersion("..2", "domain: edge\ndescriptors: [{key: other}]\n")
	files.check(log, false)
	if svc.server.Config() != firstConfig {
		t.Error("a change is in force after one check, want two")
	}
	files.check(log, false)
	if got := svc.server.Config().Limits(); got != 0 || files.Problem() != "" {
		t.Errorf("%d limits after two checks, problem %q, want 0", got, files.Problem())
	}
	secondConfig := svc.server.Config()
	mountVersion("..3", "domain: edge\ndescriptors: [{kee: other}]\n")
	files.check(log, false)
	files.check(log, false)
	if svc.server.Config() != secondConfig || !strings.Contains(files.Problem(), "edge.yaml:2:16: descriptors[0].kee") {
		t.Errorf("after an invalid version: problem %q, want one, and the former limits", files.Problem())
	}
	mountVersion("..4", edge)
	files.check(log, false)
	files.check(log, false)
	if got := svc.server.Config().Limits(); got != 2 || files.Problem() != "" {
		t.Errorf("%d limits after a valid version, problem %q, want 2", got, files.Problem())
	}
	if err := os.Remove(filepath.Join(dir, "edge.yaml")); err != nil {
		t.Fatal(err)
	}
	mountVersion("..5", edge)
	if err := os.Remove(filepath.Join(dir, "..data", "shop.yaml")); err != nil {
		t.Fatal(err)
	}
	files.check(log, true)
	if svc.server.Config().Domains() != 2 || !strings.Contains(files.Problem(), "shop.yaml") {
		t.Errorf("with a dangling link: problem %q, want one of shop.yaml, and 2 domains", files.Problem())
	}
}
