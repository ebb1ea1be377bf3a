// Package auth authenticates and authorizes the callers of a server. A caller shows a token or a certificate. A file
// lists the hashes of the tokens and the names of the certificates, each with a role and the limits it may touch.
package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Role is a caller's permission.
type Role uint8

// The roles. RoleAdmin includes the others; RoleTake and RoleRead do not include each other.
const (
	Anyone    Role = iota // no role is needed
	RoleTake              // charge and check limits, give charges back, hold leases
	RoleRead              // look at limits, keys and their use
	RoleAdmin             // all of that, and reset, refund and block keys, and change the catalog
)

var rolesByName = map[string]Role{"take": RoleTake, "read": RoleRead, "admin": RoleAdmin}

// String returns the name of a role in the file.
func (r Role) String() string {
	for name, role := range rolesByName {
		if role == r {
			return name
		}
	}
	return "anyone"
}

// ErrForbidden is the error of a caller without the needed permission. Nothing was done.
var ErrForbidden = errors.New("not permitted")

// Caller is an authenticated caller. It is immutable and safe for concurrent use. A nil Caller may do everything: it is
// the program itself, or came by a Unix socket without credentials, or the server has no access control.
type Caller struct {
	Name   string // name of the entry in the file
	Role   Role
	Limits []string // patterns in which * stands for any text; none: all limits

	leaseKeys [][]byte // one for each token; the first makes numbers of leases, see SealLease
}

// CheckRole returns [ErrForbidden] if the caller does not have the needed role.
func (c *Caller) CheckRole(needed Role) error {
	if c == nil || needed == Anyone || c.Role == needed || c.Role == RoleAdmin {
		return nil
	}
	return fmt.Errorf("%w: %s has the role %s, and this needs the role %s", ErrForbidden, c, c.Role, needed)
}

// CheckLimit returns [ErrForbidden] if the caller may not touch a limit. limit is its name, or its canonical notation.
func (c *Caller) CheckLimit(limit string) error {
	if c.AllLimits() || slices.ContainsFunc(c.Limits, func(pattern string) bool { return Match(pattern, limit) }) {
		return nil
	}
	return fmt.Errorf("%w: %s may not touch the limit %.100q", ErrForbidden, c, limit)
}

// AllLimits reports whether the caller may touch all limits.
func (c *Caller) AllLimits() bool { return c == nil || len(c.Limits) == 0 }

// String names the caller in messages.
func (c *Caller) String() string {
	if c == nil || c.Name == "" {
		return "the caller"
	}
	return c.Name
}

// ID returns the id that the store uses for an id of this caller; an empty id stays empty. It begins with the caller's
// name, so no caller can replay, settle or extend the charges of another. Names have no slash.
func (c *Caller) ID(id string) string {
	if c == nil || c.Name == "" || id == "" {
		return id
	}
	return c.Name + "/" + id
}

// Match reports whether a text matches a pattern in which each * stands for any text, also an empty one.
func Match(pattern, text string) bool {
	first, rest, star := strings.Cut(pattern, "*")
	text, ok := strings.CutPrefix(text, first)
	if !star || !ok {
		return ok && text == ""
	}
	for {
		middle, after, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(text, middle)
		}
		i := strings.Index(text, middle)
		if i < 0 {
			return false
		}
		text, rest = text[i+len(middle):], after
	}
}

type callerKey struct{}

// WithCaller returns a context with a caller.
func WithCaller(ctx context.Context, c *Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns the caller of a context, or nil.
func CallerOf(ctx context.Context) *Caller {
	c, _ := ctx.Value(callerKey{}).(*Caller)
	return c
}
