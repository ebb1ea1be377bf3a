package redis

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// TakeScript returns a script that charges one key of one limit. Callers in other languages run it by EVAL, or by the
// SHA1 of its text. Its first lines document its keys, arguments and answer. It contains a script by which a Store
// decides charges, so both charge the same cells.
func TakeScript() string {
	text := placeholders.Expand(strings.NewReplacer(
		"{slack}", strconv.FormatInt(slack.Milliseconds(), 10),
		"{history}", strconv.Itoa(maxHistory),
	).Replace(readLua("take")))
	return strings.Replace(text, "{script}", strings.TrimRight(batchScripts[0]().text, "\n"), 1)
}

// TakeArguments returns the arguments of TakeScript that describe a limit, NAME=NUMBER each. The caller adds cost=, in
// credits: p.Unit for a cost of 1. The error is ErrUnsupported if the limit has windows of the calendar or is acquired,
// and ErrInvalid if p is invalid.
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
	names := takeParams.Names()
	for i, n := range takeParams.Append(nil, &law.Op{Params: *p}) {
		if n != 0 {
			list = append(list, names[i]+"="+strconv.FormatInt(n, 10))
		}
	}
	return list, nil
}
