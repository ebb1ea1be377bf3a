-- headgate_internal.apply_N: a batch of ops, their groups one after another in order, each
-- all or nothing. It is package law line by line, with the same names; change
-- both or neither. The laws themselves, and how they are applied to an op, are blocks in
-- sql/blocks.
--
-- Locks the cells of the batch, and makes those that are missing, in the order of p_limits,
-- p_keys, which the caller sorts; reads the clock after that, once. Writes the cells that changed
-- in one update, and one row of headgate.entries for each attempt of a limit
-- that keeps a log. A refusal writes no cell, except as law says.
--
-- p_limits, p_keys  the distinct cells, sorted
-- p_modes           for each: 0 read it, 1 lock it if it exists, 2 create and lock it
-- p_ops             the numbers of each op: see opLayout in layout.go. Its how is 1 for a
--                   partial op, 2 for a deferred one and 3 for one that extends a
--                   charge of that entry. What is given back has the
--                   time and level, sum returned and entry of its charge. Ops that
--                   settle or extend come from headgate_internal.apply_once_N, which knows what: the
--                   cost of one that settles is what is to be given back, its count 0 if
--                   that was done; one that extends takes what is to be charged in addition
-- p_notes           for each op the id, or a block's reason; null: none has any
-- returns           the numbers of each outcome: see law.Numbers. Its status is 0 for
--                   done, 1 for stale and 2 for replayed

-- headgate_internal.make_cell_N makes a cell that was missing, or locks it if another session was
-- first, and returns its place in the table, as a text. Whoever makes a cell waits for a session that
-- has made it and is not done, as whoever locks it does. So a statement that locks the cells
-- of a batch calls this function for each that is missing, before it goes on to the next: with one
-- order of all cells, for both, sessions cannot wait for each other in a circle.
create or replace function headgate_internal.make_cell_N(p_limit text, p_key text) returns text language plpgsql volatile as $$
declare
    place text;
begin
    for try in 1 .. 100 loop
        insert into headgate.cells as c (limit_name, key) values (p_limit, p_key) on conflict do nothing returning c.ctid into place;
        if place is null then
            select c.ctid into place from headgate.cells c where c.limit_name = p_limit and c.key = p_key for update;
        end if;
        if place is not null then -- else a sweep came between
            return place;
        end if;
    end loop;
    raise exception 'headgate: cells vanish while they are locked' using errcode = '40001';
end $$;

create or replace function headgate_internal.apply_N(
    p_limits text[], p_keys text[], p_modes smallint[], p_ops bigint[], p_notes text[])
returns bigint[] language plpgsql volatile
-- One plan for all calls, by the primary key however small the table was when
-- it was made: planning each call would cost more than the call.
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
    found int; wanted int;
    store_clock bigint;
    res bigint[] := array_fill(0::bigint, array[n * {out.width}]);
    -- the group
    i int; j int; k int; o int; r int; c int; verb int; alternative bigint; passed boolean := false;
    admitted boolean; stale boolean; outside boolean; fits boolean; late boolean; several boolean;
    undo bigint[]; back bigint[];
    -- the op
    kind bigint; anchor bigint; unit bigint; capacity bigint; step bigint; drain bigint;
    cost bigint; cnt bigint; partial boolean; ceiling bigint; clock bigint; now bigint;
    -- the decision: Base, and what goes with it
    b_law bigint; b_level bigint; b_prev bigint; b_at bigint; b_unit bigint; b_empty bigint; b_block bigint; b_step bigint;
    moved boolean; clear boolean; carry bigint; nolog boolean; converted boolean; fold boolean;
    scaled numeric; over bigint; most bigint;
    -- use
    x bigint; t bigint; empty bigint;
    w_prev bigint; w_level bigint; w_start bigint; q bigint; f bigint;
    granted bigint; need bigint; retry bigint; room bigint; at_ bigint; prev_ bigint; level_ bigint;
    entry bigint; u int;
