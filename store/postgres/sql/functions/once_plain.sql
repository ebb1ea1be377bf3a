-- headgate.once_plain_N is headgate.apply_once_N, with the same arguments and results, for a
-- batch of which most requests are plain: charges of the bucket law without a calendar, with
-- an id or without, which are granted, and settlements of such charges at no more than they
-- had cost. These need a few numbers of each cell and of each op, which one statement reads;
-- one more writes the cells, one the new ids, one what was settled. The rest is decided by
-- headgate.apply_once_N, in the same call.
--
-- The order of the batch is kept on each cell: after a request that is left, all on its
-- cells are left too.
create or replace function headgate.once_plain_N(
    p_limits text[], p_keys text[], p_modes smallint[], p_ops bigint[], p_notes text[], p_prints bigint[], p_parts int[])
returns bigint[] language plpgsql volatile
set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set search_path = pg_catalog, pg_temp
as $$
declare
    c_max constant bigint := 9007199254740991;
    n int := cardinality(p_ops) / {op.width};
    store_clock bigint;
    -- the cells
    c_law smallint[]; c_level bigint[]; c_prev bigint[]; c_at bigint[]; c_unit bigint[]; c_step bigint[];
    c_empty bigint[]; c_block bigint[];
    c_dirty boolean[] := array_fill(false, array[cardinality(p_limits)]);
    c_closed boolean[] := c_dirty;
    c_group int[] := array_fill(0, array[cardinality(p_limits)]);
    -- the ops
    o_group bigint[]; o_cell int[]; o_verb smallint[]; o_now bigint[]; o_plain boolean[]; o_n bigint[];
    o_anchor bigint[]; o_capacity bigint[]; o_drain bigint[]; o_unit bigint[]; o_step bigint[];
    o_made bigint[]; o_level bigint[]; o_returned bigint[]; -- of the charge that is settled
    x_ bigint[]; t_ bigint[]; prev_ bigint[];
    -- the outcomes
    r_granted bigint[] := array_fill(0::bigint, array[n]); r_used bigint[] := r_granted; r_level bigint[] := r_granted;
    r_prev bigint[] := r_granted; r_at bigint[] := r_granted; r_empty bigint[] := r_granted; r_block bigint[] := r_granted;
    r_done boolean[] := array_fill(true, array[n]);
    res bigint[]; part bigint[]; rest int[] := '{}'; cells int[];
    i int := 1; j int; c int; fits boolean; takes boolean := false; settles boolean := false; dirty boolean := false;
    x bigint; t bigint; prev bigint; now bigint; back bigint; anchor bigint; drain bigint; step bigint; capacity bigint;
