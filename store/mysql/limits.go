package mysql

import (
	"context"
	"fmt"
)

// read has a procedure read a limit, and returns what is wrong with it: headgate_find_N
// one in the table, where it keeps what it means, headgate_compile_N a notation. arguments are those before the numbers
// of the limit. A server without procedures has no calls that could fail.
func read(ctx context.Context, db querier, procedure, arguments string) (problem string, err error) {
	_, err = db.ExecContext(ctx, "CALL "+procedure+"("+arguments+", "+unused+")")
	switch number, text := numberOf(err); number {
	case errSignalled:
		return text, nil
	case errNoProcedure, errNotImplemented, errNoCall:
		return "", nil
	}
	return "", err
}

// unused takes the numbers of a limit where nobody needs them.
const unused = "@hg_law, @hg_anchor, @hg_unit, @hg_capacity, @hg_step, @hg_drain, @hg_block, @hg_history, " +
	"@hg_calendar, @hg_zone"

// unreadable returns a line about each limit in the table that nobody has been able to
// call so far and that the server cannot read.
func unreadable(ctx context.Context, db querier, d *definition) (lines []string, err error) {
	names, err := readList(ctx, db, "SELECT name FROM headgate_limits WHERE rule_compiled IS NULL OR "+
		"rule_compiled <> rule ORDER BY name", func(name *string) []any { return []any{name} })
	if err != nil {
		return nil, fmt.Errorf("read the limits: %w", err)
	}
	for _, name := range names {
		problem, err := read(ctx, db, d.numbered("headgate_find_N"), quotedText(name)+
			", '', 0, @hg_name, @hg_notation, @hg_applied, @hg_since, @hg_lapse")
		if err != nil {
			return nil, err
		}
		if problem != "" {
			lines = append(lines, fmt.Sprintf("calls from SQL cannot use limit %s: %s", name, problem))
		}
	}
	return lines, nil
}