begin
    -- The planner must look up each row by the primary key, also if the table was
    -- empty when it made the plan: then it prefers to read the whole index for each
    -- batch. So a subquery or a lateral one with a lock or an offset, which it does
    -- not turn into a join, reads cells; an update or a delete, which must join,
    -- says any (array[..]) instead of =, by which it can do nothing else.
    loop
        select array_agg(coalesce(y.law, z.law, 0)::bigint), array_agg(coalesce(y.level, z.level, 0)),
               array_agg(coalesce(y.prev, z.prev, 0)), array_agg(coalesce(y.at, z.at, 0)),
               array_agg(coalesce(y.unit, z.unit, 0)), array_agg(coalesce(y.empty_at, z.empty_at, 0)),
               array_agg(coalesce(y.blocked_until, z.blocked_until, 0)), array_agg(coalesce(y.step, z.step, 0)),
               count(y.law) filter (where u.m = 2), count(*) filter (where u.m = 2)
        into a_law, a_level, a_prev, a_at, a_unit, a_empty, a_block, a_step, found, wanted
        from unnest(p_limits, p_keys, p_modes) u(l, k, m)
        left join lateral (select * from headgate.cells e
            where u.m in (1, 2) and e.limit_name = u.l and e.key = u.k for update) y on true
        left join lateral (select * from headgate.cells e
            where u.m = 0 and e.limit_name = u.l and e.key = u.k offset 0) z on true -- offset 0 keeps the order
        cross join lateral (select case when u.m = 2 and y.law is null then headgate_internal.make_cell_N(u.l, u.k) end as made offset 0) x;
        exit when found = wanted; -- else what is made can be read now
    end loop;
    store_clock := (extract(epoch from clock_timestamp()) * 1000000)::bigint;

    i := 1;
    while i <= n loop
        o := (i - 1) * {op.width};
        verb := p_ops[o + {op.verb}];
        alternative := p_ops[o + {op.alternative}];
        j := i;
        while j < n and p_ops[j * {op.width} + {op.group}] = p_ops[o + {op.group}] and p_ops[j * {op.width} + {op.alternative}] = alternative loop
            j := j + 1;
        end loop;
        if not passed and j < n and p_ops[j * {op.width} + {op.group}] = p_ops[o + {op.group}] then
            verb := 2; -- an alternative that is not the last is charged if it passes a check: applyFirst of package law
        end if;

        if verb > 2 then -- each on its own
            {{template "apart"}}
            i := j + 1;
            continue;
        end if;

        -- take, check: decide about each op, then settle all.
        admitted := true; stale := false; undo := null;
        late := p_ops[o + {op.how}] = 2;
        several := j > i or late;
        for k in i .. j loop
            {{template "op"}}
            {{template "rebase"}}
            {{template "use"}}
            {{template "decide"}}
            {{template "charge"}}
            if several then
                {{template "answer cell"}}
            end if;
        end loop;
        if late and admitted then
            back := headgate_internal.start_together_N(p_ops[(i - 1) * {op.width} + {op.verb} : j * {op.width}], res[(i - 1) * {out.width} + {out.granted} : j * {out.width}], undo);
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
            if not admitted and res[r + {out.granted}] = p_ops[o + {op.count}] then
                res[r + {out.retry_at}] := 0; -- see Outcome
            end if;
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
                {{template "answer cell"}}
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
                {{template "record" (as "limit" "p_limits[c]" "key" "p_keys[c]" "id" "coalesce(p_notes[k], '')" "step" "p_ops[o + {op.step}]" "history" "p_ops[o + {op.history}]" "cost" "case when admitted then res[r + {out.granted}] else p_ops[o + {op.count}] end * p_ops[o + {op.cost}]")}}
                res[r + {out.entry}] := entry;
                if admitted and p_ops[o + {op.how}] = 3 then
                    {{template "move" (as "limit" "p_limits[c]" "key" "p_keys[c]" "before" "p_ops[o + {op.entry}]")}}
                end if;
            end if;
        end loop;
        passed := alternative > 0 and verb = 2 and admitted and p_ops[(i - 1) * {op.width} + {op.verb}] = 1;
        continue when passed; -- once more, to charge it
        while alternative > 0 and (admitted or stale) and j < n and p_ops[j * {op.width} + {op.group}] = p_ops[(i - 1) * {op.width} + {op.group}] loop
            j := j + 1; -- the others are not tried
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