begin
    -- What an earlier part did is seen by the next one: that is for headgate.apply_once_N. So
    -- is a batch with new cells while limits have a maximum of keys, since what
    -- headgate.make_room_N locks comes before cells.
    if cardinality(p_parts) > 1 then
        return headgate.apply_once_N(p_limits, p_keys, p_modes, p_ops, p_notes, p_prints, p_parts);
    end if;
    if exists (select from unnest(p_limits, p_keys, p_modes) u(l, k, m) where u.m in (1, 2)
            and (select true from headgate.cells e where e.limit_name = u.l and e.key = u.k) is null) then
        if exists (select from headgate.settings) then
            return headgate.apply_once_N(p_limits, p_keys, p_modes, p_ops, p_notes, p_prints, p_parts);
        end if;
        insert into headgate.cells (limit_name, key)
        select u.l, u.k from unnest(p_limits, p_keys, p_modes) with ordinality u(l, k, m, i)
        where u.m = 2 and (select true from headgate.cells e where e.limit_name = u.l and e.key = u.k) is null
        order by u.i
        on conflict do nothing;
    end if;

    select array_agg(e.law), array_agg(e.level), array_agg(e.prev), array_agg(e.at), array_agg(e.unit),
        array_agg(e.step), array_agg(e.empty_at), array_agg(e.blocked_until)
    into c_law, c_level, c_prev, c_at, c_unit, c_step, c_empty, c_block
    from unnest(p_limits, p_keys, p_modes) u(l, k, m)
    left join lateral (select * from headgate.cells c
        where u.m in (1, 2) and c.limit_name = u.l and c.key = u.k for no key update) e on true;
    store_clock := (extract(epoch from clock_timestamp()) * 1000000)::bigint;

    select array_agg(p_ops[u.o + {op.group}]), array_agg(u.c), array_agg(p_ops[u.o + {op.verb}]::smallint), array_agg(u.now),
        array_agg(p_ops[u.o + {op.kind}] = 1 and u.anchor < 2 and coalesce(c_law[u.c] in (0, 1), false) and case p_ops[u.o + {op.verb}]
            when 1 then p_ops[u.o + {op.count}] = 1 and p_ops[u.o + {op.how}] = 0 and p_ops[u.o + {op.ceiling}] = 0 and m.rule is null
                and p_ops[u.o + {op.since}] = 0 and p_ops[u.o + {op.lapse}] = 0
            when 4 then coalesce(m.settled = -1 and m.keep_until - u.now > 0 and m.rule = p_ops[u.o + {op.kind} : u.o + {op.drain}]
                and m.cost >= p_ops[u.o + {op.cost}] and cardinality(m.outcome) = {out.width}, false) -- it was not extended
            else false end),
        array_agg(case when m.rule is null then p_ops[u.o + {op.cost}] else m.cost - greatest(p_ops[u.o + {op.cost}], 0) end),
        array_agg(u.anchor), array_agg(p_ops[u.o + {op.capacity}]), array_agg(p_ops[u.o + {op.drain}]), array_agg(p_ops[u.o + {op.unit}]),
        array_agg(p_ops[u.o + {op.step}]),
        array_agg(m.outcome[{out.at}]), array_agg(m.outcome[{out.level}]), array_agg(m.outcome[{out.prev}])
    into o_group, o_cell, o_verb, o_now, o_plain, o_n, o_anchor, o_capacity, o_drain, o_unit, o_step, o_made, o_level, o_returned
    from (select k, (k - 1) * {op.width} as o, p_ops[(k - 1) * {op.width} + {op.cell}]::int as c, p_notes[k] as id,
            p_ops[(k - 1) * {op.width} + {op.anchor}] as anchor,
            case when p_ops[(k - 1) * {op.width} + {op.now}] <> 0 then p_ops[(k - 1) * {op.width} + {op.now}] else store_clock end as now
        from generate_series(1, n) k offset 0) u
    left join lateral (select * from headgate.admissions a
        where u.id <> '' and a.limit_name = p_limits[u.c] and a.key = p_keys[u.c] and a.id = u.id offset 0) m on true;
    x_ := r_granted; t_ := r_granted; prev_ := r_granted;

    while i <= n loop
        j := i;
        fits := true;
        loop -- until the end of the request
            c := o_cell[j];
            fits := fits and o_plain[j] and not c_closed[c] and c_group[c] <> i;
            if fits then
                c_group[c] := i;
                anchor := o_anchor[j]; drain := o_drain[j]; step := o_step[j]; capacity := o_capacity[j];
                now := greatest(o_now[j], c_at[c]);
                x := headgate.drained_N(c_level[c], c_at[c], c_empty[c], now, anchor, drain, step);
                t := headgate.drained_at_N(c_level[c], c_at[c], c_empty[c], now, anchor, drain, step);
                prev := case when now >= c_empty[c] then 0 else c_prev[c] end;
                if o_verb[j] = 1 then
                    fits := (c_law[c] = 0 or c_unit[c] = o_unit[j] and c_step[c] = step) and c_block[c] <= now
                        and c_at[c] - o_now[j] <= 2000000 and x <= capacity - o_n[j];
                    back := -o_n[j];
                else
                    fits := c_law[c] = 1 and c_unit[c] = o_unit[j] and c_step[c] = step and o_made[j] <= now and x <= capacity;
                    if fits then
                        back := {{template "left" (as "level" "o_level[j]" "at" "o_made[j]" "now" "now")}};
                        back := least(o_n[j], x, greatest(0, back - greatest(0, prev - o_returned[j])));
                        fits := prev <= c_max - back;
                    end if;
                end if;
                if fits then
                    x_[j] := x - back; t_[j] := t; prev_[j] := prev + case when drain = c_max then 0 else greatest(back, 0) end; r_granted[j] := back;
                end if;
            end if;
            exit when j = n or o_group[j + 1] <> o_group[i];
            j := j + 1;
        end loop;

        for k in i .. j loop
            c := o_cell[k];
            if not fits then
                rest := rest || k;
                r_done[k] := false;
                c_closed[c] := true;
                continue;
            end if;
            if o_verb[k] = 1 then
                c_empty[c] := greatest(headgate.after_N(t_[k], x_[k], o_anchor[k], o_drain[k], o_step[k], 0, 0, 0, 0),
                    case when prev_[k] > 0 then c_empty[c] else 0 end);
                c_law[c] := 1; c_unit[c] := o_unit[k]; c_step[c] := o_step[k];
                takes := takes or p_notes[k] <> '';
            else
                settles := true;
            end if;
            if r_granted[k] <> 0 then
                c_level[c] := x_[k]; c_at[c] := t_[k]; c_prev[c] := prev_[k];
                c_dirty[c] := true; dirty := true;
            end if;
            if o_verb[k] = 1 then
                r_granted[k] := 1;
            end if;
            r_used[k] := x_[k];
            r_level[k] := c_level[c]; r_prev[k] := c_prev[c]; r_at[k] := c_at[c]; r_empty[k] := c_empty[c]; r_block[k] := c_block[c];
        end loop;
        i := j + 1;
    end loop;

    if dirty then
        update headgate.cells e
        set law = u.law, level = u.level, prev = u.prev, at = u.at, unit = u.unit, step = u.step, empty_at = u.empty
        from unnest(p_limits, p_keys, c_law, c_level, c_prev, c_at, c_unit, c_step, c_empty, c_dirty)
            u(l, k, law, level, prev, at, unit, step, empty, dirty)
        where u.dirty and e.limit_name = any (array[u.l]) and e.key = u.k;
    end if;
    if takes then
        insert into headgate.admissions (limit_name, key, id, print, rule, cost, outcome, settled, keep_until)
        select p_limits[o_cell[k]], p_keys[o_cell[k]], p_notes[k], p_prints[k], p_ops[(k - 1) * {op.width} + {op.kind} : (k - 1) * {op.width} + {op.drain}], o_n[k],
            array[{out: granted => 1, law => 1, level => r_level[k], prev => r_prev[k], at => r_at[k], unit => o_unit[k],
                empty_at => r_empty[k], blocked_until => r_block[k], used => r_used[k], clock => o_now[k], step => o_step[k]}],
            -1, o_now[k] + p_ops[(k - 1) * {op.width} + {op.ttl}]
        from generate_series(1, n) k
        where o_verb[k] = 1 and r_done[k] and p_notes[k] <> '';
    end if;
    if settles then
        update headgate.admissions e set settled = p_ops[(k - 1) * {op.width} + {op.cost}]
        from generate_series(1, n) k
        where o_verb[k] = 4 and r_done[k]
          and e.limit_name = any (array[p_limits[o_cell[k]]]) and e.key = p_keys[o_cell[k]] and e.id = p_notes[k];
    end if;

    if cardinality(rest) = n then
        return headgate.apply_once_N(p_limits, p_keys, p_modes, p_ops, p_notes, p_prints, p_parts);
    end if;
    res := array(select w.v from generate_series(1, n) k,
        lateral unnest(array[{out: granted => r_granted[k], law => case when r_done[k] then c_law[o_cell[k]] end, level => r_level[k], prev => r_prev[k], at => r_at[k],
            unit => o_unit[k], empty_at => r_empty[k], blocked_until => r_block[k], used => r_used[k], clock => o_now[k],
            step => o_step[k]}]) w(v));
    if rest <> '{}' then
        cells := array(select distinct o_cell[k] from unnest(rest) k order by 1);
        part := headgate.apply_once_N(
            array(select p_limits[u.c] from unnest(cells) with ordinality u(c, i) order by u.i),
            array(select p_keys[u.c] from unnest(cells) with ordinality u(c, i) order by u.i),
            array(select p_modes[u.c] from unnest(cells) with ordinality u(c, i) order by u.i),
            array(select case when w.o = {op.cell} then array_position(cells, w.v::int) else w.v end
                from unnest(rest) with ordinality u(k, i),
                    unnest(p_ops[(u.k - 1) * {op.width} + {op.verb} : u.k * {op.width}]) with ordinality w(v, o) order by u.i, w.o),
            array(select p_notes[u.k] from unnest(rest) with ordinality u(k, i) order by u.i),
            array(select p_prints[u.k] from unnest(rest) with ordinality u(k, i) order by u.i),
            array[cardinality(rest)]);
        for k in 1 .. cardinality(rest) loop
            for g in 1 .. {out.width} loop
                res[(rest[k] - 1) * {out.width} + g] := part[(k - 1) * {out.width} + g];
            end loop;
        end loop;
    end if;
    return res;
end $$;
