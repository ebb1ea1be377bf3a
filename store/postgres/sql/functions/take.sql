-- What people call: take, check, block, reset, and views to read. Each function
-- is one call of headgate.apply_N; it locks and writes what that says.
--
-- Inside a transaction of yours, the cell stays locked until it ends: that is
-- what you want when the charge is to commit or roll back with your work, and
-- not what you want in a long one.

-- headgate.instant_N is a time of ours. Views say the same without it: a function that
-- is made part of a view would find its operators by the search_path of the reader.
create or replace function headgate.instant_N(us bigint) returns timestamptz language sql immutable as $$
    select 'epoch'::timestamptz + us * interval '1 microsecond'
$$;

-- headgate.starts_at_N is the first instant at which the clocks of a zone show a
-- local time or a later one: where no change of the zone's offset is near, a
-- subtraction, else the minutes around are tried in turn.
create or replace function headgate.starts_at_N(local timestamp, zone text) returns timestamptz language plpgsql stable as $$
declare
    guess timestamptz := local at time zone zone;
    near constant interval := '26 hours';
begin
    if (guess - near) at time zone zone = local - near and (guess + near) at time zone zone = local + near then
        return guess;
    end if;
    return coalesce((select min(u) from generate_series(guess - near, guess + near, '1 minute') u where u at time zone zone >= local), guess);
end $$;

-- headgate.bounds_N returns four ascending window boundaries with now, in
-- microseconds, between the second and the third.
create or replace function headgate.bounds_N(calendar text, zone text, now bigint) returns bigint[] language plpgsql stable as $$
declare
    t timestamptz := headgate.instant_N(now);
    step interval; p timestamp; list timestamptz[];
begin
    if calendar = 'hour' then
        select array[(array_agg(u order by u desc) filter (where u <= t))[2], max(u) filter (where u <= t),
            min(u) filter (where u > t), (array_agg(u order by u) filter (where u > t))[2]]
        into list
        from generate_series(date_trunc('minute', t) - interval '4 hours', t + interval '4 hours', '1 minute') u
        where extract(minute from u at time zone zone) = 0;
    else
        step := case calendar when 'day' then '1 day' when 'week' then '7 days' else '1 month' end;
        p := date_trunc(calendar, t at time zone zone) + step;
        while headgate.starts_at_N(p, zone) > t loop
            p := p - step;
        end loop;
        list := array[headgate.starts_at_N(p - step, zone), headgate.starts_at_N(p, zone),
            headgate.starts_at_N(p + step, zone), headgate.starts_at_N(p + 2 * step, zone)];
    end if;
    return array(select (extract(epoch from u) * 1000000)::bigint from unnest(list) u);
end $$;

-- headgate.find_N returns a limit by its name or notation.
create or replace function headgate.find_N(rule text, out name text, out c headgate.compiled) language plpgsql stable as $$
begin
    if rule is null then
        perform headgate.fail_N('limit: is null');
    elsif rule ~ '^[a-z][a-z0-9_.-]{0,63}$' then
        name := rule;
        select (l.compiled).* into c from headgate.limits l where l.name = find_N.rule;
        if not found then
            perform headgate.fail_N(format('unknown limit: "%s" is not in headgate.limits', rule));
        end if;
    else
        c := headgate.compile_N(rule);
        name := c.canonical;
    end if;
end $$;

-- headgate.print_N is Print of package law, of a request of one charge.
create or replace function headgate.print_N(name text, key text, credits bigint, unit bigint) returns bigint language sql immutable as $$
    select ('x' || left(encode(sha256(convert_to(octet_length(name) || ':' || name || octet_length(key) || ':' || key
        || credits / gcd(credits, unit) || '/' || unit / gcd(credits, unit), 'UTF8')), 'hex'), 13))::bit(52)::bigint
$$;

