package resp_test

import (
	"context"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// frozenStore returns a store whose clock stands still, since replies have times in whole seconds.
func frozenStore() *memory.Store {
	return memory.New(&memory.Config{Clock: func() int64 { return 1795600000_000000 }})
}

// failingStore is a store whose Apply fails with err.
type failingStore struct {
	store.Store
	err error
}

func (f *failingStore) Apply(context.Context, []law.Op, []law.Outcome) error { return f.err }

// gatedStore is a store for one decision, which closes called, and waits until release is closed.
type gatedStore struct {
	store.Store
	called, release chan struct{}
}

func (g *gatedStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	close(g.called)
	<-g.release
	return g.Store.Apply(ctx, ops, outs)
}
