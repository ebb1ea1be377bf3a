package resp_test

import (
	"context"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// still stops the clock of a store: replies tell times in whole seconds, which a second that passes changes.
func still() *memory.Store {
	return memory.New(&memory.Config{Clock: func() int64 { return 1795600000_000000 }})
}

// failing is a store whose decisions fail.
type failing struct {
	store.Store
	err error
}

func (f *failing) Apply(context.Context, []law.Op, []law.Outcome) error { return f.err }

// gated is a store whose decisions wait.
type gated struct {
	store.Store
	come, open chan struct{}
}

func (g *gated) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	close(g.come)
	<-g.open
	return g.Store.Apply(ctx, ops, outs)
}
