-- Requests with an id: each is charged once however often it is asked, and can be
-- extended and settled. What is remembered of them, and how, is said in 001_cells.sql.

-- headgate_internal.lock_ids_N locks the rows of some ids in headgate.admissions. The rows of several cells are locked in the order
-- of id and home. The rows of one cell are found by p_generations, which has the cell's generation for each id; their cells
-- are locked already, so only a sweep competes for them.
create or replace function headgate_internal.lock_ids_N(p_ids text[], p_generations bigint[]) returns void language plpgsql volatile as $$
begin
    perform from (select distinct i.id collate "C" as id from unnest(p_ids) i(id) where i.id <> '' order by 1 offset 0) i
    cross join lateral (select from headgate.admissions a where a.id = i.id and a.home < 0 order by a.home for no key update) a;
    perform from (select i.id collate "C" as id, i.generation from unnest(p_ids, p_generations) i(id, generation) where i.id <> '' offset 0) i
    cross join lateral (select from headgate.admissions a where a.id = i.id and a.home = i.generation for no key update) a;
end $$;

-- headgate_internal.put_N puts values into places of a list.
create or replace function headgate_internal.put_N(list bigint[], places int[], vals bigint[]) returns bigint[] language plpgsql immutable as $$
begin
    for k in 1 .. cardinality(places) loop
        list[places[k]] := vals[k];
    end loop;
    return list;
end $$;

-- headgate_internal.apply_once_N is headgate_internal.apply_N for a batch of which some ops have an id:
-- applyOnce, applySettle and applyExtend of package law. It locks all cells, looks up what
-- they remember, lets headgate_internal.apply_N decide about the rest, and puts down what was
-- admitted, settled and extended. It locks what is remembered of the ids before it looks, so that a
-- batch of several parts locks that in order too.
--
-- p_prints  for each op the print of its request, if that takes and has an id
-- p_parts   the last op of each part of the batch, in order. No id is in two requests
--           of one part, and what resets stands apart: so what is remembered can be
--           looked up, and put down, for a whole part at once
-- The others and what is returned are those of headgate_internal.apply_N; of an outcome the
-- status may be 2 replayed, 3 id reused, 4 unknown id, 5 settled otherwise too.
create or replace function headgate_internal.apply_once_N(
    p_limits text[], p_keys text[], p_modes smallint[], p_ops bigint[], p_notes text[], p_prints bigint[], p_parts int[])
returns bigint[] language plpgsql volatile
set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set search_path = pg_catalog, pg_temp
as $$
declare
    n int := cardinality(p_ops) / {op.width};
    store_clock bigint;
    res bigint[] := array_fill(0::bigint, array[n * {out.width}]);
    part bigint[]; cells bigint[];
    -- of each op
    known boolean[] := array_fill(false, array[n]);
    fault int[] := array_fill(0, array[n]);
    actual bigint[] := array_fill(0::bigint, array[n]); -- Settle: the cost
    changed boolean[] := known; -- Settle: the limit is not what it was
    held bigint[]; -- Extend: the credits charged in all
    homes bigint[]; places int[]; -- Settle, Extend: the row and the place in it
    -- of the part
    first int := 1; last int;
    rest int[]; -- the ops to be decided
    extended int[]; -- those that extend, also if they need nothing more
    takes boolean; settles boolean; late boolean;
    a record; taken record; i int; j int; b int; e int; o int; r int; verb int; wrong int;
