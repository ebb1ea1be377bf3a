package catalog_test

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

type recordingObserver struct {
	reads []catalog.Refresh
	files []catalog.Application
}

func (o *recordingObserver) Refreshed(l catalog.Refresh)   { o.reads = append(o.reads, l) }
func (o *recordingObserver) Applied(a catalog.Application) { o.files = append(o.files, a) }

func TestObserverReceivesReadsAndFiles(t *testing.T) {
	t.Parallel()
	s := memory.New(nil)
	var observer recordingObserver
	c, err := catalog.Read(t.Context(), s, &catalog.Config{Observer: &observer, Logger: slog.New(slog.DiscardHandler)})
	if err != nil || len(observer.reads) != 1 || observer.reads[0].Err != nil || observer.reads[0].Version != 0 {
		t.Fatalf("got reads %+v, %v; want one of version 0", observer.reads, err)
	}
	login, err := headgate.ParseNamed("login", "token-bucket 5/1m")
	if err != nil {
		t.Fatal(err)
	}
	f := catalog.File{Path: "limits.yaml", Limits: []catalog.Definition{{Limit: login}}}
	for range 2 {
		if _, _, err := c.Apply(t.Context(), catalog.By{Author: "me"}, f, catalog.ApplyOnce); err != nil {
			t.Fatal(err)
		}
	}
	var unnamed headgate.Limit
	f.Limits = []catalog.Definition{{Limit: unnamed}}
	if _, _, err := c.Apply(t.Context(), catalog.By{Author: "me"}, f, catalog.ApplyOnce); err == nil {
		t.Fatal("a limit without a name was applied, want an error")
	}
	if len(observer.files) != 3 || observer.files[0].Standing != catalog.FileNew || observer.files[0].Version != 1 ||
		observer.files[1].Standing != catalog.FileNewest || observer.files[2].Err == nil {
		t.Errorf("got files %+v, want one that is new, one that is the newest, one with an error", observer.files)
	}
	_ = s.Close()
	if err := c.Refresh(t.Context()); !errors.Is(err, store.ErrClosed) {
		t.Fatal(err)
	}
	lastRead := observer.reads[len(observer.reads)-1]
	if !errors.Is(lastRead.Err, store.ErrClosed) || lastRead.Version != 1 {
		t.Errorf("got read %+v, want version 1 and %v", lastRead, store.ErrClosed)
	}
}
