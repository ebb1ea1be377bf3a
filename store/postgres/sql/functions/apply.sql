-- headgate.add_steps_N, headgate.after_N and headgate.grain_N are the functions of these
-- names in package law.
create or replace function headgate.add_steps_N(t bigint, steps bigint, step bigint) returns bigint
language sql immutable as $$
    select case when t >= 9007199254740991 or steps > (9007199254740991 - t) / step
        then 9007199254740991 else t + steps * step end
$$;

create or replace function headgate.after_N(
    t bigint, credits bigint, anchor bigint, drain bigint, step bigint, b0 bigint, b1 bigint, b2 bigint, b3 bigint)
returns bigint language sql immutable as $$
    select case
        when anchor < 2 then headgate.add_steps_N(case when anchor = 1 then t - t % step else t end,
            (credits + drain - 1) / drain, step)
        when b0 > t then b0 when b1 > t then b1 when b2 > t then b2 else b3 end
$$;

create or replace function headgate.grain_N(step bigint) returns bigint language sql immutable as $$
    select case when step % ((step + 1048575) / 1048576) <> 0 and step % 1000000 = 0
        then step / 1000000 else (step + 1048575) / 1048576 end
$$;

-- headgate.give_back_N is correct of package law: one op that returns, or charges in
-- addition, as headgate.apply_N has it, on the cell s, which the caller has locked. It
-- returns the outcome and changes the entry. The caller writes the cell.
create or replace function headgate.give_back_N(p_limit text, p_key text, op bigint[], s bigint[], clock bigint)
returns bigint[] language plpgsql volatile as $$
declare
    c_max constant bigint := 9007199254740991;
    kind bigint := op[{op.kind}]; anchor bigint := op[{op.anchor}]; capacity bigint := op[{op.capacity}]; step bigint := op[{op.step}]; drain bigint := op[{op.drain}];
    n bigint := op[{op.cost}] * op[{op.count}];
    made bigint := op[{op.at}];
    fresh boolean := s[{cell.law}] = 0 and n < 0; -- empty for so long that it was swept
    level bigint := s[{cell.level}]; prev bigint := s[{cell.prev}]; at_ bigint := s[{cell.at}]; empty bigint := s[{cell.empty_at}];
    now bigint := greatest(clock, at_);
    stale boolean := kind = 1 and anchor = 2 and (now < op[{op.window0}] or now >= op[{op.window3}]);
    back bigint := 0; x bigint := 0; t bigint; steps bigint;
    returned bigint; rest bigint; then_ bigint;
    w_prev bigint; w_level bigint; w_start bigint; q bigint; f bigint;
