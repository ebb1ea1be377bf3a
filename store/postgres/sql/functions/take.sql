-- What people call: take, check, block, reset, and views to read. Each function
-- is one call of headgate_internal.apply_N; it locks and writes what that says.
--
-- Inside a transaction of yours, the cell stays locked until it ends: that is
-- what you want when the charge is to commit or roll back with your work, and
-- not what you want in a long one.

-- headgate_internal.instant_N is a time of ours. It is stable, as the addition is: else it would not be
-- made part of the expressions that call it. Views say the same without it: a function that
-- is made part of a view would find its operators by the search_path of the reader.
create or replace function headgate_internal.instant_N(us bigint) returns timestamptz language sql stable as $$
    select 'epoch'::timestamptz + us * interval '1 microsecond'
$$;

-- headgate_internal.starts_at_N is the first instant at which the clocks of a zone show a
-- local time or a later one: where no change of the zone's offset is near, a
-- subtraction, else the minutes around are tried in turn.
create or replace function headgate_internal.starts_at_N(local timestamp, zone text) returns timestamptz language plpgsql stable as $$
declare
    guess timestamptz := local at time zone zone;
    near constant interval := '26 hours';
begin
    if (guess - near) at time zone zone = local - near and (guess + near) at time zone zone = local + near then
        return guess;
    end if;
    return coalesce((select min(u) from generate_series(guess - near, guess + near, '1 minute') u where u at time zone zone >= local), guess);
end $$;

-- headgate_internal.bounds_N returns four ascending window boundaries with now, in
-- microseconds, between the second and the third.
create or replace function headgate_internal.bounds_N(calendar text, zone text, now bigint) returns bigint[] language plpgsql stable as $$
declare
    t timestamptz := headgate_internal.instant_N(now);
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
        while headgate_internal.starts_at_N(p, zone) > t loop
            p := p - step;
        end loop;
        list := array[headgate_internal.starts_at_N(p - step, zone), headgate_internal.starts_at_N(p, zone),
            headgate_internal.starts_at_N(p + step, zone), headgate_internal.starts_at_N(p + 2 * step, zone)];
    end if;
    return array(select (extract(epoch from u) * 1000000)::bigint from unnest(list) u);
end $$;

-- headgate_internal.print_N is Print of package law, of a request of one charge.
create or replace function headgate_internal.print_N(name text, key text, credits bigint, unit bigint) returns bigint language sql immutable as $$
    select ('x' || left(encode(sha256(convert_to(octet_length(name) || ':' || name || octet_length(key) || ':' || key
        || credits / gcd(credits, unit) || '/' || unit / gcd(credits, unit), 'UTF8')), 'hex'), 13))::bit(52)::bigint
$$;

-- headgate_internal.ask_again_N applies the ops of one request, one for each charge, and again with
-- boundaries around the server's time if those guessed before the lock were a window off.
-- It returns what headgate_internal.apply_N returns.
-- names, cs, keys and credits are those of the charges; so are ceilings, since and lapse. note
-- is the id of a request that takes, extends or settles; how is 1 for one that takes what fits, 2 for one
-- that may start later; entry what is renewed or returned.
create or replace function headgate_internal.ask_again_N(verb int, names text[], cs headgate.compiled[], keys text[], credits bigint[], ttl bigint, note text,
    how int, ceilings bigint[], entry bigint, since bigint[], lapse bigint[], alternatives int[] default null)
returns bigint[] language plpgsql volatile as $$
declare
    n constant int := cardinality(names);
    clocks bigint[] := array_fill((extract(epoch from clock_timestamp()) * 1000000)::bigint, array[n]);
    b bigint[]; c headgate.compiled; ops bigint[]; prints bigint[];
    limits text[] := names; cells text[] := keys; modes smallint[]; place int[] := '{1}';
    late boolean; untimely boolean; r int;
    res bigint[];
