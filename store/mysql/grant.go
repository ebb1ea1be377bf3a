package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// The rights of the role service: what the procedures and the driver do with the tables. All others
// it reads.
const (
	changes = "SELECT, INSERT, UPDATE, DELETE"
	adds    = "SELECT, INSERT, UPDATE"
)

var serviceTables = map[string]string{
	"headgate_cells": changes, "headgate_entries": changes, "headgate_admissions": changes,
	"headgate_limits": changes, "headgate_catalog": changes,
	"headgate_zones": changes, "headgate_buckets": changes,
	"headgate_catalog_version": "SELECT, UPDATE", "headgate_versions": adds, "headgate_changes": adds,
	"headgate_actions": "SELECT, INSERT, DELETE",
}

// account is a user of the server.
type account struct{ name, host string }

// accountOf reads NAME or NAME@HOST. A user without a name is anybody, and is given nothing.
func accountOf(user string) (account, error) {
	a := account{user, "%"}
	if i := strings.LastIndexByte(user, '@'); i >= 0 {
		a = account{user[:i], user[i+1:]}
	}
	if a.name == "" || a.host == "" || strings.ContainsFunc(user, func(r rune) bool { return r < ' ' || r == 0xfffd }) {
		return a, law.Invalid("user", "%.100q is not NAME or NAME@HOST", user)
	}
	return a, nil
}