begin
    -- What settles makes its cell too: else that might be there when the ops that are left lock it, after others.
    perform headgate_internal.apply_N(p_limits, p_keys, array_replace(p_modes, 1::smallint, 2::smallint), '{}', null);
    perform headgate_internal.lock_ids_N(p_notes, array(select c.generation from generate_series(1, n) u(k)
        left join lateral (select e.generation from headgate.cells e
            where e.limit_name = p_limits[p_ops[(u.k - 1) * {op.width} + {op.cell}]] and e.key = p_keys[p_ops[(u.k - 1) * {op.width} + {op.cell}]] offset 0) c on true
        order by u.k));
    store_clock := (extract(epoch from clock_timestamp()) * 1000000)::bigint;
    for k in 1 .. n loop
        if p_ops[(k - 1) * {op.width} + {op.now}] = 0 then
            p_ops[(k - 1) * {op.width} + {op.now}] := store_clock; -- one clock for all parts
        end if;
    end loop;

    foreach last in array p_parts loop
        for a in
            select u.k, m.home, m.i, m.prints[m.i] as print, m.rules[m.i : m.i] as rule, m.costs[m.i] as cost, m.settled[m.i] as settled,
                array[{out: granted => m.outcomes[m.i][{kept.granted}], law => m.rules[m.i][{terms.kind}], level => m.outcomes[m.i][{kept.level}],
                    prev => m.outcomes[m.i][{kept.prev}], at => m.outcomes[m.i][{kept.at}], unit => m.rules[m.i][{terms.unit}],
                    empty_at => m.outcomes[m.i][{kept.empty_at}], blocked_until => m.outcomes[m.i][{kept.blocked_until}],
                    used => m.outcomes[m.i][{kept.used}], entry => m.outcomes[m.i][{kept.entry}], start_at => m.outcomes[m.i][{kept.start_at}],
                    step => m.rules[m.i][{terms.step}]}] as outcome,
                coalesce(m.extensions[m.i][{extension.cost}], 0) as last_cost, m.extensions[m.i][{extension.level}] as last_level,
                m.extensions[m.i][{extension.at}] as last_at, m.extensions[m.i][{extension.prev}] as last_prev
            from generate_series(first, last) u(k)
            cross join lateral (select e.generation from headgate.cells e
                where e.limit_name = p_limits[p_ops[(u.k - 1) * {op.width} + {op.cell}]] and e.key = p_keys[p_ops[(u.k - 1) * {op.width} + {op.cell}]] offset 0) c
            cross join lateral (select e.*, array_position(e.cells, c.generation) as i from (
                {{template "rows of an id" (as "id" "p_notes[u.k]" "generation" "c.generation")}}) e offset 0) m
            where p_notes[u.k] <> '' and m.keeps[m.i] - p_ops[(u.k - 1) * {op.width} + {op.now}] > 0
              and (p_ops[(u.k - 1) * {op.width} + {op.verb}] = 1 and m.settled[m.i] <> -2 or p_ops[(u.k - 1) * {op.width} + {op.verb}] in (4, 8))
        loop -- what was cancelled is not admitted any more
            o := (a.k - 1) * {op.width}; r := (a.k - 1) * {out.width};
            known[a.k] := true; homes[a.k] := a.home; places[a.k] := a.i;
            if p_ops[o + {op.verb}] = 1 then
                if a.print <> p_prints[a.k] then
                    fault[a.k] := 3;
                end if;
                for g in 1 .. {out.width} loop
                    res[r + g] := a.outcome[g];
                end loop;
                res[r + {out.clock}] := p_ops[o + {op.now}]; res[r + {out.status}] := 2;
            elsif a.settled not in (-1, p_ops[o + {op.cost}]) or a.settled <> -1 and p_ops[o + {op.verb}] = 8 then
                fault[a.k] := 5;
            elsif p_ops[o + {op.verb}] = 8 and a.outcome[{out.unit}] <> p_ops[o + {op.unit}] then
                fault[a.k] := 3; -- the costs are in other credits
            elsif p_ops[o + {op.verb}] = 8 then
                held[a.k] := a.cost;
                p_ops[o + {op.cost}] := p_ops[o + {op.cost}] - a.cost;
                if p_ops[o + {op.cost}] > 0 then -- takes the difference
                    p_ops[o + {op.how}] := 3; p_ops[o + {op.entry}] := a.outcome[{out.entry}];
                else
                    for g in 1 .. {out.width} loop
                        res[r + g] := a.outcome[g];
                    end loop;
                    res[r + {out.clock}] := p_ops[o + {op.now}]; res[r + {out.status}] := 2;
                end if;
            else
                actual[a.k] := p_ops[o + {op.cost}];
                p_ops[o + {op.cost}] := a.cost - greatest(actual[a.k], 0);
                changed[a.k] := a.settled = -1 and a.rule <> array[p_ops[o + {op.kind} : o + {op.drain}]];
                p_ops[o + {op.count}] := case when a.settled = -1 and not changed[a.k] then 1 else 0 end;
                p_ops[o + {op.at}] := a.outcome[{out.at}]; p_ops[o + {op.level}] := a.outcome[{out.level}];
                p_ops[o + {op.returned}] := a.outcome[{out.prev}]; p_ops[o + {op.entry}] := a.outcome[{out.entry}];
                p_ops[o + {settle.last_cost}] := a.last_cost;
                if p_ops[o + {settle.last_cost}] > 0 then
                    p_ops[o + {settle.first_at}] := p_ops[o + {op.at}]; p_ops[o + {settle.first_level}] := p_ops[o + {op.level}];
                    p_ops[o + {settle.first_returned}] := p_ops[o + {op.returned}];
                    p_ops[o + {op.at}] := a.last_at; p_ops[o + {op.level}] := a.last_level;
                    p_ops[o + {op.returned}] := a.last_prev;
                end if;
            end if;
        end loop;

        rest := '{}'; extended := '{}'; takes := false; settles := false;
        i := first;
        while i <= last loop
            verb := p_ops[(i - 1) * {op.width} + {op.verb}];
            j := i;
            while j < last and p_ops[j * {op.width} + {op.group}] = p_ops[(i - 1) * {op.width} + {op.group}] loop
                j := j + 1;
            end loop;
            b := i; e := j;
            if p_ops[(j - 1) * {op.width} + {op.alternative}] > 1 then -- of the alternatives, the one that is known: knownAlternative of package law
                select coalesce(min(u.k), i), coalesce(max(u.k), j) into b, e from generate_series(i, j) u(k)
                where p_ops[(u.k - 1) * {op.width} + {op.alternative}] = (select p_ops[(v.k - 1) * {op.width} + {op.alternative}]
                    from generate_series(i, j) v(k) where known[v.k] and fault[v.k] = 0 order by v.k limit 1);
            end if;
            wrong := 0; -- what is wrong with one is so with all of the request
            for k in b .. e loop
                wrong := case when verb in (4, 8) and not known[k] then 4 else fault[k] end;
                exit when wrong > 0;
            end loop;
            -- A request that is late, or was, needs a start in common: all of it, or nothing.
            late := p_ops[(i - 1) * {op.width} + {op.how}] = 2;
            for k in b .. e loop
                late := late or known[k] and res[(k - 1) * {out.width} + {out.start_at}] > 0;
            end loop;
            if verb = 1 and late and false = any (known[b : e]) then
                for k in b .. e loop
                    known[k] := false;
                end loop;
            end if;
            for k in i .. j loop
                if wrong > 0 then
                    res[(k - 1) * {out.width} + {out.status}] := wrong;
                elsif k < b or k > e then
                    for g in 1 .. {out.width} loop
                        res[(k - 1) * {out.width} + g] := 0;
                    end loop;
                elsif verb = 8 then
                    extended := extended || k;
                    if p_ops[(k - 1) * {op.width} + {op.how}] = 3 then
                        p_ops[(k - 1) * {op.width} + {op.verb}] := 1;
                        rest := rest || k;
                    end if;
                elsif verb <> 1 or not known[k] then
                    rest := rest || k;
                    takes := takes or verb = 1 and p_notes[k] <> '';
                    settles := settles or verb = 4;
                end if;
            end loop;
            i := j + 1;
        end loop;
        first := last + 1;
        continue when rest = '{}' and extended = '{}';

        if cardinality(rest) = n then
            res := headgate_internal.apply_N(p_limits, p_keys, p_modes, p_ops, p_notes);
        elsif rest <> '{}' then
            cells := array(select distinct p_ops[(k - 1) * {op.width} + {op.cell}] from unnest(rest) k order by 1);
            part := headgate_internal.apply_N(
                array(select p_limits[c.c] from unnest(cells) with ordinality c(c, i) order by c.i),
                array(select p_keys[c.c] from unnest(cells) with ordinality c(c, i) order by c.i),
                array(select p_modes[c.c] from unnest(cells) with ordinality c(c, i) order by c.i),
                array(select case when w.o = {op.cell} then array_position(cells, w.v) else w.v end
                    from unnest(rest) with ordinality u(k, i),
                        unnest(p_ops[(u.k - 1) * {op.width} + {op.verb} : u.k * {op.width}]) with ordinality w(v, o) order by u.i, w.o),
                array(select p_notes[u.k] from unnest(rest) with ordinality u(k, i) order by u.i));
            for k in 1 .. cardinality(rest) loop
                r := (rest[k] - 1) * {out.width};
                for g in 1 .. {out.width} loop
                    res[r + g] := part[(k - 1) * {out.width} + g];
                end loop;
            end loop;
        end if;

        if takes then
            for taken in
                select array_agg(x.k order by x.k) as ops
                from (select u.k, bool_and(res[(u.k - 1) * {out.width} + {out.granted}] = p_ops[(u.k - 1) * {op.width} + {op.count}]) over (partition by p_ops[(u.k - 1) * {op.width} + {op.group}], p_ops[(u.k - 1) * {op.width} + {op.alternative}]) as admitted
                    from unnest(rest) u(k) where p_ops[(u.k - 1) * {op.width} + {op.verb}] = 1 and p_ops[(u.k - 1) * {op.width} + {op.how}] <> 3 and p_notes[u.k] <> '') x
                where x.admitted
                group by p_ops[(x.k - 1) * {op.width} + {op.group}], p_ops[(x.k - 1) * {op.width} + {op.alternative}]
            loop
                perform headgate_internal.remember_N(p_limits, p_keys, p_ops, p_notes[taken.ops[1]], p_prints[taken.ops[1]], res, taken.ops);
            end loop;
        end if;
        if extended <> '{}' then
            for a in -- all charges of those that were admitted are remembered for longer
                select x.* from (select u.k, u.i, (u.k - 1) * {op.width} as o, (u.k - 1) * {out.width} as r,
                        case when p_ops[(u.k - 1) * {op.width} + {op.how}] = 3 then p_ops[(u.k - 1) * {op.width} + {op.cost}] else 0 end as more,
                        bool_and(p_ops[(u.k - 1) * {op.width} + {op.how}] <> 3 or res[(u.k - 1) * {out.width} + {out.granted}] = 1) over (partition by p_ops[(u.k - 1) * {op.width} + {op.group}]) as admitted
                    from unnest(extended) with ordinality u(k, i)) x
                where x.admitted order by x.i
            loop
                held[a.k] := headgate_internal.remember_more_N(p_notes[a.k], homes[a.k], places[a.k], a.more, p_ops[a.o + 1 : a.o + {op.width}], res[a.r + 1 : a.r + {out.width}]);
                update headgate.cells e set ids_until = greatest(e.ids_until, p_ops[a.o + {op.now}] + p_ops[a.o + {op.ttl}])
                where e.limit_name = p_limits[p_ops[a.o + {op.cell}]] and e.key = p_keys[p_ops[a.o + {op.cell}]];
            end loop;
            foreach j in array extended loop
                if res[(j - 1) * {out.width} + {out.status}] <> 1 then -- not stale
                    res[(j - 1) * {out.width} + {out.granted}] := held[j];
                end if;
            end loop;
        end if;
        foreach j in array rest loop
            if changed[j] and res[(j - 1) * {out.width} + {out.status}] = 2 then -- it is settled, and nothing is corrected
                res[(j - 1) * {out.width} + {out.status}] := 0;
            end if;
        end loop;
        if settles then -- but not again, and not if the calendar was stale
            update headgate.admissions e set settled = headgate_internal.put_N(e.settled, x.places, x.costs)
            from (select p_notes[u.k] as id, homes[u.k] as home, array_agg(places[u.k]) as places, array_agg(actual[u.k]) as costs
                from unnest(rest) u(k)
                where p_ops[(u.k - 1) * {op.width} + {op.verb}] = 4 and res[(u.k - 1) * {out.width} + {out.status}] = 0
                group by 1, 2) x
            where e.id = any (array[x.id]) and e.home = x.home;
        end if;
    end loop;
    return res;
