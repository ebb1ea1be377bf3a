package migrated

import (
	"fmt"
	"sync"
	"testing"
)

type database struct {
	dsn       string
	structure string       // a fingerprint of the structure of the new database
	drop      func() error // nil: the database ends with its server, or stays on one from the environment
}

// pool keeps databases without rows for later tests.
type pool struct {
	create func(tb testing.TB) (*database, error)
	// empty removes all rows after a test. The database is not reusable while another connection to it is open.
	empty func(d *database) (reusable bool, err error)

	mu   sync.Mutex
	idle []*database // databases that no test uses
}

// take returns the DSN of a database that no other test uses. After the test it is emptied and kept, or dropped.
func (p *pool) take(tb testing.TB) string {
	tb.Helper()
	p.mu.Lock()
	var d *database
	if n := len(p.idle); n > 0 {
		d, p.idle = p.idle[n-1], p.idle[:n-1]
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
		if !tb.Failed() { // a failed test may leave anything
			var err error
			if reusable, err = p.empty(d); err != nil {
				tb.Error(fmt.Errorf("migrated: empty the database after the test: %w", err))
			}
		}
		switch {
		case reusable:
			p.mu.Lock()
			defer p.mu.Unlock()
			p.idle = append(p.idle, d)
		case d.drop != nil:
			if err := d.drop(); err != nil {
				tb.Error(err)
			}
		}
	})
	return d.dsn
}
