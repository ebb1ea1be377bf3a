package mysql

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/store"
)

// WriteLimits implements store.LimitWriter. A limit that is none is not written. One
// that this server cannot use yet, for lack of its time zone tables, is.
func (s *Store) WriteLimits(ctx context.Context, limits []store.NamedLimit) (warnings []string, err error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	err = s.anywhere(func(db querier) error {
		warnings = nil
		for _, l := range limits {
			_, err := db.ExecContext(ctx, "INSERT INTO headgate_limits (name, rule, description) VALUES ("+
				quotedText(l.Name)+", "+quotedText(l.Notation)+", "+quotedText(l.Description)+
				") ON DUPLICATE KEY UPDATE rule = VALUES(rule), description = VALUES(description)")
			number, _ := numberOf(err)
			refused := number == errCheckMySQL || number == errCheckMariaDB
			if err != nil && !refused {
				return classify("write limits", err)
			}
			problem, err := read(ctx, db, s.def.numbered("headgate_find_N"), l.Name)
			if refused {
				problem, err = read(ctx, db, s.def.numbered("headgate_compile_N"), l.Notation)
			}
			switch {
			case err != nil:
				return classify("write limits", err)
			case problem != "":
				warnings = append(warnings, l.Name+": "+problem)
			case refused:
				warnings = append(warnings, l.Name+": the table headgate_limits refuses it")
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return warnings, nil
}

// read has a procedure read a limit, and returns what is wrong with it: headgate_find_N
// one in the table, where it keeps what it means, headgate_compile_N a notation. A server
// without procedures has no calls that could fail.
func read(ctx context.Context, db querier, procedure, limit string) (problem string, err error) {
	_, err = db.ExecContext(ctx, "CALL "+procedure+"("+quotedText(limit)+
		", @hg_name, @hg_law, @hg_anchor, @hg_unit, @hg_capacity, @hg_step, @hg_drain, "+
		"@hg_block, @hg_history, @hg_calendar, @hg_zone)")
	switch number, text := numberOf(err); number {
	case errSignalled:
		return text, nil
	case errNoProcedure, errNotImplemented:
		return "", nil
	}
	return "", err
}

// unreadable returns a line about each limit in the table that nobody has been able to
// call so far and that the server cannot read.
func unreadable(ctx context.Context, db querier, d *definition) (lines []string, err error) {
	rows, err := db.QueryContext(ctx, "SELECT name FROM headgate_limits WHERE rule_compiled IS NULL OR "+
		"rule_compiled <> rule ORDER BY name")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return nil, err
	}
	for _, name := range names {
		problem, err := read(ctx, db, d.numbered("headgate_find_N"), name)
		if err != nil {
			return nil, err
		}
		if problem != "" {
			lines = append(lines, fmt.Sprintf("calls from SQL cannot use limit %s: %s", name, problem))
		}
	}
	return lines, nil
}