end $$;

-- headgate_internal.remember_N puts down the charges of a request that was admitted: p_ops_of are its ops, or some of them. What
-- is there of a cell under the id, cancelled or forgotten, is replaced; the other cells make a row.
create or replace function headgate_internal.remember_N(
    p_limits text[], p_keys text[], p_ops bigint[], p_id text, p_print bigint, p_res bigint[], p_ops_of int[])
returns void language plpgsql volatile as $$
declare
    o int; r int; until bigint; own bigint; found_ record; rule bigint[]; outcome bigint[];
    fresh headgate.admissions;
begin
    foreach o in array p_ops_of loop
        r := (o - 1) * {out.width}; o := (o - 1) * {op.width};
        until := greatest(p_ops[o + {op.now}], p_res[r + {out.start_at}]) + p_ops[o + {op.ttl}];
        rule := array[p_ops[o + {op.kind} : o + {op.drain}]];
        outcome := array[array[{kept: granted => p_res[r + {out.granted}], level => p_res[r + {out.level}], prev => p_res[r + {out.prev}],
            at => p_res[r + {out.at}], empty_at => p_res[r + {out.empty_at}], blocked_until => p_res[r + {out.blocked_until}],
            used => p_res[r + {out.used}], entry => p_res[r + {out.entry}], start_at => p_res[r + {out.start_at}]}]];
        update headgate.cells e set ids_until = greatest(e.ids_until, until)
        where e.limit_name = p_limits[p_ops[o + {op.cell}]] and e.key = p_keys[p_ops[o + {op.cell}]]
        returning e.generation into own;
        select e.home, array_position(e.cells, own) as i into found_ from (
            {{template "rows of an id" (as "id" "p_id" "generation" "own")}}) e
        where array_position(e.cells, own) is not null;
        if found then
            update headgate.admissions e
            set prints[found_.i] = p_print, keeps[found_.i] = until, keep_until = greatest(e.keep_until, until),
                costs[found_.i] = p_ops[o + {op.cost}] * p_ops[o + {op.count}], settled[found_.i] = -1,
                rules[found_.i : found_.i] = rule, outcomes[found_.i : found_.i] = outcome,
                extensions = case when e.extensions is null then null else headgate_internal.extended_N(e.extensions, found_.i, array[0, 0, 0, 0]) end
            where e.id = p_id and e.home = found_.home;
        else
            fresh.cells := fresh.cells || own; fresh.prints := fresh.prints || p_print; fresh.keeps := fresh.keeps || until;
            fresh.keep_until := greatest(fresh.keep_until, until); fresh.costs := fresh.costs || p_ops[o + {op.cost}] * p_ops[o + {op.count}];
            fresh.settled := fresh.settled || -1::bigint; fresh.rules := fresh.rules || rule; fresh.outcomes := fresh.outcomes || outcome;
        end if;
    end loop;
    if fresh.cells is not null then
        fresh.id := p_id; fresh.home := case when cardinality(fresh.cells) > 1 then -fresh.cells[1] else fresh.cells[1] end;
        insert into headgate.admissions values (fresh.*);
    end if;
