package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// The rights of the role service on tables: what procedures and the driver need. The role may read all other tables.
const (
	tableRights  = "SELECT, INSERT, UPDATE, DELETE"
	insertRights = "SELECT, INSERT, UPDATE"
)

// serviceTables has the rights of the role service, by the name of the table.
var serviceTables = map[string]string{
	"headgate_cells": tableRights, "headgate_entries": tableRights, "headgate_admissions": tableRights,
	"headgate_limits": tableRights, "headgate_catalog": tableRights,
	"headgate_zones": tableRights, "headgate_buckets": tableRights,
	"headgate_catalog_version": "SELECT, UPDATE", "headgate_versions": insertRights, "headgate_changes": insertRights,
	"headgate_actions": "SELECT, INSERT, DELETE",
}

// account is a user of the server.
type account struct{ name, host string }

// parseAccount parses NAME or NAME@HOST; without a host, the host is %. It refuses an empty name: that means any user.
func parseAccount(user string) (account, error) {
	a := account{user, "%"}
	if i := strings.LastIndexByte(user, '@'); i >= 0 {
		a = account{user[:i], user[i+1:]}
	}
	if a.name == "" || a.host == "" || strings.ContainsFunc(user, func(r rune) bool { return r < ' ' || r == 0xfffd }) {
		return a, law.Invalid("user", "%.100q is not NAME or NAME@HOST", user)
	}
	return a, nil
}

