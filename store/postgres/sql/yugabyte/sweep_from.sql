-- headgate_internal.sweep_from_N removes up to p_max rows that can matter to no decision. On
-- YugabyteDB the rows of cells and entries are spread by a hash of their keys, so they
-- have no order: to go on "after this key" would read and sort a whole table each time. So
-- a sweep takes a slice of the hash codes, 0 to 65535, of each table. Such a condition
-- is one about the primary key, and reads the rows of the slice alone. The plans are made
-- for each call, since only a constant is known to be passed on to the tablets; the
-- upper end is "<= 65535" and not "< 65536", which fails there (issue 23157).
--
-- A slice has at most p_rows rows: one with more is halved, and after one with few rows
-- the next is twice as wide. p_number is the code where the slice of entries begins, p_limit that
-- of cells, as a text, and p_key has the two widths. What is returned is where the
-- next one goes on: 0, or an empty text, after the last code. What is removed is that of headgate_internal.sweep_from_N of PostgreSQL.
create or replace function headgate_internal.sweep_from_N(
    p_max int, p_rows int, p_number bigint, p_limit text, p_key text,
    out removed int, out next_number bigint, out next_limit text, out next_key text)
language plpgsql volatile
set plan_cache_mode = 'force_custom_plan' set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set search_path = pg_catalog, pg_temp
as $$
declare
    now bigint := (extract(epoch from clock_timestamp()) * 1000000)::bigint;
    whole boolean := p_rows = 2147483647; -- a sweep by hand
    first int := p_number;
    width int := case when whole then 65536 else coalesce(nullif(split_part(p_key, ' ', 1), '')::int, 256) end;
    last int; found int; more int; widths text;
begin
    loop
        last := least(first + width - 1, 65535);
        exit when whole;
        select count(*) into found from (
            select true from headgate.entries e where yb_hash_code(e.number) >= first and yb_hash_code(e.number) <= last limit p_rows) slice;
        exit when found < p_rows or width = 1;
        width := width / 2;
    end loop;
    {{template "sweep entries" "yb_hash_code(e.number) >= first and yb_hash_code(e.number) <= last"}}
    next_number := case when last < 65535 then last + 1 else 0 end;
    widths := case when found < p_rows / 4 then least(2 * width, 65536) else width end;

    {{template "sweep admissions"}}

    first := coalesce(nullif(p_limit, '')::int, 0);
    width := case when whole then 65536 else coalesce(nullif(split_part(p_key, ' ', 2), '')::int, 256) end;
    loop
        last := least(first + width - 1, 65535);
        exit when whole;
        select count(*) into found from (
            select true from headgate.cells c where yb_hash_code(c.limit_name, c.key) >= first and yb_hash_code(c.limit_name, c.key) <= last limit p_rows) slice;
        exit when found < p_rows or width = 1;
        width := width / 2;
    end loop;
    {{template "sweep cells" "yb_hash_code(c.limit_name, c.key) >= first and yb_hash_code(c.limit_name, c.key) <= last"}}
    next_limit := case when last < 65535 then (last + 1)::text else '' end;
    next_key := widths || ' ' || case when found < p_rows / 4 then least(2 * width, 65536) else width end;
end $$;