begin
    if n > 1 then -- each once, in the order in which they are locked
        select array_agg(d.limit_ order by d.p) filter (where d.first), array_agg(d.cell order by d.p) filter (where d.first), array_agg(d.p order by d.i)
        into limits, cells, place
        from (select u.limit_, u.cell, u.i, dense_rank() over (order by u.limit_ collate "C", u.cell collate "C")::int as p,
                row_number() over (partition by u.limit_, u.cell order by u.i) = 1 as first
            from unnest(names, keys) with ordinality u(limit_, cell, i)) d;
    end if;
    for i in 1 .. 4 loop
        modes := array_fill(0::smallint, array[cardinality(cells)]);
        ops := '{}';
        for k in 1 .. n loop
            c := cs[k];
            modes[place[k]] := case when verb = 2 then 0 when verb in (3, 4, 6, 7, 8) then 1 else 2 end;
            b := case when c.calendar is null then '{0,0,0,0}' else headgate_internal.bounds_N(c.calendar, c.zone, clocks[k]) end;
            ops := ops || array[{op: verb => verb, group => 1, alternative => coalesce(alternatives[k], 0), cell => place[k], kind => c.params[{limit.kind}], anchor => c.params[{limit.anchor}],
                unit => c.params[{limit.unit}], capacity => c.params[{limit.capacity}], step => c.params[{limit.step}],
                drain => greatest(c.params[{limit.drain}], 1), block => c.params[{limit.block}], history => c.params[{limit.history}],
                cost => case how when 1 then 1 else credits[k] end, count => case how when 1 then credits[k] else 1 end,
                how => how, ceiling => ceilings[k], ttl => ttl,
                window0 => b[1], window1 => b[2], window2 => b[3], window3 => b[4],
                since => since[k], lapse => lapse[k], entry => entry}]::bigint[];
        end loop;
        if note <> '' and verb in (1, 4, 8) then
            if i = 1 and verb = 1 then -- Print of package law
                select array_agg(p.print order by p.i) into prints from (
                    select u.i, sum(headgate_internal.print_N(names[u.i], keys[u.i], credits[u.i], (cs[u.i]).params[{limit.unit}]))
                        over (partition by alternatives[u.i])::bigint & 9007199254740991 as print from generate_series(1, n) u(i)) p;
            end if;
            res := headgate_internal.apply_once_N(limits, cells, modes, ops, array_fill(note, array[n]), prints, array[n]);
        else
            res := headgate_internal.apply_N(limits, cells, modes, ops, case when note <> '' then array_fill(note, array[n]) end);
        end if;
        late := false; untimely := false;
        for k in 1 .. n loop
            r := (k - 1) * {out.width};
            if res[r + {out.status}] = 1 then
                late := true;
                clocks[k] := res[r + {out.clock}];
                untimely := untimely or clocks[k] < since[k] or lapse[k] <> 0 and clocks[k] >= lapse[k];
            end if;
        end loop;
        exit when not late or untimely;
    end loop;
    for k in 1 .. n loop
        case res[(k - 1) * {out.width} + {out.status}]
            when 3 then perform headgate_internal.fail_N(format('id: "%s": the id was used for other charges', note));
            when 4 then perform headgate_internal.fail_N(format('id: "%s": no request of this id is known', note));
            when 5 then perform headgate_internal.fail_N(format('id: "%s": it is settled already', note));
            else null;
        end case;
    end loop;
    return res;
end $$;

-- headgate_internal.checked_key_N refuses keys that none can have.
create or replace function headgate_internal.checked_key_N(field text, key text) returns void language plpgsql immutable as $$
begin
    if key is null then
        perform headgate_internal.fail_N(field || ': is null');
    elsif octet_length(key) > 512 then
        perform headgate_internal.fail_N(format('%s: is %s bytes long, at most 512 are allowed', field, octet_length(key)));
    end if;
end $$;

-- headgate_internal.ask_N is headgate_internal.ask_again_N for one charge, but decides most in a few
-- statements.
create or replace function headgate_internal.ask_N(verb int, name text, c headgate.compiled, key text, credits bigint, ttl bigint, note text,
    how int default 0, ceiling bigint default 0, entry bigint default 0, since bigint default 0, lapse bigint default 0)
returns bigint[] language plpgsql volatile as $$
declare
    res bigint[];
