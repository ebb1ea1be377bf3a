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

-- headgate.take_plain_N: a batch of which most requests are plain charges: most batches of
-- callers who have been merged. A cell is granted all that is asked of it, or nothing, by one
-- update: if it is there, is of the bucket law in the same unit and step, has had nothing
-- returned, is neither blocked nor ahead of the clock, and has room for the sum. Cells that
-- are not there are made before, but not where limits have a maximum of keys. The rest is
-- decided by headgate.apply_N, one request after another, in the same call. Where a sum fits,
-- its charges are granted one after another too: see TakePlain of package law.
--
-- One statement locks the rows, and makes those that are missing, in the order of the cells,
-- which the caller sorts, and another updates them by their place in the table (ctid), which cannot change while they
-- are locked. So neither has a plan that depends on how large the planner takes the table
-- for. They must be two: one statement that joins by ctid misses the rows that another
-- session has just updated. The clock is read between them.
--
-- A request of several charges is admitted if each of its cells has room for the sum of the
-- cell. That is tested before the update. If a cell has not, the requests that name it are
-- left for headgate.apply_N, and so is each later request on a cell of one of those: so each
-- cell is charged in the order of the batch.
--
-- p_keys     the cells, each once, sorted by limit and key
-- p_rule     the number of each cell's limit among the following
-- p_limit, p_anchor, p_unit, p_capacity, p_step, p_drain, p_block
--            the limits. The unit is 0 where no charge is plain
-- p_cost     the sum of each cell's plain charges
-- p_now      a test's times; 0: the server's clock
--            Of p_rule, p_cost and p_now the first stands for all cells that have none
-- p_plain    how many cells have plain charges
-- p_cell, p_group, p_each, p_count
--            the plain charges in the order of the batch: the numbers of the cell and of the
--            request, cost and count. What has a count above 1 may be granted in part.
--            Null: each cell has one, of a count of 1
-- p_coupled  a request has charges on several cells. p_cost is whole then
-- p_modes    the mode of each cell for what follows; -1: nothing is on that cell
-- p_more, p_notes, p_prints, p_parts
--            what is left, for headgate.apply_N, or for headgate.once_plain_N if there are
--            prints. On a cell it comes after all plain charges. Null: nothing
-- returns    the clock; which cells were granted, and level, at and blocked_until of each;
--            which plain charges were not granted by the update; and the outcomes of
--            those, and then of what is left
create or replace function headgate.take_plain_N(
    p_keys text[], p_rule int[], p_limit text[], p_anchor bigint[], p_unit bigint[], p_capacity bigint[], p_step bigint[],
    p_drain bigint[], p_block bigint[], p_cost bigint[], p_now bigint[], p_plain int,
    p_cell int[], p_group int[], p_each bigint[], p_count bigint[], p_coupled boolean,
    p_modes smallint[], p_more bigint[], p_notes text[], p_prints bigint[], p_parts int[],
    out store_clock bigint, out granted int[], out level bigint[], out at bigint[], out blocked_until bigint[],
    out rest int[], out outcomes bigint[])
language plpgsql volatile
set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    n int := cardinality(p_keys);
    places tid[];
    full_ boolean[]; -- of each cell: what comes next on it is not granted by the update
    found_ int[]; left_ boolean; i int; j int;
