package service_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// unreadableStore is a store whose catalog can be read only once readable is true.
type unreadableStore struct {
	*memory.Store
	readable atomic.Bool
}

func (s *unreadableStore) ReadCatalog(ctx context.Context, since int64) (store.CatalogChanges, error) {
	if !s.readable.Load() {
		return store.CatalogChanges{}, fmt.Errorf("%w: not yet", store.ErrUnavailable)
	}
	return s.Store.ReadCatalog(ctx, since)
}

// TestAServiceIsHealthyOnceItKnowsItsLimits checks that a service is not healthy before its catalog was read.
func TestAServiceIsHealthyOnceItKnowsItsLimits(t *testing.T) {
	t.Parallel()
	s := &unreadableStore{Store: memory.New(&memory.Config{Names: true})}
	limits := catalog.Watch(s, &catalog.Config{Every: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	defer limits.Close()
	svc := service.New(headgate.New(s, &headgate.Config{Names: limits}), &config.Config{}, limits)
	if err := svc.Healthy(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("before the catalog was read: got %v, want ErrUnavailable", err)
	}
	d := store.Edit{Author: "a", Items: []store.Item{{Kind: store.KindLimit, Name: "login", Text: "token-bucket 5/1m"}}}
	if _, err := s.WriteCatalog(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	s.readable.Store(true)
	if err := svc.Healthy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d, err := svc.Take(t.Context(), &api.Request{Charge: api.Charge{Limit: "login", Key: "k"}}); err != nil || !d.Allowed {
		t.Errorf("a take by name: %+v, %v", d, err)
	}
}
