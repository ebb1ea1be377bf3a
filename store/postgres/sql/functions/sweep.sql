-- headgate.sweep is that for people: it looks at all rows.
create or replace function headgate.sweep(p_max int) returns int language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
    removed int;
begin
    perform headgate_internal.checked_count_N('p_max', p_max);
    select s.removed into removed from headgate_internal.sweep_from_N(p_max, 2147483647, 0, '', '') s;
    return removed;
end $$;

-- headgate_internal.checked_count_N refuses what is no number of rows.
create or replace function headgate_internal.checked_count_N(field text, n int) returns void language plpgsql immutable as $$
begin
    if n is null then
        perform headgate_internal.fail_N(field || ': is null');
    elsif n < 0 then
        perform headgate_internal.fail_N(format('%s: is %s; it must not be below 0', field, n));
    end if;
end $$;
