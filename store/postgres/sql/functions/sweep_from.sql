-- headgate_internal.sweep_from_N removes up to p_max rows that can matter to no decision. It
-- locks only rows that nobody holds (skip locked) and looks at each again under
-- its lock. First the entries that nobody asked to keep and that do not count:
-- subtracted already, of no cell, or of a cell that has been empty for 100 ms: a decision
-- that read the clock before may be about to read them. Then the admissions whose
-- time is over, which an index finds. Then the cells without entries that could
-- refuse nobody and remember no id.
--
-- It looks at no more than p_rows entries and p_rows cells, from where the last
-- one stopped, and returns how many it removed and where the next one goes on: 0,
-- or empty texts, after the last row.
create or replace function headgate_internal.sweep_from_N(
    p_max int, p_rows int, p_number bigint, p_limit text, p_key text,
    out removed int, out next_number bigint, out next_limit text, out next_key text)
language plpgsql volatile
set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set search_path = pg_catalog, pg_temp
as $$
declare
    now bigint := (extract(epoch from clock_timestamp()) * 1000000)::bigint;
    more int;
    last_limit text; last_key text;
begin
    select r.number into next_number from headgate.entries r where r.number > p_number order by r.number offset p_rows limit 1;
    {{template "sweep entries" "e.number > p_number and e.number <= coalesce(next_number, 9223372036854775807)"}}
    {{template "sweep admissions"}}

    select r.limit_name, r.key into next_limit, next_key from headgate.cells r
    where (r.limit_name, r.key) > (p_limit collate "C", p_key collate "C") order by r.limit_name, r.key offset p_rows limit 1;
    last_limit := next_limit; last_key := next_key;
    if next_limit is null then
        select r.limit_name, r.key into last_limit, last_key from headgate.cells r
        where (r.limit_name, r.key) > (p_limit collate "C", p_key collate "C") order by r.limit_name desc, r.key desc limit 1;
    end if;
    {{template "sweep cells" "(c.limit_name, c.key) > (p_limit collate \"C\", p_key collate \"C\") and (c.limit_name, c.key) <= (last_limit collate \"C\", last_key collate \"C\")"}}
    next_number := coalesce(next_number, 0); next_limit := coalesce(next_limit, ''); next_key := coalesce(next_key, '');
end $$;
