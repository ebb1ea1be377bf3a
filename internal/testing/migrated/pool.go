package migrated

import (
	"fmt"
	"sync"
	"testing"
)

// database is one with the schema and without rows.
type database struct {
	dsn   string
	fresh string       // a print of its structure as it was made
	drop  func() error // nil: it ends with the server, or stays on one of the environment
}

type pool struct {
	create func(tb testing.TB) (*database, error)
	// empty removes all rows of a database that a test has used. It is not reusable while others are connected to it.
	empty func(d *database) (reusable bool, err error)

	mu    sync.Mutex
	spare []*database // which no test uses
}

// take returns the DSN of a database that a test has to itself.
func (p *pool) take(tb testing.TB) string {
	tb.Helper()
	p.mu.Lock()
	var d *database
	if n := len(p.spare); n > 0 {
		d, p.spare = p.spare[n-1], p.spare[:n-1]
	}
	p.mu.Unlock()
	if d == nil {
		var err error
		if d, err = p.create(tb); err != nil {
			tb.Fatal(fmt.Errorf("migrated: %w", err))
		}
	}
	tb.Cleanup(func() {
		reusable := false
		if !tb.Failed() { // whatever it left there is not looked at
			var err error
			if reusable, err = p.empty(d); err != nil {
				tb.Error(fmt.Errorf("migrated: empty the database after the test: %w", err))
			}
		}
		switch {
		case reusable:
			p.mu.Lock()
			defer p.mu.Unlock()
			p.spare = append(p.spare, d)
		case d.drop != nil:
			if err := d.drop(); err != nil {
				tb.Error(err)
			}
		}
	})
	return d.dsn
}
