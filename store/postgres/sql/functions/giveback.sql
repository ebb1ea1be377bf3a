-- headgate_internal.give_back_N is correct of package law: one op that returns, or charges in
-- addition, as headgate_internal.apply_N has it, on the cell s, which the caller has locked. It
-- returns the outcome and changes the entry. The caller writes the cell.
create or replace function headgate_internal.give_back_N(p_limit text, p_key text, op bigint[], s bigint[], clock bigint)
returns bigint[] language plpgsql volatile as $$
declare
    c_max constant bigint := 9007199254740991;
    p_ops alias for op; o constant int := 0; -- as in headgate_internal.apply_N
    whole boolean := op[{op.anchor}] = 2 or op[{op.drain}] = 9007199254740991; -- the bucket forgets all at once
    kind bigint := op[{op.kind}]; anchor bigint := op[{op.anchor}]; capacity bigint := op[{op.capacity}];
    step bigint := op[{op.step}]; drain bigint := op[{op.drain}];
    n bigint := op[{op.cost}] * op[{op.count}];
    made bigint := op[{op.at}];
    fresh boolean := s[{cell.law}] = 0 and n < 0; -- empty for so long that it was swept
    b_level bigint := s[{cell.level}]; b_prev bigint := s[{cell.prev}]; b_at bigint := s[{cell.at}]; b_empty bigint := s[{cell.empty_at}];
    now bigint := greatest(clock, b_at);
    outside boolean := kind = 1 and anchor = 2 and (now < op[{op.window0}] or now >= op[{op.window3}]);
    back bigint := 0; x bigint := 0; t bigint; steps bigint;
    returned bigint; rest bigint; then_ bigint;
    w_prev bigint; w_level bigint; w_start bigint; q bigint; f bigint;
begin
    if now >= b_empty then
        b_level := 0; b_prev := 0;
    end if;
    if outside then
        clock := now;
    elsif not fresh and (s[{cell.law}] <> kind or s[{cell.unit}] <> op[{op.unit}] or kind < 3 and s[{cell.step}] <> op[{op.step}]) then
        null; -- reset, or the limit was changed
    elsif kind = 1 then -- the bucket law
        {{template "use bucket"}}

        -- The steps since the charge was made: a window that each of them empties
        -- is over after the first.
        then_ := greatest(now, made);
        steps := case when anchor = 2 then (greatest(made, {{template "boundary" (as "now" "then_")}}) > made)::int
            else {{template "steps" (as "at" "made" "now" "then_")}} end;
        if n > 0 then -- undrained: what is left of the level that the charge made
            returned := greatest(0, b_prev - op[{op.returned}]);
            rest := {{template "left" (as "level" "op[{op.level}]" "steps" "steps")}};
            if made > now then
                back := 0;
            elsif x > capacity and not whole then
                back := greatest(0, least(n, capacity - (drain - 1)) - greatest(0, x - rest + returned));
            else
                back := least(n, greatest(0, rest - returned));
            end if;
            back := least(back, x);
            if b_prev > c_max - back then
                back := 0;
            end if;
            if not whole then
                b_prev := b_prev + back;
            end if;
        elsif steps = 0 or anchor = 0 and drain < capacity then
            back := greatest(n, x - c_max);
        end if;
        x := x - back;
        if back <> 0 then
            b_level := x; b_at := t;
        end if;
        if back < 0 then
            b_empty := {{template "empty after" (as "t" "t" "credits" "x" "prev" "b_prev" "empty" "b_empty")}};
        end if;
    elsif kind = 2 then -- the window law
        {{template "use window"}}
        if made - made % step = w_start then
            back := greatest(least(n, w_level), w_level - 4294967295);
        end if;
        x := x - back;
        if back <> 0 then
            b_level := w_level - back; b_prev := w_prev; b_at := now;
            b_empty := {{template "empty window" (as "level" "b_level" "prev" "b_prev")}};
        end if;
    else -- the log law
        if now < b_empty and b_level > 0 then
            x := b_level;
            if now > b_at then
                {{template "expire log" (as "limit" "p_limit" "key" "p_key")}}
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
            b_level := x; b_at := now;
        end if;
    end if;
    if back = 0 then
        return array[{out: granted => 0, law => s[{cell.law}], level => s[{cell.level}], prev => s[{cell.prev}], at => s[{cell.at}],
            unit => s[{cell.unit}], empty_at => s[{cell.empty_at}], blocked_until => s[{cell.blocked_until}], used => x, clock => clock,
            status => outside::int, step => s[{cell.step}]}];
    end if;
    return array[{out: granted => back, law => kind, level => b_level, prev => b_prev, at => b_at, unit => op[{op.unit}],
        empty_at => b_empty, blocked_until => s[{cell.blocked_until}], used => x, clock => clock, step => step}];
end $$;

-- headgate_internal.give_back_twice_N is correctAll of package law for a charge that was extended: what is unused is
-- given back by the last extension first. Arguments and result are those of headgate_internal.give_back_N. The numbers of
-- the op are those of the extension, with the extension's cost and those of the first charge in the places that list settle of layout.go names.
create or replace function headgate_internal.give_back_twice_N(p_limit text, p_key text, op bigint[], s bigint[], clock bigint)
returns bigint[] language plpgsql volatile as $$
declare
    unused constant bigint := op[{op.cost}];
    last constant bigint := op[{settle.last_cost}];
    before constant bigint := s[{cell.prev}];
    given bigint; res bigint[];
begin
    op[{op.cost}] := least(unused, last);
    res := headgate_internal.give_back_N(p_limit, p_key, op, s, clock);
    if unused <= last then
        return res;
    end if;
    given := res[{out.granted}];
    -- The last extension was charged later, and takes nothing from what was charged first.
    op[{op.returned}] := op[{settle.first_returned}] + res[{out.prev}] - before;
    op[{op.cost}] := unused - last; op[{op.level}] := op[{settle.first_level}]; op[{op.at}] := op[{settle.first_at}];
    res := headgate_internal.give_back_N(p_limit, p_key, op, array[{cell: law => res[{out.law}], level => res[{out.level}], prev => res[{out.prev}],
        at => res[{out.at}], unit => res[{out.unit}], empty_at => res[{out.empty_at}], blocked_until => res[{out.blocked_until}],
        step => res[{out.step}]}], clock);
    res[{out.granted}] := res[{out.granted}] + given;
    return res;
end $$;