// String returns the account in a statement, under setSession.
func (a account) String() string {
	escape := strings.NewReplacer(`\`, `\\`, `'`, `''`)
	return "'" + escape.Replace(a.name) + "'@'" + escape.Replace(a.host) + "'"
}

// condition selects the account's rows of headgate_roles.
func (a account) condition() string {
	return "user_name = " + quotedText(a.name) + " AND host_name = " + quotedText(a.host)
}

// Grant implements store.Migrator. user is NAME or NAME@HOST; without a host it is that of %. What
// is given is written down, so that a migration gives it for what it makes again. The user of this
// store needs the right to give rights.
func (s *Store) Grant(ctx context.Context, role store.Role, user string) (lines []string, err error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	if role != store.RoleApp && role != store.RoleService {
		return nil, law.Invalid("role", "%.100q is not known; there are %s and %s", string(role), store.RoleApp,
			store.RoleService)
	}
	a, err := accountOf(user)
	if err != nil {
		return nil, err
	}
	err = s.administer(ctx, "grant", func(conn *sql.Conn) error {
		err := withMigrationLock(ctx, conn, func() (err error) {
			lines, err = s.grantBy(ctx, conn, role, a)
			return err
		})
		switch number, _ := numberOf(err); {
		case slices.Contains(noSuchUser, number):
			return law.Invalid("user", "%.100q is not there: make the user first", user)
		case err == nil, errors.Is(err, store.ErrInvalid):
			return err
		}
		return classify("grant", err)
	})
	return lines, err
}

// noSuchUser are the errors of a GRANT that would make a user: of MariaDB, and of MySQL; and
// what a name gets that is too long.
var noSuchUser = []uint16{1133, 1410, 1470}

// refuseToMake makes GRANT fail for a user that does not exist. MariaDB would create the user,
// without a password. Send it after setSession; resetSession undoes it.
const refuseToMake = "SET sql_mode = CONCAT(@@sql_mode /*M! , ',NO_AUTO_CREATE_USER' */);"

// grantBy gives a role. The role is written down first: somebody who has the rights of app alone
// must not be without its restriction. A service stays one.
func (s *Store) grantBy(ctx context.Context, conn *sql.Conn, role store.Role, a account) (lines []string, err error) {
	if _, err := conn.ExecContext(ctx, setSession+refuseToMake); err != nil {
		return nil, fmt.Errorf("set up the session: %w", err)
	}
	defer func() { _, _ = conn.ExecContext(context.WithoutCancel(ctx), resetSession) }()
	g, err := newGrants(ctx, conn, s.def)
	if err != nil {
		return nil, err
	}
	var before sql.NullString
	err = conn.QueryRowContext(ctx, "SELECT role FROM headgate_roles WHERE "+a.condition()).Scan(&before)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	record := func() error {
		_, err := conn.ExecContext(ctx, fmt.Sprintf("REPLACE INTO headgate_roles (user_name, host_name, role) "+
			"VALUES (%s, %s, %s)", quotedText(a.name), quotedText(a.host), quotedText(string(role))))
		return err
	}
	if role == store.RoleApp && before.String != string(role) {
		if before.Valid {
			return []string{fmt.Sprintf("%s has the role %s, which has all of %s", a, before.String, role)}, nil
		}
		if err := record(); err != nil {
			return nil, err
		}
	}
	if err := g.give(ctx, conn, role, a); err != nil {
		if !before.Valid {
			_, _ = conn.ExecContext(context.WithoutCancel(ctx), "DELETE FROM headgate_roles WHERE "+a.condition())
		}
		return nil, err
	}
	if role == store.RoleService {
		if err := record(); err != nil {
			return nil, err
		}
		return []string{
			fmt.Sprintf("%s may read and change the tables, but not make or drop any", a),
			fmt.Sprintf("%s may call the %d procedures", a, len(g.procedures)),
		}, nil
	}
	return []string{fmt.Sprintf("%s may call %s", a, strings.Join(g.app, ", "))}, nil
}

// grants are what can be given: the names of tables and views, of all procedures, and of those that
// the role app may call.
type grants struct{ tables, procedures, app []string }

func newGrants(ctx context.Context, db querier, d *definition) (*grants, error) {
	l, err := lookFor(ctx, db, d)
	if err != nil {
		return nil, err
	}
	g := &grants{
		tables:     slices.Concat(l.names["table"], l.names["view"]),
		procedures: slices.Concat(l.names["procedure"], l.names["article"]),
	}
	for _, s := range slices.Concat(d.plain, d.articles) { // the role app may call these: see sql/procedures/take.sql
		head, _, _ := strings.Cut(s.text, "\nbegin\n")
		if strings.Contains(head, "sql security definer") && slices.Contains(g.procedures, s.name) {
			g.app = append(g.app, s.name)
		}
	}
	slices.Sort(g.app)
	if len(g.app) == 0 {
		return nil, fmt.Errorf("%w: this server has no procedures, and so no roles", store.ErrUnsupported)
	}
	return g, nil
}

// give gives the rights of a role.
func (g *grants) give(ctx context.Context, db querier, role store.Role, a account) error {
	procedures := g.app
	if role == store.RoleService {
		procedures = g.procedures
		for _, name := range g.tables {
			rights := serviceTables[name]
			if rights == "" {
				rights = "SELECT"
			}
			if _, err := db.ExecContext(ctx, "GRANT "+rights+" ON "+name+" TO "+a.String()); err != nil {
				return err
			}
		}
	}
	for _, name := range procedures {
		if _, err := db.ExecContext(ctx, "GRANT EXECUTE ON PROCEDURE "+name+" TO "+a.String()); err != nil {
			return err
		}
	}
	return nil
}

// grantAgain gives roles for what a migration has made. Where it cannot, it returns a line that says so.
func grantAgain(ctx context.Context, conn *sql.Conn, d *definition) (lines []string, err error) {
	type given struct {
		account
		role store.Role
	}
	list, err := readList(ctx, conn, "SELECT user_name, host_name, role FROM headgate_roles ORDER BY 1, 2",
		func(a *given) []any { return []any{&a.name, &a.host, &a.role} })
	if err != nil {
		return nil, fmt.Errorf("read the roles: %w", err)
	}
	if list == nil {
		return nil, nil
	}
	if _, err := conn.ExecContext(ctx, refuseToMake); err != nil {
		return nil, fmt.Errorf("set up the session: %w", err)
	}
	g, err := newGrants(ctx, conn, d)
	if err != nil {
		return nil, err
	}
	for _, a := range list {
		if err := g.give(ctx, conn, a.role, a.account); err != nil {
			if number, _ := numberOf(err); number == 0 || slices.Contains(repeated, number) {
				return nil, err
			}
			lines = append(lines, fmt.Sprintf("could not give %s the role %s again: %v", a.account, a.role, err))
		}
	}
	return lines, nil
}
