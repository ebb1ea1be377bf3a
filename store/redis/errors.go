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

// codes has the errors of servers by their first word. Each means that nothing
// was done: a script that wrote something is not refused any more. Of an error
// that is neither here nor among the phrases nobody knows that: a script that
// fails has done what it did before.
var codes = map[string]error{
	"TRYAGAIN":    store.ErrConflict, // the slot is being moved
	"CLUSTERDOWN": store.ErrUnavailable,
	"LOADING":     store.ErrUnavailable,
	"NOREPLICAS":  store.ErrUnavailable,
	"BUSY":        store.ErrUnavailable, // with somebody's script that does not end
	"READONLY":    store.ErrReadOnly,
	"MASTERDOWN":  store.ErrReadOnly,
	"MISCONF":     store.ErrReadOnly, // it cannot write its disk
	"OOM":         store.ErrFull,
	"NOPERM":      store.ErrSetup,
	"WRONGPASS":   store.ErrSetup,
	"NOAUTH":      store.ErrSetup,
	"DENIED":      store.ErrSetup, // protected mode
	"MOVED":       store.ErrSetup, // a cluster that we were not allowed to see
	"ASK":         store.ErrSetup,
	"CROSSSLOT":   store.ErrSetup,
}

// phrases has the errors that a server before version 7 wraps in one of its
// own, and those that have no code.
var phrases = []struct {
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
	// A cell that does not read as the cells of this version do: what these mean is
	// another matter to a newer version. Other cells of the batch may have been charged.
	{"a newer version of headgate wrote", errNewerCell},
}

// noSpace is in the text of a MISCONF when the disk is full.
const noSpace = "No space left on device"

var errNewerCell = fmt.Errorf("%w: %w", store.ErrUnknownOutcome, store.ErrSchemaNewer)

// class returns which of the store's errors err is.
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
		if c := codes[code]; c != nil {
			return c
		}
		for _, p := range phrases {
			if strings.Contains(text, p.text) {
				return p.class
			}
		}
		return store.ErrUnknownOutcome
	}
	_, unknownHost := errors.AsType[*net.DNSError](err)
	switch {
	case tlsconf.Failed(err):
		return store.ErrSetup
	case unconnected(err) || unknownHost || errors.Is(err, rueidis.ErrNoSlot):
		return store.ErrUnavailable
	}
	// The script was sent, and no answer came back, or none that can be read.
	return store.ErrUnknownOutcome
}

// unconnected reports whether there was no connection at all.
func unconnected(err error) bool {
	operation, ok := errors.AsType[*net.OpError](err)
	return ok && operation.Op == "dial"
}

// classify wraps an error with what was being done and its class.
func classify(doing string, err error) error {
	c := class(err)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("redis: %s: %w: %w", doing, c, err)
	}
	text, _, _ := strings.Cut(err.Error(), ", with args beginning with") // a password may be among them
	if noPermission(err) {
		text += "; docs/stores.md lists the rights that are needed"
	}
	return fmt.Errorf("redis: %s: %w: %s", doing, c, text)
}

// classifyRead classifies an error of a read: a lost answer then leaves no doubt.
func classifyRead(doing string, err error) error {
	if c := class(err); errors.Is(c, store.ErrUnknownOutcome) {
		return fmt.Errorf("redis: %s: %w: %w", doing, store.ErrUnavailable, err)
	}
	return classify(doing, err)
}

// noPermission reports whether the user lacks a permission.
func noPermission(err error) bool {
	text := err.Error()
	return strings.Contains(text, "NOPERM") || strings.Contains(text, "ACL failure") ||
		strings.Contains(text, "can't run this command")
}

// again reports whether a retry may help: the server answered that it did
// nothing, for a reason that passes or that another server does not have. An
// error of the connection is never met by a retry.
func again(err error) bool {
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