begin
    perform headgate_internal.checked_key_N('key', key);
    if verb = 1 and note = '' and how = 0 and ceiling = 0 and since = 0 and lapse = 0 then -- in a few statements, mostly
        case
            when c.params[{limit.kind}] = 1 and c.params[{limit.anchor}] < 2 or c.params[{limit.kind}] = 2 then
                res := headgate_internal.take_one_N(name, key, c.params[{limit.anchor}], c.params[{limit.unit}], c.params[{limit.capacity}],
                    c.params[{limit.step}], c.params[{limit.drain}], coalesce(c.params[{limit.block}], 0), credits, 0);
            when c.params[{limit.kind}] = 3 then res := headgate_internal.log_one_N(name, key, c.params, credits);
            else null;
        end case;
        if res[{out.status}] = 0 then
            return res;
        end if;
    end if;
    return headgate_internal.ask_again_N(verb, array[name], array[c], array[key], array[credits], ttl, note, how, array[ceiling], entry, array[since], array[lapse]);
end $$;

-- headgate_internal.credits_N is a cost in credits, rounded up. zero says that it may be none.
create or replace function headgate_internal.credits_N(field text, cost numeric, c headgate.compiled, zero boolean) returns bigint language plpgsql immutable as $$
declare
    unit bigint := c.params[{limit.unit}]; credits numeric;
begin
    if cost is null then
        perform headgate_internal.fail_N(field || ': is null');
    elsif cost = 'NaN' or cost::text like '%Infinity' then
        perform headgate_internal.fail_N(format('%s: "%s" is not a decimal number such as 3 or 0.5', field, cost));
    elsif cost < 0 or cost = 0 and not zero then
        perform headgate_internal.fail_N(format('%s: is %s; it must %s', field, cost, case when zero then 'not be below 0' else 'be above 0' end));
    end if;
    credits := ceil(cost * unit);
    if c.canonical = '0' then
        return 2; -- more than fits, however little or much it is
    elsif credits > 9007199254740991 then
        perform headgate_internal.fail_N(format('%s: %s is too large', field, cost));
    end if;
    return credits;
end $$;

-- headgate_internal.retry_after_N is that of a Decision, from what headgate_internal.ask_N returned; null for
-- never.
create or replace function headgate_internal.retry_after_N(res bigint[]) returns interval language sql immutable as $$
    select case when res[{out.granted}] = 1 then '0'::interval
        when res[{out.retry_at}] < 9007199254740991 then greatest(0, res[{out.retry_at}] - res[{out.clock}]) * interval '1 microsecond' end
$$;

-- headgate_internal.decided_at_N is DecidedAt of package law: the server's clock, or the cell's own
-- time where that is ahead by less than a cell that is to be healed.
create or replace function headgate_internal.decided_at_N(res bigint[], c headgate.compiled) returns bigint language sql immutable as $$
    select case when res[{out.at}] <= res[{out.clock}] or res[{out.at}] - res[{out.clock}] > greatest(2000000, case c.params[{limit.kind}]
            when 2 then 2 * c.params[{limit.step}]
            when 3 then c.params[{limit.step}]
            else headgate_internal.add_steps_N(0, (c.params[{limit.capacity}] - 1) / greatest(c.params[{limit.drain}], 1) + 1, c.params[{limit.step}]) end)
        then res[{out.clock}] else res[{out.at}] end
$$;

-- headgate_internal.figures_N are those of a Decision, derived as in Go from what
-- headgate_internal.ask_N returned.
create or replace function headgate_internal.figures_N(res bigint[], name text, c headgate.compiled) returns headgate.decision language sql stable as $$
    select row(res[{out.granted}] = 1,
        case when res[{out.blocked_until}] > greatest(res[{out.clock}], res[{out.at}]) then 0 else greatest(0, c.params[{limit.capacity}] - res[{out.used}]) / c.params[{limit.unit}] end,
        headgate_internal.retry_after_N(res),
        greatest(0, greatest(res[{out.empty_at}], res[{out.blocked_until}]) - res[{out.clock}]) * interval '1 microsecond',
        name,
        headgate_internal.instant_N(headgate_internal.decided_at_N(res, c)))::headgate.decision
$$;

-- headgate_internal.takeable_N refuses limits whose charges are held.
create or replace function headgate_internal.takeable_N(c headgate.compiled) returns void language plpgsql immutable as $$
begin
    if c.canonical like 'concurrency %' then
        perform headgate_internal.fail_N(format('limit: %s is acquired and released, not taken', c.canonical));
    end if;
