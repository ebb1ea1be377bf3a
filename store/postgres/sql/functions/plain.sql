-- headgate.drained_N and headgate.drained_at_N are bucket of package law, for the
-- anchors that need no boundaries: the credits in use at now, and the time that
-- they hold for. headgate.drained_by_N is after, of a level that the capacity
-- bounds: so that nothing can pass 2^53. They are short enough to be made part of
-- the statement that calls them, which a test looks at.
create or replace function headgate.drained_N(level bigint, at bigint, empty_at bigint, now bigint, anchor bigint, drain bigint, step bigint)
returns bigint language sql immutable as $$
    select case when now >= empty_at then 0 else {{template "drained" (as "level" "level" "at" "at" "now" "now")}} end
$$;

create or replace function headgate.drained_at_N(level bigint, at bigint, empty_at bigint, now bigint, anchor bigint, drain bigint, step bigint)
returns bigint language sql immutable as $$
    select {{template "drained at" (as "level" "level" "at" "at" "now" "now" "empty" "now >= empty_at")}}
$$;

create or replace function headgate.drained_by_N(level bigint, at bigint, empty_at bigint, now bigint, anchor bigint, drain bigint, step bigint, cost bigint)
returns bigint language sql immutable as $$
    select step * ((case when now >= empty_at then 0 else {{template "drained" (as "level" "level" "at" "at" "now" "now")}} end + cost + drain - 1) / drain)
        + case when anchor = 1 then greatest(at - at % step, now - now % step)
        else {{template "drained at" (as "level" "level" "at" "at" "now" "now" "empty" "now >= empty_at")}} end
$$;

-- headgate.take_plain_N: a batch of requests of one plain charge each, on cells
-- that differ: most batches of callers who have been merged. Those whose cell is
-- there, is of the bucket law in the same unit and step, has had nothing returned, is
-- neither blocked nor ahead of the clock, and has room, are granted by one update; the rest is decided by
-- headgate.apply_N, in the same call.
--
-- One statement locks the rows, in the order of p_limits, p_keys, which the caller
-- sorts, and the next one updates them by their place in the table (ctid), which
-- cannot change while they are locked. So neither has a plan that depends on how
-- large the planner takes the table for. They must be two: one statement that joins
-- by ctid misses the rows that another session has just updated. The clock is read
-- between them.
--
-- p_now        test times; 0: the server's clock
-- p_bounded    limits have a maximum of keys, as far as the caller knows. Then a batch in
--              which cells are missing goes to headgate.apply_N as a whole: what
--              headgate.make_room_N locks comes before cells
-- returns      which were granted, and for each of them clock, level, prev, at,
--              empty_at, blocked_until; which are left, and what headgate.apply_N
--              returns for them
create or replace function headgate.take_plain_N(
    p_limits text[], p_keys text[], p_anchor bigint[], p_unit bigint[], p_capacity bigint[], p_step bigint[], p_drain bigint[],
    p_block bigint[], p_cost bigint[], p_now bigint[], p_bounded boolean,
    out granted int[], out clock bigint[], out level bigint[], out prev bigint[], out at bigint[],
    out empty_at bigint[], out blocked_until bigint[], out rest int[], out outcomes bigint[])
language plpgsql volatile
set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    tids tid[];
    store_clock bigint;
    making boolean := false; -- cells are to be made while limits have a maximum
begin
    if p_bounded then
        making := exists (select from unnest(p_limits, p_keys) u(l, k)
            where (select true from headgate.cells e where e.limit_name = u.l and e.key = u.k) is null);
    end if;
    if not making then
        tids := array(select (select e.ctid from headgate.cells e where e.limit_name = u.l and e.key = u.k for no key update)
            from unnest(p_limits, p_keys) u(l, k));
        store_clock := (extract(epoch from clock_timestamp()) * 1000000)::bigint;

        with done as (
            update headgate.cells c
            set level = headgate.drained_N(c.level, c.at, c.empty_at, greatest(u.now, c.at), u.anchor, u.drain, u.step) + u.cost,
                at = headgate.drained_at_N(c.level, c.at, c.empty_at, greatest(u.now, c.at), u.anchor, u.drain, u.step),
                empty_at = headgate.drained_by_N(c.level, c.at, c.empty_at, greatest(u.now, c.at), u.anchor, u.drain, u.step, u.cost)
            from (select x.*, case when x.test > 0 then x.test else store_clock end as now
                from unnest(tids, p_anchor, p_unit, p_capacity, p_step, p_drain, p_cost, p_now)
                    with ordinality x(row, anchor, unit, capacity, step, drain, cost, test, i)) u
            where c.ctid = u.row and c.law = 1 and c.unit = u.unit and c.step = u.step and c.prev = 0
              and c.blocked_until <= greatest(u.now, c.at) and c.at - u.now <= 2000000
              and headgate.drained_N(c.level, c.at, c.empty_at, greatest(u.now, c.at), u.anchor, u.drain, u.step) <= u.capacity - u.cost
            returning u.i, case when u.test > 0 then u.test else greatest(u.now, c.at) end as clock,
                c.level, c.prev, c.at, c.empty_at, c.blocked_until)
        select array_agg(i::int), array_agg(clock), array_agg(level), array_agg(prev), array_agg(at), array_agg(empty_at), array_agg(blocked_until)
        into granted, clock, level, prev, at, empty_at, blocked_until from done;
    end if;

    if coalesce(cardinality(granted), 0) < cardinality(p_keys) then
        rest := array(select i from generate_series(1, cardinality(p_keys)) i except select unnest(granted) order by 1);
        outcomes := headgate.apply_N(
            array(select p_limits[i] from unnest(rest) with ordinality r(i, n) order by n),
            array(select p_keys[i] from unnest(rest) with ordinality r(i, n) order by n),
            array_fill(2::smallint, array[cardinality(rest)]),
            array(select v from unnest(rest) with ordinality r(i, n),
                unnest(array[{op: verb => 1, group => n, cell => n, kind => 1, anchor => p_anchor[i], unit => p_unit[i],
                    capacity => p_capacity[i], step => p_step[i], drain => p_drain[i], block => p_block[i],
                    cost => p_cost[i], count => 1, now => p_now[i]}]) with ordinality w(v, o) order by n, o),
            null);
    end if;
end $$;
