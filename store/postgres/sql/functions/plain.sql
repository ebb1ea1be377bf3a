-- Plain charges: single ones, and batches of them.

-- A plain charge is of the bucket law without a calendar, or of the window law. Of the latter p_drain is 0: all of a
-- window stays until it is over.

-- headgate_internal.drained_N and headgate_internal.drained_at_N are bucket of package law, for the
-- anchors that need no boundaries: the credits in use at now, and the time that
-- they hold for. headgate_internal.drained_by_N is after, of a level that the capacity
-- bounds: so that nothing can pass 2^53. They are short enough to be made part of
-- the statement that calls them, which a test looks at, and so are those of windows.
create or replace function headgate_internal.drained_N(level bigint, at bigint, empty_at bigint, now bigint, anchor bigint, drain bigint, step bigint)
returns bigint language sql immutable as $$
    select case when now >= empty_at then 0 else {{template "drained" (as "level" "level" "at" "at" "now" "now")}} end
$$;

create or replace function headgate_internal.drained_at_N(level bigint, at bigint, empty_at bigint, now bigint, anchor bigint, drain bigint, step bigint)
returns bigint language sql immutable as $$
    select {{template "drained at" (as "level" "level" "at" "at" "now" "now" "empty" "now >= empty_at")}}
$$;

create or replace function headgate_internal.drained_by_N(level bigint, at bigint, empty_at bigint, now bigint, anchor bigint, drain bigint, step bigint, cost bigint)
returns bigint language sql immutable as $$
    select step * ((case when now >= empty_at then 0 else {{template "drained" (as "level" "level" "at" "at" "now" "now")}} end + cost + drain - 1) / drain)
        + case when anchor = 1 then greatest(at - at % step, now - now % step)
        else {{template "drained at" (as "level" "level" "at" "at" "now" "now" "empty" "now >= empty_at")}} end
$$;

-- headgate_internal.present_N and headgate_internal.before_N are the counters of window of package law, of the present
-- window and the one before; headgate_internal.carried_N is what the latter still counts for.
create or replace function headgate_internal.present_N(level bigint, at bigint, empty_at bigint, now bigint, step bigint) returns bigint language sql immutable as $$
    select case when now < empty_at and at >= now - now % step then level else 0 end
$$;

create or replace function headgate_internal.before_N(level bigint, prev bigint, at bigint, empty_at bigint, now bigint, step bigint)
returns bigint language sql immutable as $$
    select case when now >= empty_at or at < now - now % step - step then 0 when at >= now - now % step then prev else level end
$$;

create or replace function headgate_internal.carried_N(prev bigint, now bigint, step bigint) returns bigint language sql immutable as $$
    select (prev * least(step / headgate_internal.grain_N(step), (step - now % step - 1) / headgate_internal.grain_N(step) + 1)
        + step / headgate_internal.grain_N(step) - 1) / (step / headgate_internal.grain_N(step))
$$;

-- headgate_internal.take_one_N: one plain charge, in one round trip. One update grants it, if the
-- cell is there, is of the same law in the same unit and step, has had nothing returned if it is a bucket,
-- is neither blocked nor ahead of the clock, and has room. Else one select says that a
-- bucket of this kind has no room; else one insert makes the cell; all others are decided by
-- headgate_internal.apply_N, in the same call.
--
-- The clock is read before the row is locked. If a charge that is granted had to wait for
-- its row, that clock is behind, which drains less: greatest(clock, at), for which it is
-- decided then, is after what the cell has. If the clock was set back meanwhile, the charge is
-- undone and made again. For a refusal the clock is read again.
--
-- The row is reached by the primary key, with a plan that is made once: a plan made while
-- the table was small would read all of it.
--
-- p_now    a test's time; 0: the server's clock
-- returns  the numbers of the outcome: see law.Numbers
create or replace function headgate_internal.take_one_N(
    p_limit text, p_key text, p_anchor bigint, p_unit bigint, p_capacity bigint, p_step bigint, p_drain bigint,
    p_block bigint, p_cost bigint, p_now bigint)
returns bigint[] language plpgsql volatile
set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    clock bigint := case when p_now > 0 then p_now else (extract(epoch from clock_timestamp()) * 1000000)::bigint end;
    kind smallint := case when p_drain > 0 then 1 else 2 end;
    res bigint[];
