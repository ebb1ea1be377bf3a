-- Which limit holds for a key: its own, or an override or a plan in the place of it.

-- headgate_internal.resolve_N returns the limit that holds for a key in the place of its limit c, as
-- package catalog finds it in Go. The first of these that there is and that has not ended at p_now:
--
--     an override of the key
--     the override of the longest prefix of the key
--     the limit in the plan of the key
--     the limit in the plan of the longest prefix of the key
--     the limit itself
--
-- A plan without the limit means the limit itself. applied says which it is. The limit
-- holds from since until before lapse, 0 for no such time. An end that is long past is no since: an op
-- with one is not plain, which costs.
create or replace function headgate_internal.resolve_N(p_name text, p_key text, p_varies int, p_now bigint,
    inout c headgate.compiled, out since bigint, out lapse bigint, out applied text)
language plpgsql stable as $$
declare
    recent constant bigint := 60000000;
    now bigint := case when p_now > 0 then p_now else (extract(epoch from clock_timestamp()) * 1000000)::bigint end;
    beginnings text[]; r record;
begin
    since := 0; lapse := 0; applied := '';
    if p_varies & 6 <> 0 then -- keys have at most 512 bytes
        beginnings := array(select left(p_key, n) from generate_series(0, least(length(p_key), 512)) n);
    end if;
    for r in
        select 1 as rank, 0 as length, o.compiled, 'override' as said, o.until
        from headgate.catalog o where p_varies & 1 <> 0 and o.kind = 'override' and o.name = p_name and o.key = p_key
        union all
        select 2, length(o.key), o.compiled, 'override of ' || o.key || '*', o.until
        from headgate.catalog o where p_varies & 2 <> 0 and o.kind = 'prefix-override' and o.name = p_name and o.key = any (beginnings)
        union all
        select case a.kind when 'assignment' then 3 else 4 end, length(a.key), p.compiled,
            'plan ' || a.text || case a.kind when 'assignment' then '' else ' of ' || a.key || '*' end, a.until
        from (
            select * from headgate.catalog e where p_varies & 4 <> 0 and e.kind = 'assignment' and e.name = '' and e.key = p_key
            union all
            select * from headgate.catalog e where p_varies & 4 <> 0 and e.kind = 'prefix-assignment' and e.name = '' and e.key = any (beginnings)
        ) a left join lateral (select e.compiled from headgate.catalog e where e.kind = 'plan' and e.name = a.text and e.key = p_name) p on true
        where exists (select from headgate.catalog e where e.kind = 'plan' and e.name = a.text)
        order by 1, 2 desc
    loop
        if r.until = 0 or now < r.until then
            if (r.compiled).canonical is not null then
                c := r.compiled; applied := r.said;
            end if;
            lapse := r.until;
            exit;
        elsif now <= r.until + recent then
            since := greatest(since, r.until);
        end if;
    end loop;
end $$;

-- headgate_internal.headroom_N returns what a charge is to leave to others, which stands after its limit: 10% of "api keep 10%".
-- It is null for none.
create or replace function headgate_internal.headroom_N(rule text) returns text language sql immutable as $$
    select substring(rule from ' keep ([^ ]*)$')
$$;

-- headgate_internal.cells_N returns the name under which the cells of a limit are: of one that was renamed, the first that
-- it had. The row of each other name says so.
create or replace function headgate_internal.cells_N(p_limit text) returns text language sql stable as $$
    select coalesce((select substring(l.rule from '^renamed from (.*)$') from headgate.limits l where l.name = p_limit), p_limit)
$$;

-- headgate_internal.find_N returns a limit by its name or notation, without the headroom, as it holds for a key: now, or
-- at a time of the server's. compiled says that the notation is not among those that are kept; the others
-- are those of headgate_internal.resolve_N.
create or replace function headgate_internal.find_N(rule text, key text default null, now bigint default 0,
    out name text, out c headgate.compiled, out compiled boolean, out since bigint, out lapse bigint, out applied text)
language plpgsql stable as $$
declare
    r record;
begin
    if rule is null then
        perform headgate_internal.fail_N('limit: is null');
    end if;
    compiled := false; since := 0; lapse := 0; applied := '';
    if rule ~ '^[a-z][a-z0-9_.-]{0,63}$' and rule <> 'unlimited' then
        name := rule;
        select l.compiled, l.varies, l.rule into r from headgate.limits l where l.name = find_N.rule;
        if not found then
            perform headgate_internal.fail_N(format('unknown limit: "%s" is not in headgate.limits', rule));
        elsif r.rule like 'renamed from %' then
            name := substring(r.rule from 14);
            select l.compiled, l.varies, l.rule into r from headgate.limits l where l.name = find_N.name;
            if not found then
                perform headgate_internal.fail_N(format('unknown limit: "%s" is not in headgate.limits', name));
            elsif r.rule like 'renamed from %' then -- a row by hand; it may be part of a circle
                perform headgate_internal.fail_N(format('unknown limit: "%s" is renamed from "%s", which is itself %s', rule, name, r.rule));
            end if;
        end if;
        c := r.compiled;
        if r.varies <> 0 and key is not null then
            r := headgate_internal.resolve_N(name, key, r.varies, now, c);
            c := r.c; since := r.since; lapse := r.lapse; applied := r.applied;
        end if;
    elsif headgate_internal.headroom_N(rule) is not null then
        r := headgate_internal.find_N(left(rule, -length(' keep ' || headgate_internal.headroom_N(rule))), key, now);
        name := r.name; c := r.c; compiled := r.compiled; since := r.since; lapse := r.lapse; applied := r.applied;
    else
        perform headgate_internal.may_notate_N();
        select (n.compiled).* into c from headgate.notations n where n.rule = find_N.rule limit 1;
        if not found then
            c := headgate_internal.compile_N(rule);
            compiled := true;
        end if;
        name := c.canonical;
    end if;
end $$;

-- headgate.limit_of says which limit holds for a key now: its notation; applied, why it is that one: empty for
-- the limit itself, else "override", "override of acme/*", "plan pro" or "plan pro of acme/*"; and until when, null
-- for no end.
create or replace function headgate.limit_of(p_rule text, p_key text, out rule text, out applied text, out until timestamptz)
language plpgsql stable security definer set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set search_path = pg_catalog, pg_temp as $$
declare
    f record;
begin
    if p_key is null then
        perform headgate_internal.fail_N('key: is null');
    end if;
    f := headgate_internal.find_N(p_rule, p_key);
    rule := (f.c).canonical; applied := f.applied;
    until := case when f.lapse <> 0 then headgate_internal.instant_N(f.lapse) end;
end $$;
