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
		err = s.declare(ctx)
	}
	if err == nil {
		s.checked.Store(true)
	}
	return err
}

// declare writes the maximum of the configuration into the store, so that it counts for
// all processes, and learns what the store has.
func (s *Store) declare(ctx context.Context) error {
	return s.anywhere(func(db querier) error { return s.declareAt(ctx, db) })
}

// declareAt is declare by way of one node.
func (s *Store) declareAt(ctx context.Context, db querier) error {
	all, _, err := readRooms(ctx, db)
	if err != nil {
		return err
	}
	was, mine := all[""].own, max(0, int64(s.cfg.MaxKeys))
	if s.cfg.MaxKeys != 0 && s.tx == nil && was != mine {
		if _, err := db.ExecContext(ctx,
			fmt.Sprintf("INSERT INTO headgate_key_counts (limit_name, max_keys) VALUES ('', %d) ON DUPLICATE KEY "+
				"UPDATE max_keys = VALUES(max_keys)", mine)); err != nil {
			return classify("set how many keys a limit may have", err)
		}
		if all[""].own = mine; was != 0 {
			s.log.Warn("the number of keys that a limit may have was changed, for all processes", "before", was,
				"now", mine)
		}
	}
	s.heed(all)
	return nil
}

// heed takes note of what the store has, and says once that its maximum for all limits is
// not that of the configuration.
func (s *Store) heed(all map[string]*room) {
	r := s.rooms
	most, every, sharing := all[""].own, int64(0), false
	for _, room := range all {
		sharing = sharing || room.sharing
		if own := room.own; own > 0 && (every == 0 || often(own) < every) {
			every = often(own)
		}
	}
	r.most.Store(most)
	r.every.Store(every)
	r.full.Store(sharing)
	mine := max(0, int64(s.cfg.MaxKeys))
	if s.cfg.MaxKeys == 0 || most == mine {
		r.warned.Store(mine)
	} else if r.warned.Swap(most) != most {
		s.log.Warn("another process has set how many keys a limit may have, for all", "here", mine, "now", most)
	}
}
