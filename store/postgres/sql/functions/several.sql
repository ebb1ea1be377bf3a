-- Several charges in one request, all or none: take_all, take_all_once, extend_all, reserve_all and
-- settle_all; or all of one alternative: take_first and take_first_once. Each is one call of headgate_internal.ask_again_N, as a request of one charge is.

-- headgate_internal.checked_array_N refuses an array that does not have an element for each charge.
create or replace function headgate_internal.checked_array_N(field text, dimensions int, length int, wanted int) returns void language plpgsql immutable as $$
declare
    most constant int := 1000;
begin
    if length is null then
        perform headgate_internal.fail_N(format('%s: is null', field));
    elsif length = 0 then
        perform headgate_internal.fail_N(format('%s: is empty; a request has one charge or more', field));
    elsif length > most then
        perform headgate_internal.fail_N(format('%s: has %s elements, at most %s are allowed', field, length, most));
    elsif dimensions > 1 then
        perform headgate_internal.fail_N(format('%s: has more than one dimension', field));
    elsif length <> wanted then
        perform headgate_internal.fail_N(format('%s: has %s elements, limits has %s', field, length, wanted));
    end if;
end $$;

-- headgate_internal.charge_all_N is headgate_internal.charge_N for the charges of one request: verb 1 takes, 4 settles, 8 extends. The limits
-- are those of one version of the catalog. note is the id; wait is how much later a reservation may start; alternatives has
-- the number of each charge's alternative, null if there are none.
create or replace function headgate_internal.charge_all_N(verb int, limits text[], p_keys text[], costs numeric[], life bigint, note text, wait bigint,
    alternatives int[], out names text[], out cs headgate.compiled[], out keys text[], out credits bigint[], out res bigint[])
language plpgsql volatile as $$
declare
    n constant int := cardinality(limits);
    rules text[]; amounts numeric[]; asked headgate.compiled[]; since bigint[]; lapse bigint[]; nothing bigint[]; clocks bigint[];
    how int; ceilings bigint[]; keep text; twice int; stale boolean;
begin
    perform headgate_internal.checked_array_N('limits', array_ndims(limits), n, n);
    perform headgate_internal.checked_array_N('keys', array_ndims(p_keys), cardinality(p_keys), n);
    perform headgate_internal.checked_array_N('costs', array_ndims(costs), cardinality(costs), n);
    select array_agg(u.rule order by u.i), array_agg(u.key order by u.i), array_agg(u.cost order by u.i)
    into rules, keys, amounts -- counted from 1
    from unnest(limits, p_keys, costs) with ordinality u(rule, key, cost, i);
    for k in 1 .. n loop
        if rules[k] is null then
            perform headgate_internal.fail_N(format('limits[%s]: is null', k));
        end if;
        perform headgate_internal.checked_key_N(format('keys[%s]', k), keys[k]);
    end loop;

    nothing := array_fill(0::bigint, array[n]);
    clocks := nothing;
    for try in 1 .. 4 loop
        select array_agg(f.name order by u.i), array_agg(f.c order by u.i), array_agg(f.since order by u.i), array_agg(f.lapse order by u.i)
        into names, cs, since, lapse
        from unnest(rules, keys, clocks) with ordinality u(rule, key, clock, i), lateral headgate_internal.find_N(u.rule, u.key, u.clock) f;
        asked := cs; credits := nothing; ceilings := nothing;
        how := case when wait > 0 then 2 else 0 end; -- if all may start later
        for k in 1 .. n loop
            credits[k] := headgate_internal.credits_N(format('costs[%s]', k), amounts[k], cs[k], verb = 4);
            continue when verb = 4;
            perform headgate_internal.takeable_N(cs[k]);
            keep := headgate_internal.headroom_N(rules[k]);
            how := case when headgate_internal.queues_N(cs[k]) and keep is null then how else 0 end;
            if wait > 0 or keep is not null then
                asked[k] := headgate_internal.unblocking_N(cs[k]);
            end if;
            if keep is not null then
                ceilings[k] := headgate_internal.keeping_N(cs[k], keep);
            end if;
        end loop;
        if note <> '' then
            select u.i into twice from (select i, row_number() over (partition by l, k, alternatives[i] order by i) as nth from unnest(names, keys) with ordinality v(l, k, i)) u
            where u.nth > 1 order by u.i limit 1;
            if found then
                perform headgate_internal.fail_N(format('keys[%s]: "%s" of "%s" is charged twice; a request with an id charges each key of a limit once', twice, keys[twice], names[twice]));
            end if;
        end if;
        if how = 2 then
            for k in 1 .. n loop
                ceilings[k] := headgate_internal.ceiling_N(cs[k], wait);
            end loop;
        end if;
        if verb = 4 then -- at any time
            since := nothing; lapse := nothing;
        end if;
        res := headgate_internal.ask_again_N(verb, names, asked, keys, credits, life, note, how, ceilings, 0, since, lapse, alternatives);
        stale := false;
        for k in 1 .. n loop
            stale := stale or res[(k - 1) * {out.width} + {out.status}] = 1;
            clocks[k] := res[(k - 1) * {out.width} + {out.clock}];
        end loop;
        if not stale then
            return;
        end if;
    end loop;
    raise exception 'limit: the server''s time keeps leaving the time for which "%" holds', names[1] using errcode = '40001';
