-- headgate.drain_of returns anchor and drain of a limit of the bucket law by its name,
-- null if no limit is known here that counts in this unit and step: it may be one of a
-- file, or have been changed since the cell was charged.
create or replace function headgate.drain_of(p_limit text, unit bigint, step bigint, out anchor bigint, out drain bigint)
language plpgsql stable as $$
declare
    params bigint[];
begin
    if p_limit ~ '^[a-z][a-z0-9_.-]{0,63}$' then
        select (l.compiled).params into params from headgate.limits l where l.name = p_limit;
    else
        begin
            params := (headgate.compile(p_limit)).params;
        exception when sqlstate '22023' then null; -- a name from a time before the rules for names
        end;
    end if;
    if params[1] = 1 and params[3] = unit and params[5] = step then
        anchor := params[2]; drain := params[6];
    end if;
end $$;

-- headgate.used_at is what is in use of a cell at a time, rounded up to a millionth: use
-- of package law, of a limit that has not been changed. What drains per step is not in
-- the cell. It follows from the time at which the cell will be empty, mostly; else the
-- limit is looked up; of one that is not known the slowest drain is taken that fits.
create or replace function headgate.used_at(p_limit text, p_key text, law smallint, level bigint, prev bigint, at bigint, unit bigint, step bigint, empty_at bigint, p_now bigint)
returns numeric language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    c_max constant bigint := 9007199254740991;
    now bigint := greatest(p_now, at);
    x bigint; steps bigint; q bigint; f bigint; anchor bigint; drain bigint; slowest bigint;
begin
    if now >= empty_at then
        return 0;
    elsif law = 1 then
        x := level;
        steps := (empty_at - at) / step;
        if steps > 1 and level > 0 then -- else it is a window, or as good as one
            slowest := (level + steps - 1) / steps;
            if prev > 0 or slowest < (level - 1) / (steps - 1) then -- others fit too
                select d.anchor, d.drain into anchor, drain from headgate.drain_of(p_limit, unit, step) d;
            end if;
            if anchor is distinct from 2 then
                x := headgate.drained(level, at, empty_at, now, anchor, coalesce(drain, slowest), step);
            end if;
        end if;
    elsif law = 2 then
        q := headgate.grain(step);
        f := step / q;
        x := case
            when at - at % step = now - now % step then (prev * least(f, (step - now % step + q - 1) / q) + f - 1) / f + level
            when at - at % step = now - now % step - step then (level * least(f, (step - now % step + q - 1) / q) + f - 1) / f
            else 0 end;
    else
        select greatest(0, used_at.level - coalesce(sum(e.cost), 0)) into x from headgate.entries e
        where e.limit_name = p_limit and e.key = p_key and e.granted and e.expires_at > used_at.at and e.expires_at <= now;
    end if;
    return ceil(x::numeric * 1000000 / unit) / 1000000;
end $$;

-- Cells as people read them, as of now.
create or replace view headgate.levels as
select c.limit_name, c.key,
    round(headgate.used_at(c.limit_name, c.key, c.law, c.level, c.prev, c.at, c.unit, c.step, c.empty_at, (extract(epoch from clock_timestamp()) * 1000000)::bigint), 6) as used,
    'epoch'::timestamptz + c.at * interval '1 microsecond' as updated_at,
    'epoch'::timestamptz + c.empty_at * interval '1 microsecond' as empty_at,
    case when c.blocked_until > extract(epoch from clock_timestamp()) * 1000000
        then 'epoch'::timestamptz + c.blocked_until * interval '1 microsecond' end as blocked_until,
    nullif(c.reason, '') as reason
from headgate.cells c where c.law <> 0;
