package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/store"
)

// class returns which of the store's errors err is; nil if none.
func class(err error) error {
	if re, ok := rueidis.IsRedisErr(err); ok {
		code, _, _ := strings.Cut(re.Error(), " ")
		switch strings.TrimPrefix(code, "-") {
		case "CLUSTERDOWN", "TRYAGAIN", "LOADING", "BUSY", "NOREPLICAS", "MASTERDOWN":
			return store.ErrConflict // nothing was done, and it passes
		case "READONLY":
			return store.ErrReadOnly
		case "NOPERM", "WRONGPASS", "NOAUTH", "MOVED", "ASK", "CROSSSLOT", "DENIED":
			return store.ErrSetup
		case "OOM":
			return store.ErrFull
		}
		switch text := re.Error(); {
		case strings.Contains(text, "OOM command not allowed"):
			return store.ErrFull
		case strings.Contains(text, "NOPERM"), strings.Contains(text, "ACL failure"), strings.Contains(text, "can't run this command"):
			return store.ErrSetup
		case strings.Contains(text, "READONLY"), strings.Contains(text, "read only replica"):
			return store.ErrReadOnly
		case strings.Contains(text, "killed by user"), strings.Contains(text, "SCRIPT KILL"):
			return store.ErrUnavailable // only one that has written nothing can be killed
		case strings.Contains(text, "NOREPLICAS"), strings.Contains(text, "Not enough good replicas"):
			return store.ErrConflict
		case strings.Contains(text, "invalid password"), strings.Contains(text, "unknown command"), strings.Contains(text, "invalid DB index"), strings.Contains(text, "DB index is out of range"):
			return store.ErrSetup
		}
		return nil
	}
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return store.ErrUnavailable
	}
	var unknownHost *net.DNSError
	if errors.As(err, &unknownHost) {
		return store.ErrUnavailable
	}
	// The script was sent, and no answer came back.
	return store.ErrUnknownOutcome
}

// classify wraps an error with what was being done and its class.
func classify(doing string, err error) error {
	c := class(err)
	switch {
	case c == nil, errors.Is(c, store.ErrUnknownOutcome):
		if c == nil {
			return fmt.Errorf("redis: %s: %w", doing, err)
		}
		return fmt.Errorf("redis: %s: %w: %w", doing, c, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("redis: %s: %w: %w", doing, c, err)
	}
	text := err.Error()
	if strings.Contains(text, "NOPERM") || strings.Contains(text, "can't run this command") {
		text += ": the user needs ~" + "PREFIX* and the commands that docs/stores.md lists"
	}
	return fmt.Errorf("redis: %s: %w: %s", doing, c, text)
}

// again tells whether an error may be met by asking again: nothing was done.
func again(err error) bool {
	c := class(err)
	return errors.Is(c, store.ErrConflict) || errors.Is(c, store.ErrReadOnly)
}

func noScript(err error) bool {
	re, ok := rueidis.IsRedisErr(err)
	return ok && re.IsNoScript()
}