begin
    if now >= empty then
        level := 0; prev := 0;
    end if;
    if stale then
        clock := now;
    elsif not fresh and (s[{cell.law}] <> kind or s[{cell.unit}] <> op[{op.unit}] or kind < 3 and s[{cell.step}] <> op[{op.step}]) then
        null; -- reset, or the limit was changed
    elsif kind = 1 then -- the bucket law
        if anchor = 0 then
            steps := (now - at_) / step;
            t := at_ + steps * step;
        elsif anchor = 1 then
            t := greatest(at_, now - now % step);
            steps := (t - at_ + step - 1) / step;
        else
            t := greatest(at_, case when op[{op.window2}] <= now then op[{op.window2}] when op[{op.window1}] <= now then op[{op.window1}] else op[{op.window0}] end);
            steps := 0;
        end if;
        if level > 0 and (anchor = 2 or drain = c_max) then
            x := level;
        elsif steps >= (level + drain - 1) / drain then
            if anchor = 0 then
                t := now;
            end if;
        else
            x := level - drain * steps;
        end if;

        -- The steps since the charge was made: a window that each of them empties
        -- is over after the first.
        then_ := greatest(now, made);
        steps := case anchor when 0 then (then_ - made) / step
            when 1 then (greatest(made, then_ - then_ % step) - made + step - 1) / step
            else (greatest(made, case when op[{op.window2}] <= then_ then op[{op.window2}] when op[{op.window1}] <= then_ then op[{op.window1}] else op[{op.window0}] end) > made)::int end;
        if n > 0 then -- undrained: what is left of the level that the charge made
            returned := greatest(0, prev - op[{op.returned}]);
            rest := greatest(0, op[{op.level}] - drain * least((op[{op.level}] + drain - 1) / drain, steps));
            if x > capacity then
                back := greatest(0, least(n, capacity - (drain - 1)) - greatest(0, x - rest + returned));
            else
                back := least(n, greatest(0, rest - returned));
            end if;
            back := least(back, x);
            if prev > c_max - back then
                back := 0;
            end if;
            prev := prev + back;
        elsif steps = 0 or anchor = 0 and drain < capacity then
            back := greatest(n, x - c_max);
        end if;
        x := x - back;
        if back <> 0 then
            level := x; at_ := t;
        end if;
        if back < 0 then
            t := headgate.after_N(t, x, anchor, drain, step, op[{op.window0}], op[{op.window1}], op[{op.window2}], op[{op.window3}]);
            empty := case when prev > 0 then greatest(t, empty) else t end;
        end if;
    elsif kind = 2 then -- the window law
        w_start := now - now % step;
        w_prev := prev; w_level := level;
        if at_ - at_ % step = w_start then
            null;
        elsif at_ - at_ % step = w_start - step then
            w_prev := level; w_level := 0;
        else
            w_prev := 0; w_level := 0;
        end if;
        q := headgate.grain_N(step);
        f := step / q;
        x := (w_prev * least(f, (step - (now - w_start) + q - 1) / q) + f - 1) / f + w_level;
        if made - made % step = w_start then
            back := greatest(least(n, w_level), w_level - 4294967295);
        end if;
        x := x - back;
        if back <> 0 then
            level := w_level - back; prev := w_prev; at_ := now;
            empty := case when level > 0 then w_start + 2 * step when prev > 0 then w_start + step else 0 end;
        end if;
    else -- the log law
        if now < empty and level > 0 then
            x := level;
            if now > at_ then
                select greatest(0, x - coalesce(sum(e.cost), 0)) into x from headgate.entries e
                where e.limit_name = p_limit and e.key = p_key and e.granted
                  and e.expires_at > s[{cell.at}] and e.expires_at <= now;
            end if;
        end if;
        select greatest(least(n, e.cost, x), x - c_max) into back from headgate.entries e
        where e.number = op[{op.entry}] and e.limit_name || '' = p_limit and e.key || '' = p_key and e.granted and e.expires_at + 0 > now; -- by number only
        back := coalesce(back, 0);
        x := x - back;
        if back <> 0 then
            update headgate.entries e
            set cost = e.cost - back, expires_at = case when e.cost > back then e.expires_at else 0 end
            where e.number = op[{op.entry}];
            level := x; at_ := now;
        end if;
    end if;
    if back = 0 then
        return array[{out: granted => 0, law => s[{cell.law}], level => s[{cell.level}], prev => s[{cell.prev}], at => s[{cell.at}],
            unit => s[{cell.unit}], empty_at => s[{cell.empty_at}], blocked_until => s[{cell.blocked_until}], used => x, clock => clock,
            status => stale::int, step => s[{cell.step}]}];
    end if;
    return array[{out: granted => back, law => kind, level => level, prev => prev, at => at_, unit => op[{op.unit}],
        empty_at => empty, blocked_until => s[{cell.blocked_until}], used => x, clock => clock, step => step}];
end $$;

-- headgate.apply_N: a batch of ops, their groups one after another in order, each
-- all or nothing. It is package law line by line, with the same names; change
-- both or neither.
--
-- Locks the cells of the batch in the order of p_limits, p_keys, which the
-- caller sorts; reads the clock after that, once. Writes the cells that changed
-- in one update, and one row of headgate.entries for each attempt of a limit
-- that keeps a log. A refusal writes no cell, except as law says.
--
-- p_limits, p_keys  the distinct cells, sorted
-- p_modes           for each: 0 read it, 1 lock it if it exists, 2 create and lock it;
--                   of a cell that keys share: 4 read it, 5 lock it
-- p_ops             the numbers of each op: see opLayout in layout.go. Its how is 1 for a
--                   partial op and 2 for a deferred one. What is given back has the
--                   time and level, sum returned and entry of its charge. An op that
--                   settles comes from headgate.apply_once_N, which knows what: its
--                   cost is what is to be given back, its count 0 if that was done
-- p_notes           for each op the id, or a block's reason; null: none has any
-- returns           the numbers of each outcome: see law.Numbers. Its status is 0 for
--                   done, 1 for stale, 2 for replayed and 6 for full. An op is full if
--                   its cell is missing and its limit is sharing: entry is the
--                   generation of the cell to ask instead. It is -1 of a shared cell
--                   that is gone. The group has done nothing then, its other ops are
--                   stale
create or replace function headgate.apply_N(
    p_limits text[], p_keys text[], p_modes smallint[], p_ops bigint[], p_notes text[])