-- headgate.ask_N applies one op, and again with boundaries around the server's
-- time if those guessed before the lock were a window off, or to the cell that the
-- limit's new keys share. It returns what headgate.apply_N returns. note is the id of an op
-- that takes or settles; how is 2 for one that may start later; entry what is renewed or
-- returned.
create or replace function headgate.ask_N(verb int, name text, c headgate.compiled, key text, credits bigint, ttl bigint, note text,
    how int default 0, ceiling bigint default 0, entry bigint default 0)
returns bigint[] language plpgsql volatile as $$
declare
    reserved constant text := 'headgate:shared:';
    now bigint := (extract(epoch from clock_timestamp()) * 1000000)::bigint;
    b bigint[] := '{0,0,0,0}';
    op bigint[]; mode smallint; stale int := 0;
    cell text := key;
    res bigint[];
begin
    if key is null then
        perform headgate.fail_N('key: is null');
    elsif octet_length(key) > 512 then
        perform headgate.fail_N(format('key: is %s bytes long, at most 512 are allowed', octet_length(key)));
    elsif left(key, 16) = reserved then
        perform headgate.fail_N(format('key: begins with "%s", which is kept for cells that keys share', reserved));
    end if;
    for i in 1 .. 20 loop
        mode := case when cell <> key then case verb when 2 then 4 else 5 end
            when verb = 2 then 0 when verb in (3, 4, 6, 7) then 1 else 2 end;
        if c.calendar is not null then
            b := headgate.bounds_N(c.calendar, c.zone, now);
        end if;
        op := array[{op: verb => verb, group => 1, cell => 1, kind => c.params[{limit.kind}], anchor => c.params[{limit.anchor}],
            unit => c.params[{limit.unit}], capacity => c.params[{limit.capacity}], step => c.params[{limit.step}],
            drain => greatest(c.params[{limit.drain}], 1), block => c.params[{limit.block}], history => c.params[{limit.history}],
            cost => credits, count => 1, how => how, ceiling => ceiling, ttl => ttl,
            window0 => b[1], window1 => b[2], window2 => b[3], window3 => b[4], entry => entry}]::bigint[];
        if note <> '' and verb in (1, 4) then
            res := headgate.apply_once_N(array[name], array[cell], array[mode], op, array[note],
                array[headgate.print_N(name, key, credits, c.params[{limit.unit}])], array[1]);
        else
            res := headgate.apply_N(array[name], array[cell], array[mode], op, case when note <> '' then array[note] end);
        end if;
        case res[{out.status}]
            when 1 then
                stale := stale + 1;
                now := res[{out.clock}];
                exit when stale = 4;
            when 6 then
                if verb = 5 and ttl = 0 then -- no block to lift
                    return res;
                elsif verb = 5 or note <> '' then
                    raise exception 'limit: "%" has as many keys as it may, and this one is not among them; % needs a key of its own', name,
                        case verb when 5 then 'a block' else 'a request with an id' end using errcode = '53400';
                end if;
                cell := case when res[{out.entry}] > 0 then reserved || res[{out.entry}] else key end;
            else exit;
        end case;
    end loop;
    if res[{out.status}] = 6 then
        raise exception 'limit: "%" begins and ends to share a cell all the time', name using errcode = '40001';
    elsif res[{out.status}] > 2 then
        perform headgate.fail_N(format('id: "%s": %s', note, case res[{out.status}] when 3 then 'the id was used for other charges'
            when 4 then 'no request of this id is known' else 'it is settled already' end));
    end if;
    return res;
end $$;

-- headgate.credits_N is a cost in credits. zero says that it may be none.
create or replace function headgate.credits_N(field text, cost numeric, c headgate.compiled, zero boolean) returns bigint language plpgsql immutable as $$
declare
    unit bigint := c.params[{limit.unit}]; credits numeric;
