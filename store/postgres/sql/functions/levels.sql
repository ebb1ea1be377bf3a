-- headgate_internal.used_at_N is what is in use of a cell at a time, rounded up to a millionth: use
-- of package law, of a limit that has not been changed. What drains per step is not in
-- the cell. It follows from the time at which the cell will be empty, mostly; else the
-- limit says it; of one that is not known here the slowest drain is taken that fits.
--
-- p_limit    the limit, whose name may be its notation
-- p_params   what it was compiled to, null if it has no row
-- p_expired  the credits of its entries that have expired since the cell was written
--
-- It reads no table, since views let their readers see more than functions do.
create or replace function headgate_internal.used_at_N(p_limit text, law smallint, level bigint, prev bigint, at bigint, unit bigint, step bigint, empty_at bigint,
    p_now bigint, p_params bigint[], p_expired numeric)
returns numeric language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    now bigint := greatest(p_now, at);
    x bigint; steps bigint; q bigint; f bigint; anchor bigint; drain bigint;
begin
    if now >= empty_at then
        return 0;
    elsif law = 1 then
        x := level;
        steps := (empty_at - at) / step;
        if steps > 1 and level > 0 then -- else it is a window, or as good as one
            drain := (level + steps - 1) / steps;
            if prev > 0 or drain < (level - 1) / (steps - 1) then -- others fit too
                if p_params is null then
                    begin
                        p_params := (headgate_internal.compile_N(p_limit)).params;
                    exception when sqlstate '22023' then null; -- a name, of a limit in a file
                    end;
                end if;
                if p_params[{limit.kind}] = 1 and p_params[{limit.unit}] = unit and p_params[{limit.step}] = step then -- else it was changed since
                    anchor := p_params[{limit.anchor}]; drain := p_params[{limit.drain}];
                end if;
            end if;
            if anchor is distinct from 2 then
                x := headgate_internal.drained_N(level, at, empty_at, now, anchor, drain, step);
            end if;
        end if;
    elsif law = 2 then
        q := headgate_internal.grain_N(step);
        f := step / q;
        x := case
            when at - at % step = now - now % step then {{template "weighed" (as "prev" "prev")}} + level
            when at - at % step = now - now % step - step then {{template "weighed" (as "prev" "level")}}
            else 0 end;
    else
        x := greatest(0, level - coalesce(p_expired, 0));
    end if;
    return ceil(x::numeric * 1000000 / unit) / 1000000;
end $$;

-- headgate_internal.capacity_at_N is how much can be in use of a limit for a key at a time; null of a limit that is not known.
-- It has the digits that the limit's figures have, six at most.
-- It has the rights of its owner, as the view that calls it has.
create or replace function headgate_internal.capacity_at_N(p_limit text, p_key text, p_now bigint) returns numeric
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    r record; c headgate.compiled; capacity numeric;
begin
    select l.compiled, l.varies into r from headgate.limits l where l.name = p_limit;
    if found then
        c := r.compiled;
        if r.varies <> 0 then
            r := headgate_internal.resolve_N(p_limit, p_key, r.varies, p_now, c);
            c := r.c;
        end if;
    else
        begin
            c := headgate_internal.compile_N(p_limit);
        exception when sqlstate '22023' then return null;
        end;
    end if;
    capacity := trim_scale(trunc(c.params[{limit.capacity}]::numeric / c.params[{limit.unit}], 6));
    return round(capacity, least(6, greatest(scale(capacity), substring(c.canonical from ' scale ([4-9])')::int)));
end $$;

-- Cells as people read them, as of now.
create or replace view headgate.levels as
select c.limit_name, c.key, v.used,
    'epoch'::timestamptz + c.at * interval '1 microsecond' as updated_at,
    'epoch'::timestamptz + c.empty_at * interval '1 microsecond' as empty_at,
    case when c.blocked_until > n.now then 'epoch'::timestamptz + c.blocked_until * interval '1 microsecond' end as blocked_until,
    nullif(c.reason, '') as reason, v.capacity,
    case when c.blocked_until > n.now then 0 else greatest(0, trunc(v.capacity - v.used, scale(v.capacity))) end as remaining,
    round(100 * v.used / nullif(v.capacity, 0)) as percent
from headgate.cells c cross join (select (extract(epoch from clock_timestamp()) * 1000000)::bigint as now offset 0) n
cross join lateral (
    select round(headgate_internal.used_at_N(c.limit_name, c.law, c.level, c.prev, c.at, c.unit, c.step, c.empty_at, n.now,
            (select (l.compiled).params from headgate.limits l where l.name = c.limit_name),
            case when c.law = 3 then (select sum(e.cost) from headgate.entries e where e.limit_name = c.limit_name and e.key = c.key
                and e.granted and e.expires_at > c.at and e.expires_at <= n.now) end), 6) as used,
        headgate_internal.capacity_at_N(c.limit_name, c.key, n.now) as capacity offset 0
) v
where c.law <> 0;
