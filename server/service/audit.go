package service

import (
	"context"
	"time"

	"github.com/headgate/headgate/server/auth"
)

// AdminAction is a reset or a block that was asked for, for the audit.
type AdminAction struct {
	Verb       string // reset, block, or unblock
	Limit, Key string
	For        time.Duration // of a block
	Reason     string        // as the caller says it; empty: it says none
	Caller     string        // its name; empty: the server knows no callers, or it came by a Unix socket
	Err        error         // nil: it was done
}

// OnAdmin has a function called after each admin action, by the goroutine of its request. It must be
// set before the service is used.
func (s *Service) OnAdmin(f func(AdminAction)) { s.onAdmin = f }

// audit tells of an admin action.
func (s *Service) audit(ctx context.Context, a AdminAction, err error) {
	if s.onAdmin == nil {
		return
	}
	if c := auth.From(ctx); c != nil {
		a.Caller = c.Name
	}
	a.Err = err
	s.onAdmin(a)
}
