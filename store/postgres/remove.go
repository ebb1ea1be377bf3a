package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/store"
)

// articleFunctions is the end of a query for the functions of the articles that Migrate has made.
const articleFunctions = `from pg_catalog.pg_proc p
	where pg_catalog.obj_description(p.oid, 'pg_proc') like 'made by headgate%'
	and p.pronamespace not in (` + ownSchemas + `)`

// removalQuery lists what Remove removes: tables with the server's estimate of their rows, views, functions, functions
// of the articles, and the views of others that depend on the schema.
const removalQuery = `select w.line from (
	select 1 as part, pg_catalog.format('table headgate.%I, about %s rows', c.relname, greatest(c.reltuples, 0)::bigint) as line
	from pg_catalog.pg_class c where c.relnamespace = pg_catalog.to_regnamespace('headgate') and c.relkind in ('r', 'p')
	union all
	select 2, pg_catalog.format('view headgate.%I', c.relname) from pg_catalog.pg_class c
	where c.relnamespace = pg_catalog.to_regnamespace('headgate') and c.relkind in ('v', 'm')
	union all
	select 3, pg_catalog.format('%s functions in schema %s', pg_catalog.count(*),
		p.pronamespace::pg_catalog.regnamespace)
	from pg_catalog.pg_proc p where p.pronamespace in (` + ownSchemas + `) group by p.pronamespace
	union all
	select 4, pg_catalog.format('function %s.%I(%s)', p.pronamespace::pg_catalog.regnamespace, p.proname,
		pg_catalog.pg_get_function_identity_arguments(p.oid)) ` + articleFunctions + `
	union all
	select distinct 5, pg_catalog.format('view %s.%I, which somebody has built on it', v.relnamespace::pg_catalog.regnamespace, v.relname)
	from pg_catalog.pg_depend d join pg_catalog.pg_rewrite r on r.oid = d.objid join pg_catalog.pg_class v on v.oid = r.ev_class
	join pg_catalog.pg_class t on t.oid = d.refobjid
	where d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass and t.relnamespace = pg_catalog.to_regnamespace('headgate')
	  and v.relnamespace <> t.relnamespace
	) w order by w.part, pg_catalog.ltrim(w.line, '0123456789')`

// Removal implements store.Migrator. Without a schema it returns no lines.
func (s *Store) Removal(ctx context.Context) (lines []string, err error) {
	return query(ctx, s, "list what there is", pgx.RowTo[string], removalQuery)
}

// Remove implements store.Migrator. It drops the schemas with everything in them, all that depends on them, and the
// functions of the articles, in one transaction. It waits for transactions that use them.
func (s *Store) Remove(ctx context.Context) error {
	if s.pool == nil {
		return fmt.Errorf("postgres: remove: %w: not inside a transaction of the caller", store.ErrInvalid)
	}
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `set local search_path = `+safePath+`;
			do $$ declare f pg_catalog.regprocedure; begin
				for f in select p.oid::pg_catalog.regprocedure `+articleFunctions+` loop
					execute pg_catalog.format('drop function %s', f);
				end loop;
			end $$;
			drop schema if exists headgate, headgate_internal cascade`)
		return err
	})
	if err != nil {
		return classify("remove", err)
	}
	s.checked.Store(false)
	return nil
}
