-- headgate_internal.apply_plain_N is for a batch of which some requests are plain: charges of the bucket law
-- without a calendar, with an id or without, which are granted, and settlements of such charges at no
-- more than they had cost. One statement locks the cells. Another looks up the ids, decides about all of
-- it, and writes cells and ids if all of it fits. What does not fit is left, and decided by
-- headgate_internal.apply_N or headgate_internal.apply_once_N in the same call. Arguments and results are those of
-- headgate_internal.apply_once_N; p_prints and p_parts are null if nothing has an id.
--
-- The order of the batch is kept on each cell: after a request that is left, all on its
-- cells are left too.
create or replace function headgate_internal.apply_plain_N(
    p_limits text[], p_keys text[], p_modes smallint[], p_ops bigint[], p_notes text[], p_prints bigint[], p_parts int[])
returns bigint[] language plpgsql volatile
set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    size int := cardinality(p_ops) / {op.width};
    store_clock bigint;
    -- the cells
    places tid[]; c_law smallint[]; c_level bigint[]; c_prev bigint[]; c_at bigint[]; c_unit bigint[]; c_step bigint[];
    c_empty bigint[]; c_block bigint[]; c_generation bigint[];
    made int;
    rest boolean[]; -- of each op: it is left; null: none is
    asked int[]; fits boolean[]; outcomes bigint[]; -- of the other ops
    closed boolean[]; -- of each cell: what comes next on it is left
    first_ int; last_ int; together boolean; ops int[]; cells bigint[]; part bigint[];
    limits text[]; keys text[]; modes smallint[]; left_ops bigint[]; notes text[];
begin
    -- What an earlier part did is seen by the next one: that is for headgate_internal.apply_once_N.
    if cardinality(p_parts) > 1 then
        return headgate_internal.apply_once_N(p_limits, p_keys, p_modes, p_ops, p_notes, p_prints, p_parts);
    end if;
    loop
        select array_agg(e.place), array_agg(e.law), array_agg(e.level), array_agg(e.prev), array_agg(e.at), array_agg(e.unit),
            array_agg(e.step), array_agg(e.empty_at), array_agg(e.blocked_until), array_agg(e.generation), count(x.made)
        into places, c_law, c_level, c_prev, c_at, c_unit, c_step, c_empty, c_block, c_generation, made
        from unnest(p_limits, p_keys, p_modes) u(l, k, m)
        left join lateral (select c.ctid as place, c.* from headgate.cells c
            where u.m in (1, 2) and c.limit_name = u.l and c.key = u.k for no key update) e on true
        -- A settlement makes its cell too: else it might be there when headgate_internal.apply_once_N locks what is left.
        cross join lateral (select case when u.m in (1, 2) and e.place is null
            then headgate_internal.make_cell_N(u.l, u.k) end as made offset 0) x;
        exit when made = 0; -- else these can be read now
    end loop;
    store_clock := (extract(epoch from clock_timestamp()) * 1000000)::bigint;

    for try in 1 .. 4 loop
        {{template "charge once"}}
        exit when asked is null or true = all (fits);

        -- What does not fit is left, with all of its request, and what comes after it on its cells.
        rest := coalesce(rest, array_fill(false, array[size]));
        for k in 1 .. cardinality(asked) loop
            rest[asked[k]] := not fits[k] or try = 3;
        end loop;
        closed := array_fill(false, array[cardinality(p_limits)]);
        first_ := 1;
        while first_ <= size loop
            together := true;
            last_ := first_;
            loop
                together := together and not rest[last_] and not closed[p_ops[(last_ - 1) * {op.width} + {op.cell}]];
                exit when last_ = size or p_ops[last_ * {op.width} + {op.group}] <> p_ops[(first_ - 1) * {op.width} + {op.group}];
                last_ := last_ + 1;
            end loop;
            for k in first_ .. last_ loop
                exit when together;
                rest[k] := true;
                closed[p_ops[(k - 1) * {op.width} + {op.cell}]] := true;
            end loop;
            first_ := last_ + 1;
        end loop;
        if try = 1 and p_prints is not null then
            -- All of them, before some are written.
            perform headgate_internal.lock_ids_N(p_notes, array(select c_generation[p_ops[(u.k - 1) * {op.width} + {op.cell}]] from generate_series(1, size) u(k) order by u.k));
        end if;
    end loop;
    if rest is null then
        return outcomes;
    end if;

    ops := array(select u.k::int from unnest(rest) with ordinality u(left_, k) where u.left_ order by 1);
    cells := array(select distinct p_ops[(u.k - 1) * {op.width} + {op.cell}] from unnest(ops) u(k) order by 1);
    limits := array(select p_limits[u.c] from unnest(cells) with ordinality u(c, i) order by u.i);
    keys := array(select p_keys[u.c] from unnest(cells) with ordinality u(c, i) order by u.i);
    modes := array(select p_modes[u.c] from unnest(cells) with ordinality u(c, i) order by u.i);
    left_ops := array(select case when w.o = {op.cell} then array_position(cells, w.v) else w.v end
        from unnest(ops) with ordinality u(k, i),
            unnest(p_ops[(u.k - 1) * {op.width} + {op.verb} : u.k * {op.width}]) with ordinality w(v, o) order by u.i, w.o);
    notes := array(select p_notes[u.k] from unnest(ops) with ordinality u(k, i) order by u.i);
    if p_prints is null then
        part := headgate_internal.apply_N(limits, keys, modes, left_ops, notes);
    else
        part := headgate_internal.apply_once_N(limits, keys, modes, left_ops, notes,
            array(select p_prints[u.k] from unnest(ops) with ordinality u(k, i) order by u.i), array[cardinality(ops)]);
    end if;
    return array(select w.v from (
            select u.k, null::int as own, u.i as other from unnest(ops) with ordinality u(k, i)
            union all
            select u.k, u.i, null from unnest(asked) with ordinality u(k, i)) u,
        lateral unnest(case when u.own is null then part[(u.other - 1) * {out.width} + 1 : u.other * {out.width}] else outcomes[u.own : u.own] end)
            with ordinality w(v, o) order by u.k, w.o);
end $$;