returns bigint[] language plpgsql volatile
-- One plan for all calls, by the primary key however small the table was when
-- it was made: planning each call anew would cost more than the call.
set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set search_path = pg_catalog, pg_temp
as $$
declare
    c_max   constant bigint := 9007199254740991;
    c_slack constant bigint := 2000000;
    n int := coalesce(cardinality(p_ops), 0) / {op.width};
    cells int := cardinality(p_limits);
    -- the cells
    a_law bigint[]; a_level bigint[]; a_prev bigint[]; a_at bigint[];
    a_unit bigint[]; a_empty bigint[]; a_block bigint[]; a_step bigint[];
    a_dirty boolean[] := array_fill(false, array[cells]);
    a_gone boolean[] := a_dirty;
    a_group int[] := array_fill(0, array[cells]);
    a_nolog int[] := a_group;
    a_pending bigint[] := array_fill(0::bigint, array[cells]);
    dirty boolean := false; gone boolean := false;
    a_full bigint[]; -- generations, 0 of cells that are there; null: all are
    found int; wanted int; tries int := 0; missing int[]; bounded boolean;
    store_clock bigint;
    res bigint[] := array_fill(0::bigint, array[n * {out.width}]);
    -- the group
    i int; j int; k int; o int; r int; c int; verb int;
    full_ boolean; admitted boolean; stale boolean; outside boolean; fits boolean; late boolean; several boolean;
    undo bigint[]; back bigint[];
    -- the op
    kind bigint; anchor bigint; unit bigint; capacity bigint; step bigint; drain bigint;
    cost bigint; cnt bigint; partial boolean; ceiling bigint; clock bigint; now bigint;
    -- the decision: Base, and what goes with it
    b_law bigint; b_level bigint; b_prev bigint; b_at bigint; b_unit bigint; b_empty bigint; b_block bigint; b_step bigint;
    moved boolean; clear boolean; carry bigint; nolog boolean; converted boolean; other boolean; fold boolean;
    scaled numeric; over bigint; most bigint;
    -- use
    x bigint; t bigint; steps bigint; empty bigint;
    w_prev bigint; w_level bigint; w_start bigint; q bigint; f bigint;
    granted bigint; need bigint; retry bigint; room bigint; at_ bigint; prev_ bigint; level_ bigint;
    entry bigint; u int;
