package mysql

import (
	"context"
	"fmt"
)

// checkLimit has a procedure parse a limit, and returns what is wrong with the limit; empty: nothing. headgate_find_N
// parses a limit in the table, and keeps the result there; headgate_compile_N parses a notation. arguments are the
// procedure's first, before the numbers of the limit. Without procedures no limit is wrong: nobody can call them.
func checkLimit(ctx context.Context, db querier, procedure, arguments string) (problem string, err error) {
	_, err = db.ExecContext(ctx, "CALL "+procedure+"("+arguments+", "+unusedNumbers+")")
	switch number, text := numberOf(err); number {
	case errSignalled:
		return text, nil
	case errNoProcedure, errNotImplemented, errNoCall:
		return "", nil
	}
	return "", err
}

// unusedNumbers are variables for the numbers of a limit, which no caller of checkLimit reads.
const unusedNumbers = "@hg_law, @hg_anchor, @hg_unit, @hg_capacity, @hg_step, @hg_drain, @hg_block, @hg_history, " +
	"@hg_calendar, @hg_zone"

// unreadableLimits returns a line about each limit in the table that the server cannot parse. It tries only limits that
// no call has used successfully since they were last changed.
func unreadableLimits(ctx context.Context, db querier, d *definition) (lines []string, err error) {
	names, err := readList(ctx, db, "SELECT name FROM headgate_limits WHERE rule_compiled IS NULL OR "+
		"rule_compiled <> rule ORDER BY name", func(name *string) []any { return []any{name} })
	if err != nil {
		return nil, fmt.Errorf("read the limits: %w", err)
	}
	for _, name := range names {
		problem, err := checkLimit(ctx, db, d.withRevision("headgate_find_N"), textLiteral(name)+
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
