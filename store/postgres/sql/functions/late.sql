-- headgate.start_together_N is late of package law, for a request that every cell of
-- it admits: when it may start, and to what the levels are raised for all of it to
-- count from then.
--
-- p_ops, p_res  the numbers of its ops and of their outcomes, as headgate.apply_N has them
-- p_undo        23 numbers for each op, as headgate.apply_N keeps them to go back: 12 to
--               19 are Base, the last is the time of the decision
-- returns       the outcomes; the request is refused if granted is 0 in one of them
create or replace function headgate.start_together_N(p_ops bigint[], p_res bigint[], p_undo bigint[])
returns bigint[] language plpgsql immutable as $$
declare
    c_max constant bigint := 9007199254740991;
    n int := cardinality(p_ops) / 25;
    o int; r int; u int; c int;
    own bigint[]; -- when each could start if it were alone
    start bigint := 0;
    pending bigint[] := '{}'; -- of each cell
    refused boolean := false;
    x bigint; steps bigint; step bigint; drain bigint; prev bigint; empty bigint;
begin
    for k in 1 .. n loop
        o := (k - 1) * 25; r := (k - 1) * 15;
        own[k] := p_undo[(k - 1) * 23 + 23];
        if p_res[r + 9] > p_ops[o + 7] then
            own[k] := greatest(own[k], headgate.after_N(p_res[r + 5], p_res[r + 9] - p_ops[o + 7], 0, p_ops[o + 9], p_ops[o + 8], 0, 0, 0, 0));
        end if;
        start := greatest(start, own[k]);
    end loop;
    for k in 1 .. n loop
        o := (k - 1) * 25; r := (k - 1) * 15; u := (k - 1) * 23; c := p_ops[o + 3];
        step := p_ops[o + 8]; drain := p_ops[o + 9];
        pending[c] := coalesce(pending[c], 0) + p_ops[o + 12] * p_ops[o + 13];
        p_res[r + 14] := start;
        continue when start <= p_undo[u + 23];
        -- raise. Rounded up: a cell that would be empty before the start, and begin
        -- its next step then, must not seem emptier at any time after it.
        steps := (greatest(0, start - p_res[r + 5]) + step - 1) / step;
        if steps > (c_max - pending[c]) / drain then
            p_res[r + 1] := 0; p_res[r + 11] := start;
            refused := true;
            continue;
        end if;
        x := greatest(p_res[r + 9], steps * drain + pending[c]);
        prev := p_undo[u + 14];
        if start > own[k] then
            -- What was charged before may be part of the level no more, and the level
            -- may not fall below that: nothing of it can be returned.
            prev := least(prev + p_res[r + 9], c_max);
        end if;
        empty := headgate.after_N(p_res[r + 5], x, 0, drain, step, 0, 0, 0, 0);
        if prev > 0 then
            empty := greatest(empty, p_undo[u + 17]);
        end if;
        p_res[r + 3] := x; p_res[r + 4] := prev; p_res[r + 7] := empty; p_res[r + 9] := x;
    end loop;
    if refused then
        for k in 1 .. n loop
            p_res[(k - 1) * 15 + 14] := 0;
        end loop;
    end if;
    return p_res;
end $$;
