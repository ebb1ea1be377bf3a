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

// recordingObserver records all events.
type recordingObserver struct {
	looks []catalog.Look
	files []catalog.Application
}

func (h *recordingObserver) Looked(l catalog.Look)         { h.looks = append(h.looks, l) }
func (h *recordingObserver) Applied(a catalog.Application) { h.files = append(h.files, a) }

func TestAnObserverReceivesReadsAndFiles(t *testing.T) {
	t.Parallel()
	m := memory.New(nil)
	var h recordingObserver
	c, err := catalog.Read(t.Context(), m, &catalog.Config{Observer: &h, Logger: slog.New(slog.DiscardHandler)})
	if err != nil || len(h.looks) != 1 || h.looks[0].Err != nil || h.looks[0].Version != 0 {
		t.Fatalf("%+v, %v", h.looks, err)
	}
	login, err := headgate.ParseNamed("login", "token-bucket 5/1m")
	if err != nil {
		t.Fatal(err)
	}
	f := catalog.File{Path: "limits.yaml", Limits: []catalog.Definition{{Limit: login}}}
	for range 2 {
		if _, _, err := c.Apply(t.Context(), catalog.By{Author: "me"}, f, catalog.Once); err != nil {
			t.Fatal(err)
		}
	}
	var bare headgate.Limit
	f.Limits = []catalog.Definition{{Limit: bare}}
	if _, _, err := c.Apply(t.Context(), catalog.By{Author: "me"}, f, catalog.Once); err == nil {
		t.Fatal("a limit without a name was applied")
	}
	if len(h.files) != 3 || h.files[0].Known != catalog.New || h.files[0].Version != 1 ||
		h.files[1].Known != catalog.Newest || h.files[2].Err == nil {
		t.Errorf("%+v", h.files)
	}
	_ = m.Close()
	if err := c.Refresh(t.Context()); !errors.Is(err, store.ErrClosed) {
		t.Fatal(err)
	}
	if last := h.looks[len(h.looks)-1]; !errors.Is(last.Err, store.ErrClosed) || last.Version != 1 {
		t.Errorf("%+v", last)
	}
}