end $$;

-- headgate_internal.held_N refuses limits whose charges are taken.
create or replace function headgate_internal.held_N(c headgate.compiled) returns void language plpgsql immutable as $$
begin
    if c.canonical not like 'concurrency %' then
        perform headgate_internal.fail_N(format('limit: %s is taken, not acquired: only concurrency limits are', c.canonical));
    end if;
end $$;

-- headgate_internal.unblocking_N is a limit for a caller that waits: a refusal does not block it.
create or replace function headgate_internal.unblocking_N(c headgate.compiled) returns headgate.compiled language sql immutable as $$
    select row(c.canonical, c.params[{limit.kind}:{limit.drain}] || 0::bigint || c.params[{limit.history}], c.calendar, c.zone)::headgate.compiled
$$;

-- headgate_internal.queues_N says whether what is charged to a limit may start later.
create or replace function headgate_internal.queues_N(c headgate.compiled) returns boolean language sql immutable as $$
    select c.canonical ~ '^(token-bucket|leaky-bucket|gcra) '
$$;

-- headgate_internal.ceiling_N is Ceiling of package law, of a limit that queues.
create or replace function headgate_internal.ceiling_N(c headgate.compiled, wait bigint) returns bigint language sql immutable as $$
    select case when wait / c.params[{limit.step}] > (9007199254740991 - c.params[{limit.capacity}]) / c.params[{limit.drain}] then 9007199254740991
        else c.params[{limit.capacity}] + wait / c.params[{limit.step}] * c.params[{limit.drain}] end
$$;

-- headgate_internal.keeping_N returns the credits up to which a charge is admitted that leaves headroom to others: a share of
-- the capacity, such as 10%, or an amount. It is rounded up. headroom.go has the same.
create or replace function headgate_internal.keeping_N(c headgate.compiled, keep text) returns bigint language plpgsql immutable as $$
declare
    capacity constant bigint := c.params[{limit.capacity}];
    share constant boolean := right(keep, 1) = '%';
    number constant text := case when share then left(keep, -1) else keep end;
    amount numeric; credits numeric;
begin
    if number !~ '^[0-9]+([.][0-9]+)?$' then
        perform headgate_internal.fail_N(format('keep: "%s" is not a decimal number such as 3 or 0.5', number));
    end if;
    amount := trim_scale(number::numeric);
    if scale(amount) > 9 then
        perform headgate_internal.fail_N(format('keep: "%s" has more than 9 digits after the point', number));
    elsif amount = 0 then
        perform headgate_internal.fail_N('keep: is 0; it must be above 0');
    elsif share and amount >= 100 then
        perform headgate_internal.fail_N(format('keep: %s leaves nothing of a limit to take', keep));
    end if;
    if c.canonical = '0' then
        return capacity; -- which no cost fits below
    end if;
    credits := ceil(case when share then amount * capacity * 0.01 else amount * c.params[{limit.unit}] end);
    if credits >= capacity then
        perform headgate_internal.fail_N(format('keep: %s leaves nothing to take of a limit of %s at once', keep,
            trim_scale(div(capacity::numeric * 1000000, c.params[{limit.unit}]) / 1000000)));
    end if;
    return capacity - credits;
end $$;

-- headgate_internal.charge_N decides by the limit that holds for a key when the cell is locked. Where what
-- was found does not hold at that time, it finds again with the time that it was told. life
-- and note are of a request with an id, which verb 8 extends; wait is how much later a reservation may start, -1 charges whatever the level; hold says that the
-- charge is held; fill that what fits of it is taken, and counted in credits.
create or replace function headgate_internal.charge_N(verb int, rule text, key text, cost numeric, life bigint, note text, wait bigint, hold boolean,
    fill boolean default false,
    out name text, out c headgate.compiled, out res bigint[])
language plpgsql volatile as $$
declare
    f record; asked headgate.compiled; now bigint := 0; how int; ceiling bigint; keep text := headgate_internal.headroom_N(rule);
