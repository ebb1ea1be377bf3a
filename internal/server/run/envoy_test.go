package run

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAFolderAsKubernetesMountsIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	version := func(name, edge string) {
		sub := filepath.Join(dir, name)
		if err := os.Mkdir(sub, 0o700); err != nil {
			t.Fatal(err)
		}
		write(filepath.Join(sub, "shop.yaml"), "domain: shop\ndescriptors: [{key: a}, {key: b}]\n")
		write(filepath.Join(sub, "edge.yaml"), edge)
		_ = os.Remove(filepath.Join(dir, "..next"))
		if err := os.Symlink(name, filepath.Join(dir, "..next")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..next"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	const limited = "rate_limit: {unit: second, requests_per_unit: 4}"
	edge := "domain: edge\ndescriptors: [{key: a, " + limited + "}, {key: b, " + limited + "}]\n"
	version("..1", edge)
	for _, name := range []string{"shop.yaml", "edge.yaml"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(dir, "README"), "no configuration")
	e := &envoyService{path: dir}
	log := slog.New(slog.DiscardHandler)
	f, err := e.open(nil, log)
	if err != nil {
		t.Fatal(err)
	}
	first := e.server.Config()
	if first.Domains() != 2 || first.Limits() != 2 {
		t.Fatalf("%d domains, %d limits, want 2 of both", first.Domains(), first.Limits())
	}
	version("..2", "domain: edge\ndescriptors: [{key: other}]\n")
	f.check(log, false)
	if e.server.Config() != first {
		t.Error("one look has put a change into force")
	}
	f.check(log, false)
	if got := e.server.Config().Limits(); got != 0 || f.Problem() != "" {
		t.Errorf("%d limits after two looks, problem %q, want 0", got, f.Problem())
	}
	second := e.server.Config()
	version("..3", "domain: edge\ndescriptors: [{kee: other}]\n")
	f.check(log, false)
	f.check(log, false)
	if e.server.Config() != second || !strings.Contains(f.Problem(), "edge.yaml:2:16: descriptors[0].kee") {
		t.Errorf("a wrong file has changed something, or is not told: %q", f.Problem())
	}
	version("..4", edge)
	f.check(log, false)
	f.check(log, false)
	if got := e.server.Config().Limits(); got != 2 || f.Problem() != "" {
		t.Errorf("%d limits after a mistake was mended, problem %q, want 2", got, f.Problem())
	}
	if err := os.Remove(filepath.Join(dir, "edge.yaml")); err != nil {
		t.Fatal(err)
	}
	version("..5", edge)
	if err := os.Remove(filepath.Join(dir, "..data", "shop.yaml")); err != nil {
		t.Fatal(err)
	}
	f.check(log, true)
	if e.server.Config().Domains() != 2 || !strings.Contains(f.Problem(), "shop.yaml") {
		t.Errorf("a link that leads nowhere has changed something, or is not told: %q", f.Problem())
	}
}
