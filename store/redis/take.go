package redis

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// TakeScript returns a script that charges one key of one limit, for callers in other
// languages: by EVAL, or by the SHA1 of its text. Its first lines say what its keys and
// arguments are and what it answers. It contains the script that a Store runs for such a
// charge, so both see the same cells.
func TakeScript() string {
	text := names.Expand(strings.NewReplacer(
		"{slack}", strconv.FormatInt(slack.Milliseconds(), 10),
		"{history}", strconv.Itoa(maxHistory),
	).Replace(lua("take")))
	return strings.Replace(text, "{script}", strings.TrimRight(scripts[0]().text, "\n"), 1)
}

// TakeArguments returns the arguments of TakeScript that say what a limit is, NAME=NUMBER
// each. The caller adds cost=, in credits: p.Unit for a cost of 1. ErrUnsupported: the
// limit has windows of the calendar, or is acquired. ErrInvalid: it is no limit.
func TakeArguments(p *law.Params) ([]string, error) {
	switch {
	case p.Leased:
		return nil, fmt.Errorf("redis: %w: the script takes, and this limit is acquired", store.ErrUnsupported)
	case p.Anchor == law.Calendar:
		return nil, fmt.Errorf("redis: %w: the script does not know the windows of a calendar; use 1h or 1d, say",
			store.ErrUnsupported)
	}
	if err := p.Valid(); err != nil {
		return nil, err
	}
	var list []string
	names := takes.Names()
	for i, n := range takes.Append(nil, &law.Op{Params: *p}) {
		if n != 0 {
			list = append(list, names[i]+"="+strconv.FormatInt(n, 10))
		}
	}
	return list, nil
}
