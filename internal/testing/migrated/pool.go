package migrated

import (
	"fmt"
	"sync"
	"testing"
)

// pool has databases with the schema and without rows.
type pool struct {
	create func(tb testing.TB) (dsn string, err error)
	// empty removes all rows of a database that a test has used. It is not reusable while others are connected to it.
	empty func(dsn string) (reusable bool, err error)
	drop  func(dsn string) error

	mu    sync.Mutex
	spare []string // which no test uses
}

// take returns the DSN of a database that a test has to itself.
func (p *pool) take(tb testing.TB) string {
	tb.Helper()
	p.mu.Lock()
	var dsn string
	if n := len(p.spare); n > 0 {
		dsn, p.spare = p.spare[n-1], p.spare[:n-1]
	}
	p.mu.Unlock()
	if dsn == "" {
		var err error
		if dsn, err = p.create(tb); err != nil {
			tb.Fatal(fmt.Errorf("migrated: %w", err))
		}
	}
	tb.Cleanup(func() {
		reusable := false
		if !tb.Failed() { // whatever it left there is not looked at
			var err error
			if reusable, err = p.empty(dsn); err != nil {
				tb.Error(fmt.Errorf("migrated: empty the database after the test: %w", err))
			}
		}
		if !reusable {
			if err := p.drop(dsn); err != nil {
				tb.Error(err)
			}
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.spare = append(p.spare, dsn)
	})
	return dsn
}
