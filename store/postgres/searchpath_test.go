package postgres_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// entries are the functions that people, the driver and the server call, and functions with other
// settings. Each sets the search_path, for itself and for the inner functions that it calls.
const entries = `apply apply_once apply_plain take_one take_sums take_sums_or_nothing sweep_from compile_limit compile_notation
	compile_item forget_items note_truncate zone_limit bucket_limit note_limit note_item lock_catalog
	read_catalog items items_after write_catalog versions record_action actions
	take check limit_of grant_role block reset attempts take_once extend settle cancel debit reserve
	acquire renew release
	take_all take_all_once extend_all reserve_all settle_all take_up_to take_float enforce sweep
	used_at capacity_at override set_plan unblock
	public.check_velocity public.rate_limiting_request public.rate_limiting_token_bucket_request public.request_token`

// definers are the functions that have the rights of their owner: those that the role app may call, and those
// that a view calls.
const definers = `take check take_once extend settle cancel debit reserve acquire renew release limit_of used_at capacity_at
	take_all take_all_once extend_all reserve_all settle_all take_up_to take_float enforce
	public.check_velocity public.request_token`

// inner are the functions that only other functions of Headgate call. They have no settings, which
// would slow down each call of an entry, and keep the server from inlining a function.
const inner = `add_steps after grain give_back fail parse_amount parse_period format_period compile_amount compile
	instant starts_at bounds find print ask credits retry_after decided_at figures takeable decide
	micros checked_id checked_lease checked_count held drained drained_at drained_by present before carried
	start_together
	ask_again keep log_one charge resolve varies bucket_name caller may_notate functions give_rights
	checked_key checked_array unblocking queues ceiling headroom keeping charge_all each started replayed start
	corrected fitting extended give_back_twice lock_ids put remember remember_more
	ends_at change_item item_of limit_item catalog_item author note_change
	make_cell`

// TestEveryFunctionIsAnEntryOrInner checks the functions of the schema and of the articles: a new
// function has to be put on one of the two lists.
func TestEveryFunctionIsAnEntryOrInner(t *testing.T) {
	t.Parallel()
	conn, _ := session(t)
	rows, err := conn.Query(t.Context(), `select case when n.nspname in ('headgate', 'headgate_internal') then '' else n.nspname || '.' end || regexp_replace(p.proname, '_1$', ''), p.proname ~ '_1$', coalesce(p.proconfig, '{}'), p.prosecdef
		from pg_proc p join pg_namespace n on n.oid = p.pronamespace
		where n.nspname in ('headgate', 'headgate_internal') or obj_description(p.oid, 'pg_proc') like 'made by headgate%'`)
	if err != nil {
		t.Fatal(err)
	}
	var name string
	var numbered bool
	var config []string
	var definer bool
	seen := map[string]bool{}
	if _, err := pgx.ForEachRow(rows, []any{&name, &numbered, &config, &definer}, func() error {
		isEntry, isInner := slices.Contains(strings.Fields(entries), name), slices.Contains(strings.Fields(inner), name)
		i := slices.IndexFunc(config, func(s string) bool { return strings.HasPrefix(s, "search_path=") })
		switch {
		case isEntry == isInner:
			t.Errorf("%s is on both lists or on none", name)
		case isEntry && (i < 0 || config[i] != "search_path=pg_catalog, pg_temp"):
			t.Errorf("%s is an entry, and sets %v", name, config)
		case isInner && len(config) > 0:
			t.Errorf("%s is an inner function, and sets %v", name, config)
		case definer != slices.Contains(strings.Fields(definers), name):
			t.Errorf("%s: that it is SECURITY DEFINER is %t", name, definer)
		case isInner && !numbered:
			t.Errorf("%s is an inner function, and its name has no layout", name)
		case seen[fmt.Sprint(name, numbered)]:
			t.Errorf("%s is there twice: calls with untyped parameters would not be unique", name)
		}
		seen[name], seen[fmt.Sprint(name, numbered)] = true, true
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(entries + " " + inner) {
		if !seen[name] {
			t.Errorf("%s is on a list, and not there", name)
		}
	}
}

// TestViewsCallNoInnerFunction: an inner function in a view would find its operators by the
// search_path of the reader.
func TestViewsCallNoInnerFunction(t *testing.T) {
	t.Parallel()
	conn, _ := session(t)
	rows, err := conn.Query(t.Context(), `select c.relname || ' calls ' || p.proname from pg_class c join pg_rewrite r on r.ev_class = c.oid
		join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid and d.refclassid = 'pg_proc'::regclass
		join pg_proc p on p.oid = d.refobjid
		where c.relnamespace = 'headgate'::regnamespace and p.pronamespace <> 'pg_catalog'::regnamespace
		and not coalesce(p.proconfig, '{}') @> '{"search_path=pg_catalog, pg_temp"}'`)
	if err != nil {
		t.Fatal(err)
	}
	if found, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(found) > 0 {
		t.Errorf("%v, %v", found, err)
	}
}