begin
    if cost is null then
        perform headgate.fail_N(field || ': is null');
    elsif cost = 'NaN' or cost::text like '%Infinity' then
        perform headgate.fail_N(format('%s: "%s" is not a decimal number such as 3 or 0.5', field, cost));
    elsif cost < 0 or cost = 0 and not zero then
        perform headgate.fail_N(format('%s: is %s; it must %s', field, cost, case when zero then 'not be below 0' else 'be above 0' end));
    end if;
    credits := trim_scale(cost * unit);
    if scale(credits) > 0 then
        perform headgate.fail_N(format('%s: %s is finer than the smallest step of this limit, 1/%s', field, cost, unit));
    elsif credits > 9007199254740991 then
        perform headgate.fail_N(format('%s: %s is too large', field, cost));
    end if;
    return credits;
end $$;

-- headgate.retry_after_N is that of a Decision, from what headgate.ask_N returned; null for
-- never.
create or replace function headgate.retry_after_N(res bigint[]) returns interval language sql immutable as $$
    select case when res[{out.granted}] = 1 then '0'::interval
        when res[{out.retry_at}] < 9007199254740991 then greatest(0, res[{out.retry_at}] - res[{out.clock}]) * interval '1 microsecond' end
$$;

-- headgate.decided_at_N is DecidedAt of package law: the server's clock, or the cell's own
-- time where that is ahead by less than a cell that is to be healed.
create or replace function headgate.decided_at_N(res bigint[], c headgate.compiled) returns bigint language sql immutable as $$
    select case when res[{out.at}] <= res[{out.clock}] or res[{out.at}] - res[{out.clock}] > greatest(2000000, case c.params[{limit.kind}]
            when 2 then 2 * c.params[{limit.step}]
            when 3 then c.params[{limit.step}]
            else headgate.add_steps_N(0, (c.params[{limit.capacity}] - 1) / greatest(c.params[{limit.drain}], 1) + 1, c.params[{limit.step}]) end)
        then res[{out.clock}] else res[{out.at}] end
$$;

-- headgate.figures_N are those of a Decision, derived as in Go from what
-- headgate.ask_N returned.
create or replace function headgate.figures_N(res bigint[], name text, c headgate.compiled,
    out allowed boolean, out remaining bigint, out retry_after interval, out reset_after interval,
    out limit_name text, out at timestamptz) language plpgsql immutable as $$
begin
    allowed := res[{out.granted}] = 1;
    remaining := case when res[{out.blocked_until}] > greatest(res[{out.clock}], res[{out.at}]) then 0 else greatest(0, c.params[{limit.capacity}] - res[{out.used}]) / c.params[{limit.unit}] end;
    retry_after := headgate.retry_after_N(res);
    reset_after := greatest(0, greatest(res[{out.empty_at}], res[{out.blocked_until}]) - res[{out.clock}]) * interval '1 microsecond';
    limit_name := name;
    at := headgate.instant_N(headgate.decided_at_N(res, c));
end $$;

-- headgate.takeable_N refuses limits whose charges are held.
create or replace function headgate.takeable_N(c headgate.compiled) returns void language plpgsql immutable as $$
begin
    if c.canonical like 'concurrency %' then
        perform headgate.fail_N(format('limit: %s is acquired and released, not taken', c.canonical));
    end if;
end $$;

-- headgate.decide_N is take and check.
create or replace function headgate.decide_N(verb int, name text, c headgate.compiled, key text, cost numeric,
    out allowed boolean, out remaining bigint, out retry_after interval, out reset_after interval,
    out limit_name text, out at timestamptz) language plpgsql volatile as $$
declare
    credits bigint := headgate.credits_N('cost', cost, c, false);
begin
    perform headgate.takeable_N(c);
    select f.* into allowed, remaining, retry_after, reset_after, limit_name, at
    from headgate.figures_N(headgate.ask_N(verb, name, c, key, credits, 0, ''), name, c) f;
end $$;

-- headgate.take takes cost from a limit for a key. One row: allowed; remaining,
-- whole units that could pass now; retry_after, until this cost passes, null for
-- never, zero when allowed; reset_after, until the key is as good as new; the
-- limit's name; at, the time of the decision.
create or replace function headgate.take(rule text, key text, cost numeric default 1)
returns table (allowed boolean, remaining bigint, retry_after interval, reset_after interval, limit_name text, at timestamptz)
language plpgsql volatile set plan_cache_mode = 'force_generic_plan' set search_path = pg_catalog, pg_temp as $$
declare
    f record;