begin
    if kind = 1 then
        update headgate.cells c
        set level = headgate_internal.drained_N(c.level, c.at, c.empty_at, greatest(clock, c.at), p_anchor, p_drain, p_step) + p_cost,
            at = headgate_internal.drained_at_N(c.level, c.at, c.empty_at, greatest(clock, c.at), p_anchor, p_drain, p_step),
            empty_at = headgate_internal.drained_by_N(c.level, c.at, c.empty_at, greatest(clock, c.at), p_anchor, p_drain, p_step, p_cost)
        where c.limit_name = p_limit and c.key = p_key and c.law = 1 and c.unit = p_unit and c.step = p_step and c.prev = 0
          and c.blocked_until <= greatest(clock, c.at) and c.at - clock <= 2000000
          and headgate_internal.drained_N(c.level, c.at, c.empty_at, greatest(clock, c.at), p_anchor, p_drain, p_step) <= p_capacity - p_cost
        returning {{template "granted one" "c.level"}} into res;
    else
        update headgate.cells c
        set level = headgate_internal.present_N(c.level, c.at, c.empty_at, greatest(clock, c.at), p_step) + p_cost,
            prev = headgate_internal.before_N(c.level, c.prev, c.at, c.empty_at, greatest(clock, c.at), p_step),
            at = greatest(clock, c.at), empty_at = greatest(clock, c.at) - greatest(clock, c.at) % p_step + 2 * p_step
        where c.limit_name = p_limit and c.key = p_key and c.law = 2 and c.unit = p_unit and c.step = p_step
          and c.blocked_until <= greatest(clock, c.at) and c.at - clock <= 2000000
          and headgate_internal.present_N(c.level, c.at, c.empty_at, greatest(clock, c.at), p_step)
            + headgate_internal.carried_N(headgate_internal.before_N(c.level, c.prev, c.at, c.empty_at, greatest(clock, c.at), p_step), greatest(clock, c.at), p_step)
            <= p_capacity - p_cost
        returning {{template "granted one" "c.level + headgate_internal.carried_N(c.prev, c.at, c.step)"}} into res;
    end if;
    if found then
        {{template "not set back" "p_now"}}
        return res;
    end if;
    if p_now = 0 then -- the update may have waited for the row
        clock := (extract(epoch from clock_timestamp()) * 1000000)::bigint;
    end if;

    if p_block = 0 and p_cost <= p_capacity then
        if kind = 1 then
            select array[{out: granted => 0, law => 1, level => c.level, prev => 0, at => c.at, unit => c.unit, empty_at => c.empty_at,
                blocked_until => c.blocked_until, used => u.x, clock => clock,
                retry_at => greatest(c.blocked_until, {{template "no longer" (as "whole" "p_drain = 9007199254740991" "empty" "c.empty_at"
                    "retry" "headgate_internal.after_N(u.t, u.x - (p_capacity - p_cost), p_anchor, p_drain, p_step, 0, 0, 0, 0)")}}),
                entry => 0, status => 0, start_at => 0, step => c.step}]
            into res
            from headgate.cells c, lateral (select
                headgate_internal.drained_N(c.level, c.at, c.empty_at, greatest(clock, c.at), p_anchor, p_drain, p_step) as x,
                headgate_internal.drained_at_N(c.level, c.at, c.empty_at, greatest(clock, c.at), p_anchor, p_drain, p_step) as t offset 0) u
            where c.limit_name = p_limit and c.key = p_key and c.law = 1 and c.unit = p_unit and c.step = p_step and c.prev = 0
              and c.blocked_until <= greatest(clock, c.at) and c.at - clock <= 2000000
              and u.x > p_capacity - p_cost;
            if found then
                return res;
            end if;
        end if;

        insert into headgate.cells as c (limit_name, key, law, level, at, unit, step, empty_at)
        select p_limit, p_key, kind, p_cost, case when kind = 1 then headgate_internal.drained_at_N(0, 0, 0, clock, p_anchor, p_drain, p_step) else clock end,
            p_unit, p_step, case when kind = 1 then headgate_internal.drained_by_N(0, 0, 0, clock, p_anchor, p_drain, p_step, p_cost)
            else clock - clock % p_step + 2 * p_step end
        on conflict do nothing
        returning {{template "granted one" "c.level"}} into res;
        if found then
            return res;
        end if;
    end if;

    return headgate_internal.apply_N(array[p_limit], array[p_key], array[2::smallint],
        array[{op: verb => 1, group => 1, cell => 1, kind => kind, anchor => p_anchor, unit => p_unit, capacity => p_capacity,
            step => p_step, drain => p_drain, block => p_block, cost => p_cost, count => 1, now => p_now}], null);
