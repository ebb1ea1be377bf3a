package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Grant implements store.Migrator. The store's user has to own the schema, as the one that has migrated does.
func (s *Store) Grant(ctx context.Context, role store.Role, user string) (lines []string, err error) {
	if role != store.RoleApp && role != store.RoleService {
		return nil, fmt.Errorf("postgres: %w", law.Invalid("role", "%.100q is neither app nor service", string(role)))
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return query(ctx, s, "grant a role", pgx.RowTo[string], `select headgate.grant_role($1, $2)`, string(role), user)
}