end $$;

-- headgate_internal.remember_more_N is extend of package law: it puts down that more credits were charged by an op with this outcome,
-- or that the charge is to be remembered for longer. It returns what is charged in all.
create or replace function headgate_internal.remember_more_N(p_id text, p_home bigint, i int, more bigint, op bigint[], res bigint[])
returns bigint language plpgsql volatile as $$
declare
    m headgate.admissions; was bigint; until bigint := op[{op.now}] + op[{op.ttl}];
begin
    select * into m from headgate.admissions e where e.id = p_id and e.home = p_home;
    m.keeps[i] := greatest(m.keeps[i], until);
    if more > 0 then
        m.costs[i] := m.costs[i] + more;
        if m.rules[i : i] <> array[op[{op.kind} : {op.drain}]] then
            m.rules[i][{terms.capacity}] := 0; -- equal to none
        end if;
        if op[{op.kind}] = 3 then
            m.outcomes[i][{kept.entry}] := res[{out.entry}];
        else
            if op[{op.kind}] = 1 and (op[{op.anchor}] = 2 or op[{op.drain}] = 9007199254740991) then
                -- Nothing drains before its end, so what was charged first may seem to have made as high a level.
                was := coalesce(m.extensions[i][{extension.cost}], 0);
                m.outcomes[i][{kept.level}] := least(m.outcomes[i][{kept.level}] + was, 9007199254740991);
            end if;
            m.extensions := headgate_internal.extended_N(coalesce(m.extensions, array_fill(0::bigint, array[cardinality(m.cells), 4])), i,
                array[{extension: cost => more, level => res[{out.level}], at => res[{out.at}], prev => res[{out.prev}]}]);
        end if;
    end if;
    update headgate.admissions e
    set keep_until = greatest(e.keep_until, until), keeps = m.keeps, costs = m.costs, rules = m.rules, outcomes = m.outcomes, extensions = m.extensions
    where e.id = p_id and e.home = p_home;
    return m.costs[i];
end $$;

-- headgate_internal.extended_N puts the numbers of an extension into their place.
create or replace function headgate_internal.extended_N(extensions bigint[], i int, numbers bigint[]) returns bigint[] language plpgsql immutable as $$
begin
    for k in 1 .. 4 loop
        extensions[i][k] := numbers[k];
    end loop;
    return extensions;
end $$;