end $$;

-- headgate_internal.take_sums_N: a batch of plain charges. One update grants
-- each cell all that is asked of it, or nothing: if it is there, is of the same law in the same unit
-- and step, has had nothing returned if it is a bucket, is neither blocked nor ahead of the clock, and has room for the
-- sum. Where a sum fits, its charges are granted one after another too: see TakePlain of package law.
-- Nothing is locked before the update. The rows are reached by the primary key in the order of the cells, which
-- the caller sorts, so that batches wait for each other in one order. For that order nothing may
-- be locked afterwards either. So what the update does not grant is left to the caller, with the
-- cell as it was read without a lock: that tells a refusal. Everything else comes again by
-- headgate_internal.apply_plain_N, in a transaction of its own. Cells that are not there are inserted with
-- their sums.
--
-- The clock is read before the rows are locked. If a charge that is granted had to wait for its
-- row, that clock is behind, which drains less. It is read again for what is refused, and for new
-- cells: at the first time the key may have had a cell that was swept meanwhile.
--
-- A batch that waits for a row for longer than 50 ms gives up, with nothing done.
--
-- "limit_name = any (array[..])" and "key =" leave the planner no plan but a look-up by the primary key. With two "=" it
-- may read all cells in key order; with two arrays it may look up by limit_name alone.
--
-- p_keys     the cells, each once, sorted by limit and key
-- p_rule     the number of each cell's limit among the following
-- p_limit, p_anchor, p_unit, p_capacity, p_step, p_drain
--            the limits
-- p_cost     the sum of each cell
--            Of p_rule and p_cost the first stands for all cells that have none
-- p_now      a test's time; 0: the server's clock
-- returns    rows of five numbers. The first: the clock, how many cells were granted, the second
--            clock, how many of the granted are new, 0. Then of each granted cell its number, and level, prev,
--            at and blocked_until; the new ones come last. Then two rows of each cell that was read:
--            its number, law, level, prev, at; unit, step, empty_at, blocked_until, the second clock
create or replace function headgate_internal.take_sums_N(
    p_keys text[], p_rule int[], p_limit text[], p_anchor bigint[], p_unit bigint[], p_capacity bigint[], p_step bigint[],
    p_drain bigint[], p_cost bigint[], p_now bigint)
returns bigint[] language plpgsql volatile
set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set lock_timeout = '50ms' set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    clock bigint := case when p_now > 0 then p_now else (extract(epoch from clock_timestamp()) * 1000000)::bigint end;
    n int := cardinality(p_keys);
    res bigint[];
    left_ boolean[]; -- of each cell: it is not granted, and not there
    names text[]; keys text[]; levels bigint[]; times bigint[]; made_ bigint[]; -- of new cells; the last are their numbers
    states bigint[];
    first_ bigint; i int; k int;
