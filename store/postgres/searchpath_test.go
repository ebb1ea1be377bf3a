package postgres_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// entryFunctions are called by people, the driver and the server, or have other settings. Each sets the search_path,
// for itself and for the inner functions that it calls.
const entryFunctions = `apply apply_once apply_plain take_one take_sums take_sums_or_nothing sweep_from compile_limit compile_notation
	compile_item forget_items note_truncate zone_limit bucket_limit note_limit note_item lock_catalog
	read_catalog items items_after write_catalog versions record_action actions
	take check limit_of grant_role block reset attempts take_once extend settle cancel debit reserve
	acquire renew release
	take_all take_all_once take_first take_first_once extend_all reserve_all settle_all take_up_to take_float
	enforce sweep
	used_at capacity_at override set_plan unblock
	public.check_velocity public.rate_limiting_request public.rate_limiting_token_bucket_request public.request_token`

// definerFunctions have the rights of their owner (SECURITY DEFINER): the role app or a view calls them.
const definerFunctions = `take check take_once extend settle cancel debit reserve acquire renew release limit_of used_at capacity_at
	take_all take_all_once take_first take_first_once extend_all reserve_all settle_all take_up_to take_float enforce
	public.check_velocity public.request_token`

// innerFunctions are called by other functions of Headgate only. They have no settings, since settings slow down each
// call, and keep the server from inlining a function.
const innerFunctions = `add_steps after grain give_back fail parse_amount parse_period format_period compile_amount compile
	instant starts_at bounds find print ask credits retry_after decided_at figures takeable decide
	micros checked_id checked_lease checked_count held drained drained_at drained_by present before carried
	start_together
	ask_again keep log_one charge resolve varies bucket_name caller may_notate functions give_rights
	checked_key checked_array unblocking queues ceiling headroom keeping charge_all try_alternatives each started
	replayed start corrected fitting extended give_back_twice lock_ids put remember remember_more
	cells ends_at change_item item_of limit_item catalog_item author note_change
	make_cell`

// TestEveryFunctionIsAnEntryOrInner checks that each function of the schema and of the articles is on one of the two
// lists, and has the settings, the rights and the name that its list demands.
func TestEveryFunctionIsAnEntryOrInner(t *testing.T) {
	t.Parallel()
	conn, _ := openSession(t)
	rows, err := conn.Query(t.Context(), `select case when n.nspname in ('headgate', 'headgate_internal') then '' else n.nspname || '.' end || regexp_replace(p.proname, '_2$', ''), p.proname ~ '_2$', coalesce(p.proconfig, '{}'), p.prosecdef
		from pg_proc p join pg_namespace n on n.oid = p.pronamespace
		where n.nspname in ('headgate', 'headgate_internal') or obj_description(p.oid, 'pg_proc') like 'made by headgate%'`)
	if err != nil {
		t.Fatal(err)
	}
	var name string
	var numbered bool
	var config []string
	var definer bool
	names := map[string]bool{} // names alone, and names with whether they have a layout
	if _, err := pgx.ForEachRow(rows, []any{&name, &numbered, &config, &definer}, func() error {
		isEntry := slices.Contains(strings.Fields(entryFunctions), name)
		isInner := slices.Contains(strings.Fields(innerFunctions), name)
		i := slices.IndexFunc(config, func(s string) bool { return strings.HasPrefix(s, "search_path=") })
		switch {
		case isEntry == isInner:
			t.Errorf("%s: want it on exactly one list", name)
		case isEntry && (i < 0 || config[i] != "search_path=pg_catalog, pg_temp"):
			t.Errorf("entry function %s: got the settings %v, want search_path", name, config)
		case isInner && len(config) > 0:
			t.Errorf("inner function %s: got the settings %v, want none", name, config)
		case definer != slices.Contains(strings.Fields(definerFunctions), name):
			t.Errorf("%s: got SECURITY DEFINER %t, want %t", name, definer, !definer)
		case isInner && !numbered:
			t.Errorf("inner function %s: want a layout in its name", name)
		case names[fmt.Sprint(name, numbered)]:
			t.Errorf("%s: got two functions: calls with untyped parameters would be ambiguous", name)
		}
		names[name], names[fmt.Sprint(name, numbered)] = true, true
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(entryFunctions + " " + innerFunctions) {
		if !names[name] {
			t.Errorf("%s is on a list: got no function of this name", name)
		}
	}
}

// TestViewsCallNoInnerFunction checks the functions that views call. An inner function would use the search_path of the
// reader.
func TestViewsCallNoInnerFunction(t *testing.T) {
	t.Parallel()
	conn, _ := openSession(t)
	rows, err := conn.Query(t.Context(), `select c.relname || ' calls ' || p.proname from pg_class c join pg_rewrite r on r.ev_class = c.oid
		join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid and d.refclassid = 'pg_proc'::regclass
		join pg_proc p on p.oid = d.refobjid
		where c.relnamespace = 'headgate'::regnamespace and p.pronamespace <> 'pg_catalog'::regnamespace
		and not coalesce(p.proconfig, '{}') @> '{"search_path=pg_catalog, pg_temp"}'`)
	if err != nil {
		t.Fatal(err)
	}
	if calls, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(calls) > 0 {
		t.Errorf("got calls of inner functions: %v, %v; want none", calls, err)
	}
}