begin
    rest := '{}';
    places := array(select coalesce((select e.ctid from headgate.cells e where e.limit_name = u.name and e.key = u.key for no key update),
            case when u.key is not null then headgate.make_cell_N(u.name, u.key)::tid end)
        from (select case when x.mode = 0 and p_unit[coalesce(x.rule, p_rule[1])] = 0 then null else x.key end as key, p_limit[coalesce(x.rule, p_rule[1])] as name
            from unnest(p_keys, p_rule, p_modes) x(key, rule, mode) offset 0) u);
    store_clock := (extract(epoch from clock_timestamp()) * 1000000)::bigint;

    if p_coupled then
        found_ := array(select u.i::int from
            {{template "plain rows"}}
            where u.unit > 0 and (select true from headgate.cells c
                where {{template "plain fits"}}) is null);
        if found_ <> '{}' then
            full_ := array_fill(false, array[n]);
            foreach i in array found_ loop
                full_[i] := true;
            end loop;
            i := 1;
            while i <= cardinality(p_cell) loop
                j := i;
                left_ := full_[p_cell[i]];
                while p_group[j + 1] = p_group[i] loop
                    j := j + 1;
                    left_ := left_ or full_[p_cell[j]];
                end loop;
                for k in i .. j loop
                    exit when not left_;
                    rest := rest || k;
                    full_[p_cell[k]] := true;
                    p_cost[p_cell[k]] := p_cost[p_cell[k]] - p_each[k] * p_count[k];
                    if p_cost[p_cell[k]] = 0 then
                        places[p_cell[k]] := null;
                    end if;
                end loop;
                i := j + 1;
            end loop;
        end if;
    end if;

    with done as (
        update headgate.cells c
        set
            {{template "charge sum" (as "now" "u.now")}}
        from
            {{template "plain rows"}}
        where {{template "plain fits"}}
        returning u.i, c.level, c.at, c.blocked_until)
    select array_agg(i::int), array_agg(level), array_agg(at), array_agg(blocked_until)
    into granted, level, at, blocked_until from done;

    if not p_coupled and coalesce(cardinality(granted), 0) < p_plain then
        full_ := array_fill(true, array[n]);
        foreach i in array coalesce(granted, '{}') loop
            full_[i] := false;
        end loop;
        if p_cell is null then
            rest := array(select u.i from unnest(full_) with ordinality u(left_, i) where u.left_ order by 1);
        else
            rest := array(select u.i from unnest(p_cell) with ordinality u(cell, i) where full_[u.cell] order by 1);
        end if;
    end if;
    if rest = '{}' and p_more is null then
        return;
    end if;

    -- The ops for headgate.apply_N, and their cells.
    if p_cell is null then
        p_cell := array(select generate_series(1, n));
        p_group := p_cell;
        p_each := array(select coalesce(x.sum, p_cost[1]) from unnest(p_cell, p_cost) x(cell, sum));
        p_count := array_fill(1::bigint, array[n]);
    end if;
    found_ := array(select p_cell[x.k] from unnest(rest) x(k)
        union select x.i from unnest(p_modes) with ordinality x(mode, i) where x.mode >= 0 order by 1);
    p_more := array(select w.v from unnest(rest) with ordinality r(k, place),
            lateral (select p_cell[r.k] as cell, coalesce(p_rule[p_cell[r.k]], p_rule[1]) as rule offset 0) x,
            unnest(array[{op: verb => 1, group => p_group[r.k], cell => array_position(found_, x.cell), kind => 1,
                anchor => p_anchor[x.rule], unit => p_unit[x.rule], capacity => p_capacity[x.rule], step => p_step[x.rule],
                drain => p_drain[x.rule], block => p_block[x.rule], cost => p_each[r.k], count => p_count[r.k],
                how => (p_count[r.k] > 1)::int, now => coalesce(p_now[x.cell], p_now[1])}]) with ordinality w(v, o)
            order by r.place, w.o)
        || array(select case when (x.o - 1) % {op.width} + 1 = {op.cell} then array_position(found_, x.v::int) else x.v end
            from unnest(p_more) with ordinality x(v, o) order by x.o);
    p_limit := array(select p_limit[coalesce(p_rule[x.c], p_rule[1])] from unnest(found_) with ordinality x(c, i) order by x.i);
    p_keys := array(select p_keys[x.c] from unnest(found_) with ordinality x(c, i) order by x.i);
    p_cell := array(select p_cell[x.k] from unnest(rest) x(k));
    p_modes := array(select case when x.c = any (p_cell) then 2 else p_modes[x.c] end
        from unnest(found_) with ordinality x(c, i) order by x.i);
    n := cardinality(rest);
    if p_notes is not null then
        p_notes := array_fill(''::text, array[n]) || p_notes;
    end if;
    if p_prints is null then
        outcomes := headgate.apply_N(p_limit, p_keys, p_modes, p_more, p_notes);
    else
        outcomes := headgate.once_plain_N(p_limit, p_keys, p_modes, p_more, p_notes, array_fill(0::bigint, array[n]) || p_prints,
            case when n > 0 then array[n] end || array(select x.k + n from unnest(p_parts) with ordinality x(k, i) order by x.i));
    end if;
end $$;