begin
    with done as (
        update headgate.cells c
        set law = u.law, unit = u.unit, step = u.step,
            level = case when u.law = 1 then headgate_internal.drained_N(c.level, c.at, c.empty_at, greatest(clock, c.at), u.anchor, u.drain, u.step)
                else headgate_internal.present_N(c.level, c.at, c.empty_at, greatest(clock, c.at), u.step) end + u.cost,
            prev = case when u.law = 1 then 0 else headgate_internal.before_N(c.level, c.prev, c.at, c.empty_at, greatest(clock, c.at), u.step) end,
            at = case when u.law = 1 then headgate_internal.drained_at_N(c.level, c.at, c.empty_at, greatest(clock, c.at), u.anchor, u.drain, u.step)
                else greatest(clock, c.at) end,
            empty_at = case when u.law = 1 then headgate_internal.drained_by_N(c.level, c.at, c.empty_at, greatest(clock, c.at), u.anchor, u.drain, u.step, u.cost)
                else greatest(clock, c.at) - greatest(clock, c.at) % u.step + 2 * u.step end
        from
            {{template "sum rows"}}
        where c.limit_name = any (array[u.name]) and c.key = u.key
          and (c.law = u.law and c.unit = u.unit and c.step = u.step or c.law = 0) and (u.law = 2 or c.prev = 0)
          and c.blocked_until <= greatest(clock, c.at) and c.at - clock <= 2000000
          and case when u.law = 1 then headgate_internal.drained_N(c.level, c.at, c.empty_at, greatest(clock, c.at), u.anchor, u.drain, u.step)
            else headgate_internal.present_N(c.level, c.at, c.empty_at, greatest(clock, c.at), u.step)
                + headgate_internal.carried_N(headgate_internal.before_N(c.level, c.prev, c.at, c.empty_at, greatest(clock, c.at), u.step), greatest(clock, c.at), u.step)
            end <= u.capacity - u.cost
        returning array[u.i, c.level, c.prev, c.at, c.blocked_until] as v)
    select array_agg(v) into res from done;
    {{template "not set back" "p_now"}}
    if cardinality(res) = 5 * n then
        return array[array[clock, n, clock, 0, 0]] || res;
    end if;

    first_ := clock;
    if p_now = 0 then -- the update may have waited for a row
        clock := (extract(epoch from clock_timestamp()) * 1000000)::bigint;
    end if;
    left_ := array_fill(true, array[n]);
    for k in 1 .. coalesce(array_length(res, 1), 0) loop
        left_[res[k][1]] := false;
    end loop;

    states := array(select w.v from
            {{template "sum rows"}},
        lateral (select e.* from headgate.cells e where e.limit_name = u.name and e.key = u.key offset 0) c,
        lateral (values (1, array[u.i, c.law, c.level, c.prev, c.at]), (2, array[c.unit, c.step, c.empty_at, c.blocked_until, clock])) w(o, v)
        where left_[u.i]
        order by u.i, w.o);
    for k in 1 .. coalesce(array_length(states, 1), 0) by 2 loop
        left_[states[k][1]] := false;
    end loop;

    if true = any (left_) then
        -- A new cell has room for its sum. Cells that come after it may be locked by now, so two sessions may wait for
        -- each other's new cells: the lock timeout ends that, and nothing is made. Less than the function's own would
        -- not do: who adds pages to the table and its index waits for a lock, too.
        begin
            with made as (
                insert into headgate.cells as c (limit_name, key, law, level, at, unit, step, empty_at)
                select u.name, u.key, u.law, u.cost, case when u.law = 1 then headgate_internal.drained_at_N(0, 0, 0, clock, u.anchor, u.drain, u.step) else clock end,
                    u.unit, u.step, case when u.law = 1 then headgate_internal.drained_by_N(0, 0, 0, clock, u.anchor, u.drain, u.step, u.cost)
                    else clock - clock % u.step + 2 * u.step end
                from
                    {{template "sum rows"}}
                where left_[u.i]
                order by u.i
                on conflict do nothing
                returning c.limit_name, c.key, c.level, c.at)
            select array_agg(limit_name), array_agg(key), array_agg(level), array_agg(at) into names, keys, levels, times from made;
        exception when lock_not_available then
            null;
        end;
        for i in 1 .. n loop -- both are in the order of the cells
            exit when coalesce(cardinality(made_), 0) >= coalesce(cardinality(names), 0);
            k := coalesce(cardinality(made_), 0) + 1;
            if left_[i] and p_keys[i] = keys[k] and p_limit[coalesce(p_rule[i], p_rule[1])] = names[k] then
                made_ := made_ || i::bigint;
            end if;
        end loop;
        if names is not null then
            res := coalesce(res, '{}') || array(select array[x.i, x.level, 0, x.at, 0]
                from unnest(made_, levels, times) with ordinality x(i, level, at, o) order by x.o);
        end if;
    end if;
    return array[array[first_, coalesce(array_length(res, 1), 0), clock, coalesce(cardinality(made_), 0), 0]] || coalesce(res, '{}') || coalesce(states, '{}');
end $$;

-- headgate_internal.take_sums_or_nothing_N is for a batch in which a request has several charges: all of
-- them are granted, or none. It returns an empty array if one of the cells was not granted its sum. What
-- was granted until then is undone with a subtransaction: an error that reached the caller would be a line in the
-- server's log for each refusal.
create or replace function headgate_internal.take_sums_or_nothing_N(
    p_keys text[], p_rule int[], p_limit text[], p_anchor bigint[], p_unit bigint[], p_capacity bigint[], p_step bigint[],
    p_drain bigint[], p_cost bigint[], p_now bigint)
returns bigint[] language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    rows_ bigint[];
begin -- a subtransaction: what is declared above is computed before it
    rows_ := headgate_internal.take_sums_N(p_keys, p_rule, p_limit, p_anchor, p_unit, p_capacity, p_step, p_drain, p_cost, p_now);
    if rows_[1][2] < cardinality(p_keys) then -- how many were granted
        raise exception using errcode = 'HG001';
    end if;
    return rows_;
exception when sqlstate 'HG001' then
    return '{}';
end $$;