end $$;

-- headgate_internal.each_N has the figures of each charge of a request, derived as in Go from what headgate_internal.charge_all_N
-- returned. fits says that it passes, or would have passed alone.
create or replace function headgate_internal.each_N(names text[], cs headgate.compiled[], keys text[], credits bigint[], res bigint[])
returns table (ordinality bigint, allowed boolean, fits boolean, limit_name text, key text, capacity bigint, remaining bigint,
    retry_after interval, reset_after interval, at timestamptz)
language plpgsql stable as $$
#variable_conflict use_column
declare
    n constant int := cardinality(names);
    passed boolean := true;
    out_ bigint[]; d headgate.decision;
begin
    for k in 1 .. n loop
        passed := passed and res[(k - 1) * {out.width} + {out.granted}] = 1;
    end loop;
    for k in 1 .. n loop
        out_ := res[(k - 1) * {out.width} + {out.granted} : k * {out.width}];
        if not passed then -- what was granted for as long as all was
            for j in 1 .. k loop
                if names[j] = names[k] and keys[j] = keys[k] then
                    out_[{out.used}] := out_[{out.used}] - res[(j - 1) * {out.width} + {out.granted}] * credits[j];
                end if;
            end loop;
        end if;
        d := headgate_internal.figures_N(out_, names[k], cs[k]);
        return query select k::bigint, passed, d.allowed, d.limit_name, keys[k], (cs[k]).params[{limit.capacity}] / (cs[k]).params[{limit.unit}],
            d.remaining, d.retry_after, d.reset_after, d.at;
    end loop;
end $$;

-- headgate.take_all takes several charges, all or none: the first of costs from the first of limits for the first
-- of keys, and so on. One row for each charge, as of headgate.take, but that allowed is of the whole request;
-- refused says which of the charges would not have passed.
create or replace function headgate.take_all(limits text[], keys text[], costs numeric[])
returns table (ordinality bigint, allowed boolean, limit_name text, key text, capacity bigint, remaining bigint, retry_after interval,
    reset_after interval, at timestamptz, refused boolean)
language plpgsql volatile security definer set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    f record;
begin
    f := headgate_internal.charge_all_N(1, limits, keys, costs, 0, '', 0, null);
    return query select e.ordinality, e.allowed, e.limit_name, e.key, e.capacity, e.remaining, e.retry_after, e.reset_after, e.at, not e.fits
        from headgate_internal.each_N(f.names, f.cs, f.keys, f.credits, f.res) e;
end $$;

-- headgate.take_all_once is headgate.take_all for a request with an id, as headgate.take_once is headgate.take.
create or replace function headgate.take_all_once(id text, limits text[], keys text[], costs numeric[], life interval default '1 hour')
returns table (ordinality bigint, allowed boolean, limit_name text, key text, capacity bigint, remaining bigint, retry_after interval,
    reset_after interval, at timestamptz, refused boolean, replayed boolean)
