-- Requests with an id: each is charged once however often it is asked, and can be
-- extended and settled.

-- headgate.apply_once_N is headgate.apply_N for a batch of which some ops have an id:
-- applyOnce, applySettle and applyExtend of package law. It locks all cells, looks up what
-- they remember, lets headgate.apply_N decide about the rest, and puts down what was
-- admitted, settled and extended.
--
-- p_prints  for each op the print of its request, if that takes and has an id
-- p_parts   the last op of each part of the batch, in order. No id is in two requests
--           of one part, and what resets stands apart: so what is remembered can be
--           looked up, and put down, for a whole part at once
-- The others and what is returned are those of headgate.apply_N; of an outcome the
-- status may be 2 replayed, 3 id reused, 4 unknown id, 5 settled otherwise too.
create or replace function headgate.apply_once_N(
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
    -- of the part
    first int := 1; last int;
    rest int[]; -- the ops to be decided
    extended int[]; -- those that extend, also if they need nothing more
    takes boolean; settles boolean; late boolean;
    a record; i int; j int; o int; r int; verb int; wrong int;
begin
    perform headgate.apply_N(p_limits, p_keys, p_modes, '{}', null);
    store_clock := (extract(epoch from clock_timestamp()) * 1000000)::bigint;
    for k in 1 .. n loop
        if p_ops[(k - 1) * {op.width} + {op.now}] = 0 then
            p_ops[(k - 1) * {op.width} + {op.now}] := store_clock; -- one clock for all parts
        end if;
    end loop;

    foreach last in array p_parts loop
        for a in
            select u.k, m.print, m.rule, m.cost, m.outcome, m.settled
            from generate_series(first, last) u(k)
            cross join lateral (select * from headgate.admissions e
                where e.limit_name = p_limits[p_ops[(u.k - 1) * {op.width} + {op.cell}]] and e.key = p_keys[p_ops[(u.k - 1) * {op.width} + {op.cell}]] and e.id = p_notes[u.k]
                  and e.keep_until - p_ops[(u.k - 1) * {op.width} + {op.now}] > 0 offset 0) m -- not by the index on keep_until
            where p_notes[u.k] <> '' and (p_ops[(u.k - 1) * {op.width} + {op.verb}] = 1 and m.settled <> -2 or p_ops[(u.k - 1) * {op.width} + {op.verb}] in (4, 8))
        loop -- what was cancelled is not admitted any more
            o := (a.k - 1) * {op.width}; r := (a.k - 1) * {out.width};
            known[a.k] := true;
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
                changed[a.k] := a.settled = -1 and a.rule <> p_ops[o + {op.kind} : o + {op.drain}];
                p_ops[o + {op.count}] := case when a.settled = -1 and not changed[a.k] then 1 else 0 end;
                p_ops[o + {op.at}] := a.outcome[{out.at}]; p_ops[o + {op.level}] := a.outcome[{out.level}];
                p_ops[o + {op.returned}] := a.outcome[{out.prev}]; p_ops[o + {op.entry}] := a.outcome[{out.entry}];
                p_ops[o + {settle.last_cost}] := coalesce(a.outcome[{charged.last_cost}], 0);
                if p_ops[o + {settle.last_cost}] > 0 then
                    p_ops[o + {settle.first_at}] := p_ops[o + {op.at}]; p_ops[o + {settle.first_level}] := p_ops[o + {op.level}];
                    p_ops[o + {settle.first_returned}] := p_ops[o + {op.returned}];
                    p_ops[o + {op.at}] := a.outcome[{charged.last_at}]; p_ops[o + {op.level}] := a.outcome[{charged.last_level}];
                    p_ops[o + {op.returned}] := a.outcome[{charged.last_prev}];
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
            wrong := 0; -- what is wrong with one is so with all of the request
            for k in i .. j loop
                wrong := case when verb in (4, 8) and not known[k] then 4 else fault[k] end;
                exit when wrong > 0;
            end loop;
            -- A request that is late, or was, needs a start in common: all of it, or nothing.
            late := p_ops[(i - 1) * {op.width} + {op.how}] = 2;
            for k in i .. j loop
                late := late or known[k] and res[(k - 1) * {out.width} + {out.start_at}] > 0;
            end loop;
            if verb = 1 and late and false = any (known[i : j]) then
                for k in i .. j loop
                    known[k] := false;
                end loop;
            end if;
            for k in i .. j loop
                if wrong > 0 then
                    res[(k - 1) * {out.width} + {out.status}] := wrong;
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
            res := headgate.apply_N(p_limits, p_keys, p_modes, p_ops, p_notes);
        elsif rest <> '{}' then
            cells := array(select distinct p_ops[(k - 1) * {op.width} + {op.cell}] from unnest(rest) k order by 1);
            part := headgate.apply_N(
                array(select p_limits[c.c] from unnest(cells) with ordinality c(c, i) order by c.i),
                array(select p_keys[c.c] from unnest(cells) with ordinality c(c, i) order by c.i),
                array(select p_modes[c.c] from unnest(cells) with ordinality c(c, i) order by c.i),
                array(select case when w.o = 3 then array_position(cells, w.v) else w.v end
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
            insert into headgate.admissions (limit_name, key, id, print, rule, cost, outcome, settled, keep_until)
            select p_limits[x.c], p_keys[x.c], p_notes[x.k], p_prints[x.k], p_ops[(x.k - 1) * {op.width} + {op.kind} : (x.k - 1) * {op.width} + {op.drain}], p_ops[(x.k - 1) * {op.width} + {op.cost}] * p_ops[(x.k - 1) * {op.width} + {op.count}],
                res[(x.k - 1) * {out.width} + {out.granted} : x.k * {out.width}], -1, greatest(p_ops[(x.k - 1) * {op.width} + {op.now}], res[(x.k - 1) * {out.width} + {out.start_at}]) + p_ops[(x.k - 1) * {op.width} + {op.ttl}]
            from (select u.k, p_ops[(u.k - 1) * {op.width} + {op.cell}] as c,
                    bool_and(res[(u.k - 1) * {out.width} + {out.granted}] = p_ops[(u.k - 1) * {op.width} + {op.count}]) over (partition by p_ops[(u.k - 1) * {op.width} + {op.group}]) as admitted
                from unnest(rest) u(k) where p_ops[(u.k - 1) * {op.width} + {op.verb}] = 1 and p_ops[(u.k - 1) * {op.width} + {op.how}] <> 3 and p_notes[u.k] <> '') x
            where x.admitted
            on conflict (limit_name, key, id) do update set print = excluded.print, rule = excluded.rule, cost = excluded.cost,
                outcome = excluded.outcome, settled = excluded.settled, keep_until = excluded.keep_until;
        end if;
        if extended <> '{}' then
            for a in -- all charges of those that were admitted are remembered for longer
                update headgate.admissions e
                set cost = e.cost + x.more, keep_until = greatest(e.keep_until, p_ops[x.o + {op.now}] + p_ops[x.o + {op.ttl}]),
                    rule = case when x.more = 0 or e.rule = p_ops[x.o + {op.kind} : x.o + {op.drain}] then e.rule else array_fill(0::bigint, array[{terms.width}]) end,
                    outcome = case when x.more = 0 then e.outcome else headgate.extended_N(e.outcome, x.more, p_ops[x.o + 1 : x.o + {op.width}], res[x.r + 1 : x.r + {out.width}]) end
                from (select u.k, (u.k - 1) * {op.width} as o, (u.k - 1) * {out.width} as r, p_ops[(u.k - 1) * {op.width} + {op.cell}] as c,
                        case when p_ops[(u.k - 1) * {op.width} + {op.how}] = 3 then p_ops[(u.k - 1) * {op.width} + {op.cost}] else 0 end as more,
                        bool_and(p_ops[(u.k - 1) * {op.width} + {op.how}] <> 3 or res[(u.k - 1) * {out.width} + {out.granted}] = 1) over (partition by p_ops[(u.k - 1) * {op.width} + {op.group}]) as admitted
                    from unnest(extended) u(k)) x
                where x.admitted and e.limit_name = any (array[p_limits[x.c]]) and e.key = p_keys[x.c] and e.id = p_notes[x.k]
                returning x.k, e.cost
            loop
                held[a.k] := a.cost;
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
            update headgate.admissions e set settled = actual[u.k]
            from unnest(rest) u(k)
            where p_ops[(u.k - 1) * {op.width} + {op.verb}] = 4 and res[(u.k - 1) * {out.width} + {out.status}] = 0
              and e.limit_name = any (array[p_limits[p_ops[(u.k - 1) * {op.width} + {op.cell}]]]) and e.key = p_keys[p_ops[(u.k - 1) * {op.width} + {op.cell}]] and e.id = p_notes[u.k];
        end if;
    end loop;
    return res;
end $$;

-- headgate.extended_N is extend of package law: what headgate.admissions has in outcome after more credits were charged
-- by an op with this outcome.
create or replace function headgate.extended_N(outcome bigint[], more bigint, op bigint[], res bigint[]) returns bigint[] language plpgsql immutable as $$
begin
    if op[{op.kind}] = 3 then
        outcome[{out.entry}] := res[{out.entry}];
        return outcome;
    end if;
    if op[{op.kind}] = 1 and (op[{op.anchor}] = 2 or op[{op.drain}] = 9007199254740991) then
        -- Nothing drains before its end, so what was charged first may seem to have made as high a level.
        outcome[{out.level}] := least(outcome[{out.level}] + coalesce(outcome[{charged.last_cost}], 0), 9007199254740991);
    end if;
    return outcome[1:{out.width}] || array[more, res[{out.level}], res[{out.at}], res[{out.prev}]];
end $$;