begin
    for try in 1 .. 4 loop
        f := headgate_internal.find_N(rule, key, now);
        name := f.name; c := f.c; asked := c; how := case when fill then 1 else 0 end; ceiling := 0;
        if hold then
            perform headgate_internal.held_N(c);
        else
            perform headgate_internal.takeable_N(c);
        end if;
        if wait <> 0 or keep is not null then
            asked := headgate_internal.unblocking_N(c);
        end if;
        if wait < 0 then
            if keep is not null then
                perform headgate_internal.fail_N('keep: has no meaning for what is charged whatever the level');
            end if;
            ceiling := case c.params[{limit.kind}] when 2 then 4294967295 else 9007199254740991 end; -- Highest of package law
        elsif keep is not null then
            ceiling := headgate_internal.keeping_N(c, keep);
        elsif wait > 0 and headgate_internal.queues_N(c) then
            how := 2; ceiling := headgate_internal.ceiling_N(c, wait);
        end if;
        res := headgate_internal.ask_N(verb, name, asked, key, headgate_internal.credits_N(case verb when 8 then 'total' else 'cost' end, cost, c, false), life, note, how, ceiling, 0, f.since, f.lapse);
        if res[{out.status}] <> 1 then
            return;
        end if;
        now := res[{out.clock}];
    end loop;
    raise exception 'limit: the server''s time keeps leaving the time for which "%" holds', name using errcode = '40001';
end $$;

-- headgate_internal.decide_N is take and check.
create or replace function headgate_internal.decide_N(verb int, name text, c headgate.compiled, key text, cost numeric) returns headgate.decision
language plpgsql volatile as $$
declare
    res bigint[];
begin
    if c.canonical like 'concurrency %' then
        perform headgate_internal.takeable_N(c);
    end if;
    res := headgate_internal.ask_N(verb, name, c, key, headgate_internal.credits_N('cost', cost, c, false), 0, '');
    return headgate_internal.figures_N(res, name, c);
end $$;

-- headgate.take takes cost from a limit for a key. One row: allowed; remaining,
-- whole units that could pass now; retry_after, until this cost passes, null for
-- never, zero when allowed; reset_after, until the key is as good as new; the
-- limit's name; at, the time of the decision.
--
-- This function and others for the role app have the rights of their owner: sql/functions/roles.sql.
create or replace function headgate.take(rule text, key text, cost numeric default 1) returns headgate.decision
language plpgsql volatile security definer set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    f record; c headgate.compiled; credits numeric; res bigint[]; name_ text; varies_ int := 0; timed boolean := false;
begin
    -- Most charges are of a limit that is kept compiled: one look at that and headgate_internal.take_one_N. What is
    -- wrong with all others is said below.
    if strpos(take.rule, ' ') = 0 then
        select l.varies, l.name, (l.compiled).* into varies_, name_, c.canonical, c.params, c.calendar, c.zone
        from headgate.limits l where l.name = take.rule and l.name ~ '^[a-z][a-z0-9_.-]{0,63}$';
    elsif headgate_internal.headroom_N(rule) is not null then
        f := headgate_internal.charge_N(1, rule, key, cost, 0, '', 0, false);
        return headgate_internal.figures_N(f.res, f.name, f.c);
    else
        perform headgate_internal.may_notate_N();
        select (n.compiled).canonical, (n.compiled).* into name_, c.canonical, c.params, c.calendar, c.zone
        from headgate.notations n where n.rule = take.rule limit 1;
    end if;
    if varies_ <> 0 then
        f := headgate_internal.find_N(rule, key);
        timed := f.since <> 0 or f.lapse <> 0;
        c := f.c; name_ := f.name; -- another name has overrides if a limit had that name before
    end if;
    credits := cost * c.params[{limit.unit}];
    if not timed and (c.params[{limit.kind}] = 1 and c.params[{limit.anchor}] < 2 or c.params[{limit.kind}] = 2) and credits between 1 and c.params[{limit.capacity}]
        and credits = trunc(credits) and octet_length(key) <= 512 and c.canonical <> '0'
    then
        res := headgate_internal.take_one_N(name_, key, c.params[{limit.anchor}], c.params[{limit.unit}], c.params[{limit.capacity}],
            c.params[{limit.step}], c.params[{limit.drain}], coalesce(c.params[{limit.block}], 0), credits::bigint, 0);
        return headgate_internal.figures_N(res, name_, c);
    end if;
    if coalesce(varies_, 0) = 0 then -- null: there is no such limit
        f := headgate_internal.find_N(rule, key);
        timed := f.since <> 0 or f.lapse <> 0; -- it may have got an override by now
    end if;
    if f.compiled then
        perform headgate_internal.keep_N(rule);
    elsif timed then
        f := headgate_internal.charge_N(1, rule, key, cost, 0, '', 0, false);
        return headgate_internal.figures_N(f.res, f.name, f.c);
    end if;
    return headgate_internal.decide_N(1, f.name, f.c, key, cost);