begin
    select * into f from headgate.find_N(rule);
    return query select * from headgate.decide_N(1, f.name, f.c, key, cost);
end $$;

-- headgate.check answers what take would, and takes nothing.
create or replace function headgate.check(rule text, key text, cost numeric default 1)
returns table (allowed boolean, remaining bigint, retry_after interval, reset_after interval, limit_name text, at timestamptz)
language plpgsql volatile set plan_cache_mode = 'force_generic_plan' set search_path = pg_catalog, pg_temp as $$
declare
    f record;
begin
    select * into f from headgate.find_N(rule);
    return query select * from headgate.decide_N(2, f.name, f.c, key, cost);
end $$;

-- headgate.block refuses everything of a key for a while; a zero interval lifts
-- that. It returns until when, null if not blocked.
create or replace function headgate.block(rule text, key text, for_interval interval, reason text default '', out blocked_until timestamptz)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    f record; us numeric; res bigint[];
begin
    if for_interval is null then
        perform headgate.fail_N('for_interval: is null');
    end if;
    us := extract(epoch from for_interval)::numeric * 1000000;
    if us < 0 or us > 3660 * 86400000000 then
        perform headgate.fail_N(format('for_interval: %s is not from 0 to 3660 days', for_interval));
    elsif octet_length(coalesce(reason, '')) > 512 then
        perform headgate.fail_N('reason: is longer than 512 bytes');
    end if;
    select * into f from headgate.find_N(rule);
    res := headgate.ask_N(5, f.name, f.c, key, 1, us::bigint, coalesce(reason, ''));
    blocked_until := case when res[{out.blocked_until}] > 0 then headgate.instant_N(res[{out.blocked_until}]) end;
end $$;

-- headgate.reset forgets a key: its level and its block. It returns whether
-- there was anything to forget. A history is kept.
create or replace function headgate.reset(rule text, key text, out existed boolean) language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
declare
    f record;
begin
    select * into f from headgate.find_N(rule);
    existed := (headgate.ask_N(6, f.name, f.c, key, 1, 0, ''))[{out.granted}] = 1;
end $$;

-- Attempts, allowed or refused, of the limits that keep a history. What was
-- given back of one is no longer in its cost: 0 if all of it was.
create or replace view headgate.history as
select e.number, e.limit_name, e.key, 'epoch'::timestamptz + e.at * interval '1 microsecond' as at, e.granted as allowed,
    round(e.cost::numeric / coalesce(nullif(c.unit, 0), 1000), 6) as cost, nullif(e.id, '') as id
from headgate.entries e left join headgate.cells c on c.limit_name = e.limit_name and c.key = e.key;

-- headgate.attempts shows the last attempts of a key, newest first.
create or replace function headgate.attempts(p_limit text, p_key text, p_most int default 100)
returns table (number bigint, at timestamptz, allowed boolean, cost numeric, id text)
language plpgsql stable set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off
set search_path = pg_catalog, pg_temp as $$
begin
    perform headgate.checked_count_N('p_most', p_most);
    return query
    select e.number, headgate.instant_N(e.at), e.granted, round(e.cost::numeric / coalesce(nullif((select c.unit from headgate.cells c
        where c.limit_name = p_limit and c.key = p_key), 0), 1000), 6), nullif(e.id, '')
    from headgate.entries e where e.limit_name = p_limit and e.key = p_key order by e.number + 0 desc limit p_most; -- by the index on cells
end $$;

-- headgate.blocked_per_hour counts refused attempts for each limit and hour.
create or replace view headgate.blocked_per_hour as
select e.limit_name, 'epoch'::timestamptz + e.at / 3600000000 * interval '1 hour' as hour, count(*) as blocked, count(distinct e.key) as keys
from headgate.entries e where not e.granted group by e.limit_name, e.at / 3600000000;