// String returns the account as a statement names it. Its escapes are right for the session of setSession.
func (a account) String() string {
	escape := strings.NewReplacer(`\`, `\\`, `'`, `''`)
	return "'" + escape.Replace(a.name) + "'@'" + escape.Replace(a.host) + "'"
}

// condition selects the account's rows of headgate_roles.
func (a account) condition() string {
	return "user_name = " + textLiteral(a.name) + " AND host_name = " + textLiteral(a.host)
}

// Grant implements store.Migrator. user is NAME or NAME@HOST; without a host, the host is %. Grant records the role, so
// that a migration grants it again on the procedures that it replaces. This store's own user needs the right to grant.
func (s *Store) Grant(ctx context.Context, role store.Role, user string) (lines []string, err error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	if role != store.RoleApp && role != store.RoleService {
		return nil, law.Invalid("role", "%.100q is not known; there are %s and %s", string(role), store.RoleApp,
			store.RoleService)
	}
	a, err := parseAccount(user)
	if err != nil {
		return nil, err
	}
	err = s.administer(ctx, "grant", func(conn *sql.Conn) error {
		err := withMigrationLock(ctx, conn, func() (err error) {
			lines, err = s.grantOn(ctx, conn, role, a)
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

// noSuchUser are the errors of a GRANT to an unknown user, of MariaDB and of MySQL, and of a name that is too long.
var noSuchUser = []uint16{1133, 1410, 1470}

// refuseUnknownUsers makes GRANT fail for a user that does not exist. MariaDB would create the user,
// without a password. Send it after setSession; resetSession undoes it.
const refuseUnknownUsers = "SET sql_mode = CONCAT(@@sql_mode /*M! , ',NO_AUTO_CREATE_USER' */);"

// grantOn grants a role on a connection, and records it. It records app before it grants rights: procedures restrict a
// user who is recorded as app. A user with the role service keeps it, and is never lowered to app.
func (s *Store) grantOn(ctx context.Context, conn *sql.Conn, role store.Role, a account) (lines []string, err error) {
	if _, err := conn.ExecContext(ctx, setSession+refuseUnknownUsers); err != nil {
		return nil, fmt.Errorf("set up the session: %w", err)
	}
	defer func() { _, _ = conn.ExecContext(context.WithoutCancel(ctx), resetSession) }()
	g, err := newGrants(ctx, conn, s.def)
	if err != nil {
		return nil, err
	}
	var recorded sql.NullString
	err = conn.QueryRowContext(ctx, "SELECT role FROM headgate_roles WHERE "+a.condition()).Scan(&recorded)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	record := func() error {
		_, err := conn.ExecContext(ctx, fmt.Sprintf("REPLACE INTO headgate_roles (user_name, host_name, role) "+
			"VALUES (%s, %s, %s)", textLiteral(a.name), textLiteral(a.host), textLiteral(string(role))))
		return err
	}
	if role == store.RoleApp && recorded.String != string(role) {
		if recorded.Valid {
			return []string{fmt.Sprintf("%s has the role %s, which has all of %s", a, recorded.String, role)}, nil
		}
		if err := record(); err != nil {
			return nil, err
		}
	}
	if err := g.grant(ctx, conn, role, a); err != nil {
		if !recorded.Valid {
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
	return []string{fmt.Sprintf("%s may call %s", a, strings.Join(g.appProcedures, ", "))}, nil
}

// grants has the names of what roles get rights on. tables includes views; appProcedures are those that app may call.
type grants struct{ tables, procedures, appProcedures []string }

// newGrants reads the names of the objects in the database. A database without procedures has no roles: ErrUnsupported.
func newGrants(ctx context.Context, db querier, d *definition) (*grants, error) {
	o, err := findObjects(ctx, db, d)
	if err != nil {
		return nil, err
	}
	g := &grants{
		tables:     slices.Concat(o.names["table"], o.names["view"]),
		procedures: slices.Concat(o.names["procedure"], o.names["article"]),
	}
	for _, s := range slices.Concat(d.publicObjects, d.articles) { // what app may call: see sql/procedures/take.sql
		head, _, _ := strings.Cut(s.text, "\nbegin\n")
		if strings.Contains(head, "sql security definer") && slices.Contains(g.procedures, s.name) {
			g.appProcedures = append(g.appProcedures, s.name)
		}
	}
	slices.Sort(g.appProcedures)
	if len(g.appProcedures) == 0 {
		return nil, fmt.Errorf("%w: this server has no procedures, and so no roles", store.ErrUnsupported)
	}
	return g, nil
}

// grant grants the rights of a role.
func (g *grants) grant(ctx context.Context, db querier, role store.Role, a account) error {
	var statements []string
	procedures := g.appProcedures
	if role == store.RoleService {
		procedures = g.procedures
		for _, name := range g.tables {
			rights := cmp.Or(serviceTables[name], "SELECT")
			statements = append(statements, "GRANT "+rights+" ON "+name+" TO "+a.String())
		}
	}
	for _, name := range procedures {
		statements = append(statements, "GRANT EXECUTE ON PROCEDURE "+name+" TO "+a.String())
	}
	return execEach(ctx, db, statements...)
}

// grantAgain grants all recorded roles after a migration. It returns a line about each role that the server refuses.
func grantAgain(ctx context.Context, conn *sql.Conn, d *definition) (lines []string, err error) {
	type grantee struct {
		account
		role store.Role
	}
	list, err := readList(ctx, conn, "SELECT user_name, host_name, role FROM headgate_roles ORDER BY 1, 2",
		func(a *grantee) []any { return []any{&a.name, &a.host, &a.role} })
	if err != nil {
		return nil, fmt.Errorf("read the roles: %w", err)
	}
	if list == nil {
		return nil, nil
	}
	if _, err := conn.ExecContext(ctx, refuseUnknownUsers); err != nil {
		return nil, fmt.Errorf("set up the session: %w", err)
	}
	g, err := newGrants(ctx, conn, d)
	if err != nil {
		return nil, err
	}
	for _, a := range list {
		if err := g.grant(ctx, conn, a.role, a.account); err != nil {
			if number, _ := numberOf(err); number == 0 || slices.Contains(retriedErrors, number) {
				return nil, err
			}
			lines = append(lines, fmt.Sprintf("could not give %s the role %s again: %v", a.account, a.role, err))
		}
	}
	return lines, nil
}