end $$;

-- headgate.check tells whether take would admit the cost, and what could pass now, and takes nothing.
create or replace function headgate.check(rule text, key text, cost numeric default 1) returns headgate.decision
language plpgsql volatile security definer set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set search_path = pg_catalog, pg_temp as $$
declare
    f record; res bigint[];
begin
    f := headgate_internal.charge_N(2, rule, key, cost, 0, '', 0, false);
    res := f.res;
    res[{out.used}] := res[{out.used}] - res[{out.granted}] * headgate_internal.credits_N('cost', cost, f.c, false);
    return headgate_internal.figures_N(res, f.name, f.c);
end $$;

-- headgate.block refuses everything of a key for a while; a zero interval lifts
-- that. It returns until when, null if not blocked.
create or replace function headgate.block(rule text, key text, for_interval interval, reason text default '', out blocked_until timestamptz)
language plpgsql volatile set enable_seqscan = off set search_path = pg_catalog, pg_temp as $$
declare
    f record; us numeric; res bigint[];
begin
    if for_interval is null then
        perform headgate_internal.fail_N('for_interval: is null');
    end if;
    us := extract(epoch from for_interval)::numeric * 1000000;
    if us < 0 or us > 3660 * 86400000000 then
        perform headgate_internal.fail_N(format('for_interval: %s is not from 0 to 3660 days', for_interval));
    elsif octet_length(coalesce(reason, '')) > 512 then
        perform headgate_internal.fail_N('reason: is longer than 512 bytes');
    end if;
    f := headgate_internal.find_N(rule, key);
    res := headgate_internal.ask_N(5, f.name, f.c, key, 1, us::bigint, coalesce(reason, ''));
    perform headgate_internal.record_action_N(case us when 0 then 'unblock' else 'block' end, f.name, key, us::bigint, headgate_internal.author_N(), coalesce(reason, ''));
    blocked_until := case when res[{out.blocked_until}] > 0 then headgate_internal.instant_N(res[{out.blocked_until}]) end;
end $$;

-- headgate.reset forgets a key: its level and its block. It returns whether
-- there was anything to forget. A history is kept.
create or replace function headgate.reset(rule text, key text, out existed boolean) language plpgsql volatile
set enable_seqscan = off set search_path = pg_catalog, pg_temp as $$
declare
    f record;
begin
    f := headgate_internal.find_N(rule, key);
    existed := (headgate_internal.ask_N(6, f.name, f.c, key, 1, 0, ''))[{out.granted}] = 1;
    perform headgate_internal.record_action_N('reset', f.name, key, 0, headgate_internal.author_N(), '');
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
    perform headgate_internal.checked_count_N('p_most', p_most);
    p_limit := headgate_internal.cells_N(p_limit);
    return query
    select e.number, headgate_internal.instant_N(e.at), e.granted, round(e.cost::numeric / coalesce(nullif((select c.unit from headgate.cells c
        where c.limit_name = p_limit and c.key = p_key), 0), 1000), 6), nullif(e.id, '')
    from headgate.entries e where e.limit_name = p_limit and e.key = p_key order by e.number + 0 desc limit p_most; -- by the index on cells
end $$;

-- headgate.blocked_per_hour counts refused attempts for each limit and hour.
create or replace view headgate.blocked_per_hour as
select e.limit_name, 'epoch'::timestamptz + e.at / 3600000000 * interval '1 hour' as hour, count(*) as blocked, count(distinct e.key) as keys
from headgate.entries e where not e.granted group by e.limit_name, e.at / 3600000000;
