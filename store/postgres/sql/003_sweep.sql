-- headgate.sweep removes up to p_max rows that can matter to no decision, and
-- returns how many. It locks only rows that nobody holds (skip locked) and
-- looks at each again under its lock. First the entries that nobody asked to
-- keep and that do not count: subtracted already, of a cell that is empty, or
-- of none. Then the cells without entries that could refuse nobody.
create or replace function headgate.sweep(p_max int) returns int language plpgsql volatile as $$
declare
    now bigint := (extract(epoch from clock_timestamp()) * 1000000)::bigint;
    removed int; more int;
begin
    with dead as (
        select e.number from headgate.entries e
        left join headgate.cells c on c.limit_name = e.limit_name and c.key = e.key
        where e.keep_until <= now and (c.key is null or e.expires_at <= c.at or c.empty_at <= now)
        limit p_max
        for update of e skip locked)
    delete from headgate.entries e using dead where e.number = dead.number;
    get diagnostics removed = row_count;

    with dead as (
        select c.limit_name, c.key from headgate.cells c
        where c.empty_at <= now and c.blocked_until <= now
          and not exists (select from headgate.entries e where e.limit_name = c.limit_name and e.key = c.key)
        limit greatest(p_max - removed, 0)
        for update skip locked)
    delete from headgate.cells c using dead where c.limit_name = dead.limit_name and c.key = dead.key;
    get diagnostics more = row_count;
    return removed + more;
end $$;
