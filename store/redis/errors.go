package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/tlsconf"
	"github.com/headgate/headgate/store"
)

// codeClasses has the classes of server errors by their first word. Each means that nothing was done: a server refuses
// a script only before the script has written. Any other error that is not among phraseClasses leaves the outcome
// unknown: a script that fails keeps what it has written before.
var codeClasses = map[string]error{
	"TRYAGAIN":    store.ErrConflict, // the slot is being moved
	"CLUSTERDOWN": store.ErrUnavailable,
	"LOADING":     store.ErrUnavailable,
	"NOREPLICAS":  store.ErrUnavailable,
	"BUSY":        store.ErrUnavailable, // a script of some client does not end
	"READONLY":    store.ErrReadOnly,
	"MASTERDOWN":  store.ErrReadOnly,
	"MISCONF":     store.ErrReadOnly, // the server cannot write its disk
	"OOM":         store.ErrFull,
	"NOPERM":      store.ErrSetup,
	"WRONGPASS":   store.ErrSetup,
	"NOAUTH":      store.ErrSetup,
	"DENIED":      store.ErrSetup, // protected mode
	"MOVED":       store.ErrSetup, // a cluster whose topology the user may not read
	"ASK":         store.ErrSetup,
	"CROSSSLOT":   store.ErrSetup,
}

// phraseClasses has the classes of errors without a code, and of those that a server before version 7 wraps in others.
var phraseClasses = []struct {
	text  string
	class error
}{
	{"-OOM ", store.ErrFull},
	{"OOM command not allowed", store.ErrFull},
	{"ACL failure", store.ErrSetup},
	{"can't run this command", store.ErrSetup},
	{"-READONLY ", store.ErrReadOnly},
	{"-MISCONF ", store.ErrReadOnly},
	{"-NOREPLICAS ", store.ErrUnavailable},
	{"SCRIPT KILL", store.ErrUnavailable}, // only a script that has written nothing can be killed
	{"invalid password", store.ErrSetup},
	{"unknown command", store.ErrSetup},
	{"max number of clients", store.ErrUnavailable},
	{"DB index", store.ErrSetup},
	// A cell in a format that this version cannot read. Other cells of the batch may have been charged.
	{"a newer version of headgate wrote", errNewerCell},
}

// noSpace is in the text of a MISCONF when the disk is full.
const noSpace = "No space left on device"

var errNewerCell = fmt.Errorf("%w: %w", store.ErrUnknownOutcome, store.ErrSchemaNewer)

// class returns the error of package store that classifies err.
func class(err error) error {
	if c := store.Class(err); c != nil {
		return c
	}
	if re, ok := rueidis.IsRedisErr(err); ok {
		text := re.Error()
		code, _, _ := strings.Cut(text, " ")
		if strings.Contains(text, "MISCONF ") && strings.Contains(text, noSpace) {
			return store.ErrNoSpace
		}
		if c := codeClasses[code]; c != nil {
			return c
		}
		for _, p := range phraseClasses {
			if strings.Contains(text, p.text) {
				return p.class
			}
		}
		return store.ErrUnknownOutcome
	}
	_, unknownHost := errors.AsType[*net.DNSError](err)
	switch {
	case tlsconf.IsHandshakeError(err):
		return store.ErrSetup
	case unconnected(err) || unknownHost || errors.Is(err, rueidis.ErrNoSlot):
		return store.ErrUnavailable
	}
	// The script was sent, and no readable answer came back.
	return store.ErrUnknownOutcome
}

// unconnected reports whether there was no connection at all.
func unconnected(err error) bool {
	operation, ok := errors.AsType[*net.OpError](err)
	return ok && operation.Op == "dial"
}

// classify returns an error with the class of err, the action that failed and the text of err, without arguments of a
// command. It wraps err only if that is an error of a context.
func classify(action string, err error) error {
	c := class(err)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("redis: %s: %w: %w", action, c, err)
	}
	text, _, _ := strings.Cut(err.Error(), ", with args beginning with") // a password may be among them
	if noPermission(err) {
		text += "; docs/stores.md lists the rights that are needed"
	}
	return fmt.Errorf("redis: %s: %w: %s", action, c, text)
}

// classifyRead classifies an error of a read. If the answer is lost, the store is unavailable, and nothing is unknown.
func classifyRead(action string, err error) error {
	if c := class(err); errors.Is(c, store.ErrUnknownOutcome) {
		return fmt.Errorf("redis: %s: %w: %w", action, store.ErrUnavailable, err)
	}
	return classify(action, err)
}

// noPermission reports whether the user lacks a permission.
func noPermission(err error) bool {
	text := err.Error()
	return strings.Contains(text, "NOPERM") || strings.Contains(text, "ACL failure") ||
		strings.Contains(text, "can't run this command")
}

// mayRetry reports whether a retry is safe and may help: the server answered that it did nothing, for a reason that
// passes or that another server does not have. An error of the connection is never retried.
func mayRetry(err error) bool {
	if _, ok := rueidis.IsRedisErr(err); !ok {
		return false
	}
	c := class(err)
	if errors.Is(c, store.ErrNoSpace) {
		return false // nobody makes room that soon
	}
	return errors.Is(c, store.ErrConflict) || errors.Is(c, store.ErrUnavailable) || errors.Is(c, store.ErrReadOnly)
}

func noScript(err error) bool {
	re, ok := rueidis.IsRedisErr(err)
	return ok && re.IsNoScript()
}
