package mysql

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// ready says why the store cannot be used, or nil. It looks at the server and
// the version of the schema once.
func (s *Store) ready(ctx context.Context) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.checked.Load() {
		return nil
	}
	if s.nodes[0].db == nil {
		return fmt.Errorf("mysql: %w", law.Invalid("db", "is missing"))
	}
	err := s.anywhere(func(db querier) error {
		if err := checkServer(ctx, db); err != nil {
			return err
		}
		have, err := readInstalled(ctx, db)
		if err != nil {
			return err
		}
		if err := have.check(s.def); err != nil {
			return err
		}
		if have.revision < s.def.revision {
			s.log.Warn("the procedures in the database are older than this binary: run headgate migrate", "revision",
				have.revision, "binary", s.def.revision)
		}
		return s.look(ctx, db)
	})
	if err == nil {
		s.checked.Store(true)
	}
	return err
}