begin
    -- Create what is missing. Nothing is locked yet, so waiting for another
    -- session's insert cannot close a circle.
    --
    -- The planner must look up each row by the primary key, also if the table was
    -- empty when it made the plan: then it prefers to read the whole index for each
    -- batch. So a subquery or a lateral one with a lock or an offset, which it does
    -- not turn into a join, reads cells; an update or a delete, which must join,
    -- says any (array[..]) instead of =, by which it can do nothing else.
    loop
        select array_agg(u.i::int), bool_or((select true from headgate.settings)) into missing, bounded
        from unnest(p_limits, p_keys, p_modes) with ordinality u(l, k, m, i)
        where u.m <> 8 and (select true from headgate.cells e where e.limit_name = u.l and e.key = u.k) is null;
        if bounded then
            back := headgate.make_room_N(p_limits, p_keys, p_modes, missing);
            foreach k in array missing loop
                if back[k] <> 0 then
                    a_full := coalesce(a_full, array_fill(0::bigint, array[cells]));
                    a_full[k] := back[k];
                    p_modes[k] := 8; -- leave it
                end if;
            end loop;
        elsif missing is not null then
            insert into headgate.cells (limit_name, key)
            select p_limits[u.i], p_keys[u.i] from unnest(missing) u(i) where p_modes[u.i] = 2
            order by p_limits[u.i] collate "C", p_keys[u.i] collate "C"
            on conflict do nothing;
        end if;

        select array_agg(coalesce(y.law, z.law, 0)::bigint), array_agg(coalesce(y.level, z.level, 0)),
               array_agg(coalesce(y.prev, z.prev, 0)), array_agg(coalesce(y.at, z.at, 0)),
               array_agg(coalesce(y.unit, z.unit, 0)), array_agg(coalesce(y.empty_at, z.empty_at, 0)),
               array_agg(coalesce(y.blocked_until, z.blocked_until, 0)), array_agg(coalesce(y.step, z.step, 0)),
               count(y.law) filter (where u.m in (2, 5)), count(*) filter (where u.m in (2, 5))
        into a_law, a_level, a_prev, a_at, a_unit, a_empty, a_block, a_step, found, wanted
        from unnest(p_limits, p_keys, p_modes) u(l, k, m)
        left join lateral (select * from headgate.cells e
            where u.m in (1, 2, 5) and e.limit_name = u.l and e.key = u.k for update) y on true
        left join lateral (select * from headgate.cells e
            where u.m in (0, 4) and e.limit_name = u.l and e.key = u.k offset 0) z on true; -- offset 0 keeps the order
        exit when found = wanted; -- else a sweep came between, or the end of sharing
        tries := tries + 1;
        if tries > 100 then
            raise exception 'headgate: cells vanish while they are locked' using errcode = '40001';
        end if;
    end loop;
    store_clock := (extract(epoch from clock_timestamp()) * 1000000)::bigint;

    i := 1;
    while i <= n loop
        o := (i - 1) * {op.width};
        verb := p_ops[o + {op.verb}];
        j := i;
        while j < n and p_ops[j * {op.width} + {op.group}] = p_ops[o + {op.group}] loop
            j := j + 1;
        end loop;

        if a_full is not null and verb not in (4, 6) then
            full_ := false;
            for k in i .. j loop
                full_ := full_ or a_full[p_ops[(k - 1) * {op.width} + {op.cell}]] <> 0;
            end loop;
            if full_ then
                for k in i .. j loop
                    o := (k - 1) * {op.width}; r := (k - 1) * {out.width};
                    res[r + {out.clock}] := case when p_ops[o + {op.now}] <> 0 then p_ops[o + {op.now}] else store_clock end;
                    res[r + {out.entry}] := a_full[p_ops[o + {op.cell}]];
                    res[r + {out.status}] := case when res[r + {out.entry}] <> 0 then 6 else 1 end;
                end loop;
                i := j + 1;
                continue;
            end if;
        end if;

        if verb > 2 then -- each on its own
            stale := false;
            if verb = 4 then -- but those that settle not if a calendar is stale
                for k in i .. j loop
                    o := (k - 1) * {op.width}; c := p_ops[o + {op.cell}];
                    now := greatest(case when p_ops[o + {op.now}] <> 0 then p_ops[o + {op.now}] else store_clock end, a_at[c]);
                    stale := stale or p_ops[o + {op.kind}] = 1 and p_ops[o + {op.anchor}] = 2 and (now < p_ops[o + {op.window0}] or now >= p_ops[o + {op.window3}]);
                end loop;
            end if;
            for k in i .. j loop
                o := (k - 1) * {op.width}; r := (k - 1) * {out.width}; c := p_ops[o + {op.cell}];
                clock := case when p_ops[o + {op.now}] <> 0 then p_ops[o + {op.now}] else store_clock end;
                if stale or verb = 4 and (p_ops[o + {op.count}] = 0 or a_full[c] <> 0) then -- settled before
                    res[r + {out.law}] := a_law[c]; res[r + {out.level}] := a_level[c]; res[r + {out.prev}] := a_prev[c]; res[r + {out.at}] := a_at[c];
                    res[r + {out.unit}] := a_unit[c]; res[r + {out.empty_at}] := a_empty[c]; res[r + {out.blocked_until}] := a_block[c]; res[r + {out.step}] := a_step[c];
                    res[r + {out.clock}] := case when stale then greatest(clock, a_at[c]) else clock end;
                    res[r + {out.status}] := case when stale then 1 else 2 end;
                elsif verb < 5 then -- return, settle
                    back := headgate.give_back_N(p_limits[c], p_keys[c], p_ops[o + {op.verb} : o + {op.entry}], array[{cell: law => a_law[c], level => a_level[c], prev => a_prev[c], at => a_at[c],
                        unit => a_unit[c], empty_at => a_empty[c], blocked_until => a_block[c], step => a_step[c]}], clock);
                    if back[{out.granted}] <> 0 then
                        a_law[c] := back[{out.law}]; a_level[c] := back[{out.level}]; a_prev[c] := back[{out.prev}]; a_at[c] := back[{out.at}];
                        a_unit[c] := back[{out.unit}]; a_empty[c] := back[{out.empty_at}]; a_step[c] := back[{out.step}];
                        a_dirty[c] := true; dirty := true;
                    end if;
                    for g in 1 .. {out.width} loop
                        res[r + g] := back[g];
                    end loop;
                elsif verb = 7 then -- renew
                    if a_law[c] = p_ops[o + {op.kind}] and a_unit[c] = p_ops[o + {op.unit}] then
                        now := greatest(clock, a_at[c]);
                        update headgate.entries e
                        set expires_at = now + p_ops[o + {op.step}], keep_until = greatest(e.keep_until, now + p_ops[o + {op.step}])
                        where e.number = p_ops[o + {op.entry}] and e.limit_name || '' = p_limits[c] and e.key || '' = p_keys[c]
                          and e.granted and e.expires_at + 0 > now; -- by number only
                        get diagnostics u = row_count;
                        if u > 0 then
                            res[r + {out.granted}] := 1;
                            a_empty[c] := greatest(a_empty[c], now + p_ops[o + {op.step}]);
                            a_dirty[c] := true; dirty := true;
                        end if;
                    end if;
                    res[r + {out.law}] := a_law[c]; res[r + {out.level}] := a_level[c]; res[r + {out.prev}] := a_prev[c]; res[r + {out.at}] := a_at[c];
                    res[r + {out.unit}] := a_unit[c]; res[r + {out.empty_at}] := a_empty[c]; res[r + {out.blocked_until}] := a_block[c]; res[r + {out.step}] := a_step[c];
                    res[r + {out.clock}] := clock;
                elsif verb = 5 then -- block
                    if a_law[c] = 0 then
                        a_law[c] := p_ops[o + {op.kind}]; a_unit[c] := p_ops[o + {op.unit}]; a_step[c] := p_ops[o + {op.step}];
                    end if;
                    a_block[c] := case when p_ops[o + {op.ttl}] > 0 then greatest(clock, a_at[c]) + p_ops[o + {op.ttl}] else 0 end;
                    a_dirty[c] := true; dirty := true;
                    update headgate.cells e set blocked_until = a_block[c],
                        reason = case when p_ops[o + {op.ttl}] > 0 then coalesce(p_notes[k], '') else '' end
                    where e.limit_name = p_limits[c] and e.key = p_keys[c];
                    res[r + {out.granted}] := p_ops[o + {op.count}];
                    res[r + {out.law}] := a_law[c]; res[r + {out.level}] := a_level[c]; res[r + {out.prev}] := a_prev[c]; res[r + {out.at}] := a_at[c];
                    res[r + {out.unit}] := a_unit[c]; res[r + {out.empty_at}] := a_empty[c]; res[r + {out.blocked_until}] := a_block[c]; res[r + {out.step}] := a_step[c];
                    res[r + {out.clock}] := clock; res[r + {out.retry_at}] := a_block[c];
                else -- reset
                    res[r + {out.clock}] := clock;
                    if a_law[c] <> 0 then
                        res[r + {out.granted}] := 1;
                        if p_modes[c] < 4 then
                            a_gone[c] := true; gone := true;
                        else -- it stays for as long as keys share it
                            a_dirty[c] := true; dirty := true;
                        end if;
                    end if;
                    update headgate.entries e set expires_at = 0
                    where e.limit_name = p_limits[c] and e.key = p_keys[c] and e.expires_at > 0;
                    delete from headgate.admissions a where a.limit_name = p_limits[c] and a.key = p_keys[c];
                    update headgate.cells e set blocked_until = 0, reason = ''
                    where e.limit_name = p_limits[c] and e.key = p_keys[c] and e.blocked_until <> 0;
                    a_law[c] := 0; a_level[c] := 0; a_prev[c] := 0; a_at[c] := 0; a_unit[c] := 0;
                    a_empty[c] := 0; a_block[c] := 0; a_step[c] := 0;
                end if;
            end loop;
            i := j + 1;
            continue;
        end if;

        -- take, check: decide about each op, then settle all.
        admitted := true; stale := false; undo := null;
        late := p_ops[o + {op.how}] = 2;
        several := j > i or late;
        for k in i .. j loop
            o := (k - 1) * {op.width}; r := (k - 1) * {out.width}; c := p_ops[o + {op.cell}];
            kind := p_ops[o + {op.kind}]; anchor := p_ops[o + {op.anchor}]; unit := p_ops[o + {op.unit}]; capacity := p_ops[o + {op.capacity}];
            step := p_ops[o + {op.step}]; drain := p_ops[o + {op.drain}];
            cost := p_ops[o + {op.cost}]; cnt := p_ops[o + {op.count}]; partial := p_ops[o + {op.how}] = 1;
            ceiling := case when p_ops[o + {op.ceiling}] > 0 then p_ops[o + {op.ceiling}] else capacity end;
            clock := case when p_ops[o + {op.now}] <> 0 then p_ops[o + {op.now}] else store_clock end;
            if a_group[c] <> i then
                a_pending[c] := 0;
                a_nolog[c] := 0;
            end if;
            if late and cost * cnt > capacity - a_pending[c] then -- would never start
                ceiling := 0;
            end if;

            -- rebase
            b_law := a_law[c]; b_level := a_level[c]; b_prev := a_prev[c]; b_at := a_at[c];
            b_unit := a_unit[c]; b_empty := a_empty[c]; b_block := a_block[c]; b_step := a_step[c];
            moved := false; clear := false; carry := 0; nolog := a_nolog[c] <> 0; outside := false;
            if b_law = 0 then
                b_law := kind; b_unit := unit; b_step := step;
            end if;
            converted := b_law <> kind or b_unit <> unit or kind < 3 and b_step <> step;
            over := 0;
            if b_at - clock > 0 then
                t := case kind
                    when 1 then headgate.add_steps_N(0, (capacity + drain - 1) / drain, step)
                    when 2 then headgate.add_steps_N(0, 2, step)
                    else step end;
                if b_at - clock > greatest(t, c_slack) then
                    b_at := clock; moved := true; -- healed
                end if;
            end if;
            now := greatest(clock, b_at);
            if not moved and now >= b_empty then
                b_level := 0; b_prev := 0;
            end if;
            if converted then
                other := b_law <> kind;
                fold := other or kind = 3 or kind = 2 and b_step <> step;
                scaled := div((b_level + case when fold and b_law = 2 then b_prev else 0 end)::numeric * unit + b_unit - 1, b_unit);
                most := case when kind = 1 then least(drain, capacity) else capacity end; -- perStep
                if not moved and (scaled >= c_max or scaled > capacity and most = capacity) then
                    over := least(scaled, c_max);
                    empty := headgate.add_steps_N(now, (over + most - 1) / most, step);
                    if over < c_max and b_law <> 3 and empty < b_empty then
                        b_empty := empty; moved := true;
                    end if;
                end if;
            end if;
            if converted and over = 0 then
                if fold then
                    b_prev := 0; b_at := now;
                elsif kind = 1 and b_step <> step then
                    b_at := least(now, headgate.add_steps_N(b_at, 1, b_step));
                    other := true;
                end if;
                most := case when kind = 2 then 4294967295 else c_max end;
                b_level := least(scaled, most);
                b_prev := least(div(b_prev::numeric * unit + b_unit - 1, b_unit), most);
                if kind = 1 and other then
                    b_prev := least(b_prev + b_level, c_max);
                end if;
                b_law := kind; b_unit := unit; b_step := step;
            end if;
            if over = 0 and (moved or converted) then
                empty := case when b_level = 0 and (b_prev = 0 or kind = 1) then 0
                    when kind = 2 then now - now % step + case when b_level > 0 then 2 * step else step end
                    when kind = 3 then now + step
                    else headgate.after_N(case when anchor = 2 then now else b_at end, b_level, anchor, drain, step,
                        p_ops[o + {op.window0}], p_ops[o + {op.window1}], p_ops[o + {op.window2}], p_ops[o + {op.window3}]) end;
                if moved or empty < b_empty and (b_level > 0 or b_prev = 0) then
                    b_empty := empty;
                end if;
                moved := true;
                if kind = 3 then
                    clear := true; carry := b_level; nolog := true;
                end if;
            end if;

            -- use
            if kind = 1 and anchor = 2 then
                outside := now < p_ops[o + {op.window0}] or now >= p_ops[o + {op.window3}];
                stale := stale or outside;
            end if;
            if over > 0 then
                x := over; t := now;
            elsif kind = 1 then -- the bucket law
                if anchor = 0 then
                    steps := (now - b_at) / step;
                    t := b_at + steps * step;
                elsif anchor = 1 then
                    t := greatest(b_at, now - now % step);
                    steps := (t - b_at + step - 1) / step;
                else
                    t := greatest(b_at, case when outside then now when p_ops[o + {op.window2}] <= now then p_ops[o + {op.window2}]
                        when p_ops[o + {op.window1}] <= now then p_ops[o + {op.window1}] else p_ops[o + {op.window0}] end);
                    steps := 0;
                end if;
                if b_level > 0 and (anchor = 2 or drain = c_max) then
                    x := b_level; -- of a window, all of it until empty_at
                elsif steps >= (b_level + drain - 1) / drain then
                    x := 0;
                    if anchor = 0 then
                        t := now;
                    end if;
                else
                    x := b_level - drain * steps;
                end if;
            elsif kind = 2 then -- the window law
                w_start := now - now % step;
                w_prev := b_prev; w_level := b_level;
                if b_at - b_at % step = w_start then
                    null;
                elsif b_at - b_at % step = w_start - step then
                    w_prev := b_level; w_level := 0;
                else
                    w_prev := 0; w_level := 0;
                end if;
                q := headgate.grain_N(step);
                f := step / q;
                x := (w_prev * least(f, (step - (now - w_start) + q - 1) / q) + f - 1) / f + w_level;
            else -- the log law
                x := carry;
                if not clear then
                    x := 0;
                    if now < b_empty and b_level > 0 then
                        x := b_level;
                        if now > b_at and not nolog then
                            select greatest(0, b_level - coalesce(sum(e.cost), 0)) into x from headgate.entries e
                            where e.limit_name = p_limits[c] and e.key = p_keys[c] and e.granted
                              and e.expires_at > b_at and e.expires_at <= now;
                        end if;
                    end if;
                end if;
            end if;

            -- Decide
            granted := 0;
            if x <= ceiling and b_block <= now and over = 0 then
                granted := least(cnt, (ceiling - x) / cost);
                if granted < cnt and not partial then
                    granted := 0;
                end if;
            end if;
            x := x + granted * cost;
            retry := 0;
            if granted < cnt then
                need := case when partial then cost else cnt * cost end;
                if need > ceiling - a_pending[c] then
                    retry := c_max;
                elsif over > 0 then
                    retry := b_empty;
                elsif x <= ceiling - need then
                    retry := now;
                elsif kind = 1 then
                    retry := headgate.after_N(t, x - (ceiling - need), anchor, drain, step,
                        p_ops[o + {op.window0}], p_ops[o + {op.window1}], p_ops[o + {op.window2}], p_ops[o + {op.window3}]);
                elsif kind = 2 then
                    at_ := w_start; prev_ := w_prev; level_ := w_level + granted * cost;
                    if need > ceiling - level_ then
                        at_ := w_start + step; prev_ := level_; level_ := 0;
                    end if;
                    room := ceiling - level_ - need;
                    retry := case when prev_ = 0 or room >= prev_ then at_ else at_ + step - q * (room * f / prev_) end;
                else
                    retry := greatest(now + step, b_empty);
                    if not nolog then
                        select least(retry, min(s.expires_at)) into retry from (
                            select e.expires_at, sum(e.cost) over (order by e.expires_at, e.number) as freed
                            from headgate.entries e
                            where e.limit_name = p_limits[c] and e.key = p_keys[c] and e.granted and e.expires_at > now) s
                        where s.freed >= x - (ceiling - need);
                    end if;
                end if;
                if granted = 0 and over = 0 and need <= ceiling - a_pending[c] and x > ceiling - need then
                    -- A limit that was changed keeps no cell longer.
                    retry := case when kind = 1 and (anchor = 2 or drain = c_max) then b_empty else least(retry, b_empty) end;
                end if;
                if p_ops[o + {op.block}] > 0 and verb = 1 and b_block <= now and retry <> c_max then
                    b_block := now + p_ops[o + {op.block}];
                    moved := true;
                end if;
                retry := greatest(retry, b_block);
            end if;
            fits := not outside and (granted = cnt or (partial and granted > 0));
            if not fits then
                admitted := false;
            end if;
            res[r + {out.granted}] := granted; res[r + {out.used}] := x; res[r + {out.clock}] := clock; res[r + {out.retry_at}] := retry;

            -- What to go back to if the group is refused: the cell as it was,
            -- Base, and what Base asks of the log.
            if several or verb = 2 or stale then
                undo := undo || array[{undo: op => k, cell => c, first => case when a_group[c] <> i then 1 else 0 end,
                    law => a_law[c], level => a_level[c], prev => a_prev[c], at => a_at[c],
                    unit => a_unit[c], empty_at => a_empty[c], blocked_until => a_block[c], step => a_step[c],
                    base_law => b_law, base_level => b_level, base_prev => b_prev, base_at => b_at,
                    base_unit => b_unit, base_empty_at => b_empty, base_blocked_until => b_block, base_step => b_step,
                    moved => moved::int, clear => clear::int, carry => carry, now => now}];
            end if;
            a_group[c] := i;
            if clear then
                a_nolog[c] := 1;
            end if;

            if fits then
                a_pending[c] := a_pending[c] + granted * cost;
                a_law[c] := b_law; a_unit[c] := b_unit; a_block[c] := b_block; a_empty[c] := b_empty; a_step[c] := step;
                if kind = 1 then
                    a_level[c] := x; a_at[c] := t; a_prev[c] := b_prev;
                    a_empty[c] := headgate.after_N(t, x, anchor, drain, step, p_ops[o + {op.window0}], p_ops[o + {op.window1}], p_ops[o + {op.window2}], p_ops[o + {op.window3}]);
                    if b_prev > 0 then
                        a_empty[c] := greatest(a_empty[c], b_empty);
                    end if;
                elsif kind = 2 then
                    w_level := w_level + granted * cost;
                    a_prev[c] := w_prev; a_level[c] := w_level; a_at[c] := now;
                    a_empty[c] := w_start + 2 * step;
                else
                    a_level[c] := x; a_at[c] := now; a_prev[c] := b_prev;
                    a_empty[c] := greatest(b_empty, now + step);
                end if;
            elsif moved and verb = 1 and not several then
                a_law[c] := b_law; a_level[c] := b_level; a_prev[c] := b_prev; a_at[c] := b_at;
                a_unit[c] := b_unit; a_empty[c] := b_empty; a_block[c] := b_block; a_step[c] := b_step;
            end if;
            if several then
                res[r + {out.law}] := a_law[c]; res[r + {out.level}] := a_level[c]; res[r + {out.prev}] := a_prev[c]; res[r + {out.at}] := a_at[c];
                res[r + {out.unit}] := a_unit[c]; res[r + {out.empty_at}] := a_empty[c]; res[r + {out.blocked_until}] := a_block[c]; res[r + {out.step}] := a_step[c];
            end if;
        end loop;
        if late and admitted then
            back := headgate.start_together_N(p_ops[(i - 1) * {op.width} + {op.verb} : j * {op.width}], res[(i - 1) * {out.width} + {out.granted} : j * {out.width}], undo);
            for k in i .. j loop
                r := (k - 1) * {out.width}; c := p_ops[(k - 1) * {op.width} + {op.cell}];
                for g in 1 .. {out.width} loop
                    res[r + g] := back[(k - i) * {out.width} + g];
                end loop;
                a_level[c] := res[r + {out.level}]; a_prev[c] := res[r + {out.prev}]; a_at[c] := res[r + {out.at}]; a_empty[c] := res[r + {out.empty_at}];
                if res[r + {out.granted}] = 0 then
                    admitted := false;
                end if;
            end loop;
        end if;

        -- settle
        if stale or verb = 2 or (several and not admitted) then -- back to where the group began
            for g in reverse coalesce(cardinality(undo), 0) / {undo.width} - 1 .. 0 loop
                o := g * {undo.width}; c := undo[o + {undo.cell}];
                a_law[c] := undo[o + {undo.law}]; a_level[c] := undo[o + {undo.level}]; a_prev[c] := undo[o + {undo.prev}]; a_at[c] := undo[o + {undo.at}];
                a_unit[c] := undo[o + {undo.unit}]; a_empty[c] := undo[o + {undo.empty_at}]; a_block[c] := undo[o + {undo.blocked_until}]; a_step[c] := undo[o + {undo.step}];
            end loop;
        end if;
        for k in i .. j loop
            o := (k - 1) * {op.width}; r := (k - 1) * {out.width}; c := p_ops[o + {op.cell}];
            if several and verb = 1 and not stale then
                u := (k - i) * {undo.width};
                moved := undo[u + {undo.moved}] = 1; clear := undo[u + {undo.clear}] = 1;
                carry := undo[u + {undo.carry}]; now := undo[u + {undo.now}]; b_empty := undo[u + {undo.base_empty_at}];
                if moved and not admitted then
                    -- The Base of a second op on a cell holds the charge of
                    -- the first: only its block is kept.
                    a_law[c] := undo[u + {undo.base_law}]; a_unit[c] := undo[u + {undo.base_unit}]; a_block[c] := undo[u + {undo.base_blocked_until}]; a_step[c] := undo[u + {undo.base_step}];
                    if undo[u + {undo.first}] = 1 then
                        a_level[c] := undo[u + {undo.base_level}]; a_prev[c] := undo[u + {undo.base_prev}]; a_at[c] := undo[u + {undo.base_at}]; a_empty[c] := undo[u + {undo.base_empty_at}];
                    end if;
                end if;
            end if;
            if not several or not admitted or verb = 2 or stale then
                res[r + {out.law}] := a_law[c]; res[r + {out.level}] := a_level[c]; res[r + {out.prev}] := a_prev[c]; res[r + {out.at}] := a_at[c];
                res[r + {out.unit}] := a_unit[c]; res[r + {out.empty_at}] := a_empty[c]; res[r + {out.blocked_until}] := a_block[c]; res[r + {out.step}] := a_step[c];
            end if;
            if stale then
                res[r + {out.granted}] := 0; res[r + {out.used}] := 0; res[r + {out.retry_at}] := 0; res[r + {out.status}] := 1;
                if several then
                    now := undo[(k - i) * {undo.width} + {undo.now}];
                end if;
                res[r + {out.clock}] := now;
                continue;
            end if;
            continue when verb = 2;
            if moved or admitted then
                a_dirty[c] := true; dirty := true;
                if clear then
                    update headgate.entries e set expires_at = 0
                    where e.limit_name = p_limits[c] and e.key = p_keys[c] and e.expires_at > 0;
                end if;
                if carry > 0 then
                    insert into headgate.entries (limit_name, key, id, at, expires_at, keep_until, cost, granted)
                    values (p_limits[c], p_keys[c], 'carried over', now, b_empty, now + greatest(p_ops[o + {op.step}], p_ops[o + {op.history}]), carry, true);
                end if;
            end if;
            if p_ops[o + {op.kind}] = 3 and (admitted or p_ops[o + {op.history}] > 0) then
                insert into headgate.entries (limit_name, key, id, at, expires_at, keep_until, cost, granted)
                values (p_limits[c], p_keys[c], coalesce(p_notes[k], ''), now,
                    case when admitted then now + p_ops[o + {op.step}] else 0 end,
                    now + greatest(p_ops[o + {op.history}], case when admitted then p_ops[o + {op.step}] else 0 end),
                    case when admitted then res[r + {out.granted}] else p_ops[o + {op.count}] end * p_ops[o + {op.cost}], admitted)
                returning number into entry;
                res[r + {out.entry}] := entry;
            end if;
        end loop;
        i := j + 1;
    end loop;

    if dirty then
        update headgate.cells e
        set law = u.law, level = u.level, prev = u.prev, at = u.at, unit = u.unit, step = u.step, empty_at = u.empty,
            blocked_until = u.block, reason = case when e.blocked_until = u.block then e.reason else '' end
        from unnest(p_limits, p_keys, a_law, a_level, a_prev, a_at, a_unit, a_step, a_empty, a_block, a_dirty)
            u(l, k, law, level, prev, at, unit, step, empty, block, dirty)
        where u.dirty and e.limit_name = any (array[u.l]) and e.key = u.k;
    end if;
    if gone then
        delete from headgate.cells e using unnest(p_limits, p_keys, a_law, a_gone) u(l, k, law, gone)
        where u.gone and u.law = 0 and e.limit_name = any (array[u.l]) and e.key = u.k;
    end if;
    return res;
end $$;