language plpgsql volatile security definer set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    f record;
begin
    f := headgate_internal.charge_all_N(1, limits, keys, costs, greatest(headgate_internal.micros_N('life', life), 1), headgate_internal.checked_id_N(id), 0, null);
    perform headgate_internal.started_N(id, f.res);
    return query select e.ordinality, e.allowed, e.limit_name, e.key, e.capacity, e.remaining, e.retry_after, e.reset_after, e.at, not e.fits,
            headgate_internal.replayed_N(f.res)
        from headgate_internal.each_N(f.names, f.cs, f.keys, f.credits, f.res) e;
end $$;

-- headgate_internal.try_alternatives_N checks the numbers of alternatives, takes the first that passes, and returns the rows of
-- those that were tried. The id is checked; '' is none.
create or replace function headgate_internal.try_alternatives_N(id text, limits text[], keys text[], costs numeric[], alternatives int[], life bigint)
returns table (ordinality bigint, allowed boolean, limit_name text, key text, capacity bigint, remaining bigint, retry_after interval,
    reset_after interval, at timestamptz, refused boolean, alternative int, replayed boolean)
language plpgsql volatile as $$
#variable_conflict use_column
declare
    n constant int := cardinality(limits);
    numbers int[]; f record; a int := 0; out_ bigint[];
begin
    perform headgate_internal.checked_array_N('limits', array_ndims(limits), n, n);
    if alternatives is not null then
        perform headgate_internal.checked_array_N('alternatives', array_ndims(alternatives), cardinality(alternatives), n);
    end if;
    numbers := array(select u.a from unnest(coalesce(alternatives, array(select generate_series(1, n)))) with ordinality u(a, i) order by u.i);
    for k in 1 .. n loop
        if coalesce(numbers[k] not between greatest(a, 1) and least(a + 1, 255), true) then
            perform headgate_internal.fail_N(format('alternatives[%s]: is %s; they are numbered from 1 to 255, one after another', k, coalesce(numbers[k]::text, 'null')));
        end if;
        a := numbers[k];
    end loop;
    f := headgate_internal.charge_all_N(1, limits, keys, costs, life, id, 0, numbers);
    perform headgate_internal.started_N(id, f.res);
    a := 1;
    for b in 1 .. n loop
        continue when b < n and numbers[b + 1] = numbers[a];
        out_ := f.res[(a - 1) * {out.width} + {out.granted} : b * {out.width}];
        if out_[{out.clock}] <> 0 then -- it was tried, or admitted before
            return query select e.ordinality + a - 1, e.allowed, e.limit_name, e.key, e.capacity, e.remaining, e.retry_after, e.reset_after, e.at,
                    not e.fits, numbers[a], headgate_internal.replayed_N(out_)
                from headgate_internal.each_N(f.names[a : b], f.cs[a : b], f.keys[a : b], f.credits[a : b], out_) e;
        end if;
        a := b + 1;
    end loop;
end $$;

-- headgate.take_first takes all charges of the first alternative that passes as a whole, and nothing of the others.
-- alternatives has the number of each charge's alternative, from 1; null: each charge is one. Rows and columns are those of
-- headgate.take_all, without the charges that were not looked at; allowed is of the alternative, all rows of which are taken or none.
create or replace function headgate.take_first(limits text[], keys text[], costs numeric[], alternatives int[] default null)
returns table (ordinality bigint, allowed boolean, limit_name text, key text, capacity bigint, remaining bigint, retry_after interval,
    reset_after interval, at timestamptz, refused boolean, alternative int)
language plpgsql volatile security definer set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
    return query select e.ordinality, e.allowed, e.limit_name, e.key, e.capacity, e.remaining, e.retry_after, e.reset_after, e.at, e.refused, e.alternative
        from headgate_internal.try_alternatives_N('', limits, keys, costs, alternatives, 0) e;
end $$;

