-- headgate_internal.start_together_N is late of package law, for a request that every cell of
-- it admits: when it may start, and to what the levels are raised for all of it to
-- count from then.
--
-- p_ops, p_res  the numbers of its ops and of their outcomes, as headgate_internal.apply_N has them
-- p_undo        what headgate_internal.apply_N keeps of each op to go back to
-- returns       the outcomes; the request is refused if granted is 0 in one of them
create or replace function headgate_internal.start_together_N(p_ops bigint[], p_res bigint[], p_undo bigint[])
returns bigint[] language plpgsql immutable as $$
declare
    c_max constant bigint := 9007199254740991;
    anchor constant bigint := 0; -- of all limits whose ops may be deferred
    n int := cardinality(p_ops) / {op.width};
    o int; r int; u int; c int;
    own bigint[]; -- when each could start if it were alone
    start bigint := 0;
    pending bigint[] := '{}'; -- of each cell
    refused boolean := false;
    x bigint; steps bigint; step bigint; drain bigint; prev bigint; empty bigint;
begin
    for k in 1 .. n loop
        o := (k - 1) * {op.width}; r := (k - 1) * {out.width};
        step := p_ops[o + {op.step}]; drain := p_ops[o + {op.drain}];
        own[k] := p_undo[(k - 1) * {undo.width} + {undo.now}];
        if p_res[r + {out.used}] > p_ops[o + {op.capacity}] then
            own[k] := greatest(own[k], {{template "after" (as "t" "p_res[r + {out.at}]" "credits" "p_res[r + {out.used}] - p_ops[o + {op.capacity}]")}});
        end if;
        start := greatest(start, own[k]);
    end loop;
    for k in 1 .. n loop
        o := (k - 1) * {op.width}; r := (k - 1) * {out.width}; u := (k - 1) * {undo.width}; c := p_ops[o + {op.cell}];
        step := p_ops[o + {op.step}]; drain := p_ops[o + {op.drain}];
        pending[c] := coalesce(pending[c], 0) + p_ops[o + {op.cost}] * p_ops[o + {op.count}];
        p_res[r + {out.start_at}] := start;
        continue when start <= p_undo[u + {undo.now}];
        -- raise. Rounded up: a cell that would be empty before the start, and begin
        -- its next step then, must not seem emptier at any time after it.
        steps := (greatest(0, start - p_res[r + {out.at}]) + step - 1) / step;
        if steps > (c_max - pending[c]) / drain then
            p_res[r + {out.granted}] := 0; p_res[r + {out.retry_at}] := start;
            refused := true;
            continue;
        end if;
        x := greatest(p_res[r + {out.used}], steps * drain + pending[c]);
        prev := p_undo[u + {undo.base_prev}];
        if start > own[k] then
            -- What was charged before may be part of the level no more, and the level
            -- may not fall below that: nothing of it can be returned.
            prev := least(prev + p_res[r + {out.used}], c_max);
        end if;
        empty := {{template "empty after" (as "t" "p_res[r + {out.at}]" "credits" "x" "prev" "prev" "empty" "p_undo[u + {undo.base_empty_at}]")}};
        p_res[r + {out.level}] := x; p_res[r + {out.prev}] := prev; p_res[r + {out.empty_at}] := empty; p_res[r + {out.used}] := x;
    end loop;
    if refused then
        for k in 1 .. n loop
            p_res[(k - 1) * {out.width} + {out.start_at}] := 0;
        end loop;
    end if;
    return p_res;
end $$;
