package run

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// TestALimitThatTheStoreHasLostIsNotUnknown checks the error about a limit that the file has and the store has lost.
func TestALimitThatTheStoreHasLostIsNotUnknown(t *testing.T) {
	t.Parallel()
	file, err := config.Parse("c.yaml", []byte("limits: {api: gcra 1/s}\n"))
	if err != nil {
		t.Fatal(err)
	}
	limits, err := catalog.Read(t.Context(), memory.New(nil), &catalog.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	opened := make(chan struct{})
	close(opened)
	for _, c := range []struct {
		limit         string
		hasLostLimits bool
		want          error
	}{
		{"api", true, store.ErrUnavailable},
		{"api", false, headgate.ErrUnknownLimit},
		{"other", true, headgate.ErrUnknownLimit},
	} {
		n := &earlyNames{limits, file, opened, func() bool { return c.hasLostLimits }}
		_, findErr := n.Find(context.Background(), c.limit, "k")
		findAllErr := n.FindAll(context.Background(), []headgate.Charge{{Limit: headgate.MustNamed(c.limit), Key: "k"}})
		for _, err := range []error{findErr, findAllErr} {
			unknown := errors.Is(err, headgate.ErrUnknownLimit)
			if !errors.Is(err, c.want) || unknown == errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s, lost %t: %v, want %v", c.limit, c.hasLostLimits, err, c.want)
			}
		}
	}
}