-- headgate.take_first_once takes the first alternative that passes, once for an id: called again, it answers with the alternative
-- that was charged then. The charges of that one can be extended and settled.
create or replace function headgate.take_first_once(id text, limits text[], keys text[], costs numeric[], alternatives int[] default null,
    life interval default '1 hour')
returns table (ordinality bigint, allowed boolean, limit_name text, key text, capacity bigint, remaining bigint, retry_after interval,
    reset_after interval, at timestamptz, refused boolean, alternative int, replayed boolean)
language plpgsql volatile security definer set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
    return query select * from headgate_internal.try_alternatives_N(headgate_internal.checked_id_N(id), limits, keys, costs, alternatives,
        greatest(headgate_internal.micros_N('life', life), 1));
end $$;

-- headgate.extend_all is headgate.extend for several charges of a request with an id, all or none: costs are what they are in
-- all. They need not be all of the request's.
create or replace function headgate.extend_all(id text, limits text[], keys text[], costs numeric[], life interval default '1 hour')
returns table (ordinality bigint, allowed boolean, limit_name text, key text, capacity bigint, remaining bigint, retry_after interval,
    reset_after interval, at timestamptz, refused boolean, charged numeric)
language plpgsql volatile security definer set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    f record; more bigint[];
begin
    f := headgate_internal.charge_all_N(8, limits, keys, costs, greatest(headgate_internal.micros_N('life', life), 1), headgate_internal.checked_id_N(id), 0, null);
    for k in 1 .. cardinality(f.names) loop -- what was asked for in addition, if the request was refused
        more[k] := greatest(0, f.credits[k] - f.res[(k - 1) * {out.width} + {out.granted}]);
    end loop;
    return query select e.ordinality, e.allowed, e.limit_name, e.key, e.capacity, e.remaining, e.retry_after, e.reset_after, e.at, not e.fits,
            headgate_internal.corrected_N(f.res[(e.ordinality - 1) * {out.width} + {out.granted}], f.cs[e.ordinality])
        from headgate_internal.each_N(f.names, f.cs, f.keys, more, headgate_internal.fitting_N(f.res)) e;
end $$;

-- headgate.reserve_all is headgate.reserve for several charges, all or none, with a start in common: later than
-- now only if all limits are token-bucket, leaky-bucket or gcra. allowed, start_at, delay and replayed are those
-- of the whole request, and the same in all rows.
create or replace function headgate.reserve_all(limits text[], keys text[], costs numeric[], wait interval, id text default null, life interval default '1 hour')
returns table (ordinality bigint, allowed boolean, start_at timestamptz, delay interval, limit_name text, key text, capacity bigint,
    remaining bigint, retry_after interval, refused boolean, replayed boolean)
language plpgsql volatile security definer set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    f record; s record;
begin
    f := headgate_internal.charge_all_N(1, limits, keys, costs, case when id is null then 0 else greatest(headgate_internal.micros_N('life', life), 1) end,
        case when id is null then '' else headgate_internal.checked_id_N(id) end, headgate_internal.micros_N('wait', wait), null);
    s := headgate_internal.start_N(f.res, f.cs);
    return query select e.ordinality, e.allowed, s.start_at, s.delay, e.limit_name, e.key, e.capacity, e.remaining, e.retry_after, not e.fits,
            headgate_internal.replayed_N(f.res)
        from headgate_internal.each_N(f.names, f.cs, f.keys, f.credits, f.res) e;
end $$;

-- headgate.settle_all is headgate.settle for several charges of a request with an id, all or none. They need not be
-- all of the request's.
create or replace function headgate.settle_all(id text, limits text[], keys text[], costs numeric[])
returns table (ordinality bigint, limit_name text, key text, corrected numeric)
language plpgsql volatile security definer set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    f record;
begin
    f := headgate_internal.charge_all_N(4, limits, keys, costs, 0, headgate_internal.checked_id_N(id), 0, null);
    for k in 1 .. cardinality(f.names) loop
        return query select k::bigint, f.names[k], f.keys[k], headgate_internal.corrected_N(f.res[(k - 1) * {out.width} + {out.granted}], f.cs[k]);
    end loop;
end $$;
