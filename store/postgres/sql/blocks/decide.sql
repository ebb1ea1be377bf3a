{{- /*
How headgate.apply decides about op k of a request that begins with op i: Decide of
package law. The state of cell c is in a_law[c], a_level[c] and so on.
*/ -}}

{{- /* op reads the op. */ -}}
{{define "op" -}}
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
{{- end}}

{{- /*
rebase brings the cell under the limit that the op has, into Base, which is in b_law,
b_level and so on: it heals the cell's time, forgets what has drained, and converts what
was written under another limit. over is what a cell has in use that must not be
converted; moved says that Base is to be written also if the op is refused.
*/ -}}
{{define "rebase" -}}
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
        when 1 then headgate_internal.add_steps_N(0, (capacity + drain - 1) / drain, step)
        when 2 then headgate_internal.add_steps_N(0, 2, step)
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
    fold := b_law <> kind or kind = 3 or kind = 2 and b_step <> step;
    scaled := div((b_level + case when fold and b_law = 2 then b_prev else 0 end)::numeric * unit + b_unit - 1, b_unit);
    most := case when kind = 1 then least(drain, capacity) else capacity end; -- perStep
    if not moved and (scaled >= c_max or scaled > capacity and most = capacity) then
        over := least(scaled, c_max);
        empty := headgate_internal.add_steps_N(now, (over + most - 1) / most, step);
        if over < c_max and b_law <> 3 and empty < b_empty then
            b_empty := empty; moved := true;
        end if;
    end if;
end if;
if converted and over = 0 then
    if fold then
        b_prev := 0; b_at := now;
    elsif kind = 1 and b_step <> step then
        b_at := least(now, headgate_internal.add_steps_N(b_at, 1, b_step));
    end if;
    most := case when kind = 2 then 4294967295 else c_max end;
    b_level := least(scaled, most);
    b_prev := least(div(b_prev::numeric * unit + b_unit - 1, b_unit), most);
    if kind = 1 then
        b_prev := least(b_prev + b_level, c_max);
    end if;
    b_law := kind; b_unit := unit; b_step := step;
end if;
if over = 0 and (moved or converted) then
    empty := case when b_level = 0 and (b_prev = 0 or kind = 1) then 0
        when kind = 2 then {{template "empty window" (as "level" "b_level" "prev" "b_prev")}}
        when kind = 3 then now + step
        else {{template "after" (as "t" "case when anchor = 2 then now else b_at end" "credits" "b_level")}} end;
    -- at empty_at a bucket forgets what was returned to it, so a conversion must not bring empty_at nearer
    if moved or empty < b_empty and (b_prev = 0 or b_level > 0 and (kind <> 1 or anchor = 2 or drain >= capacity)) then
        b_empty := empty;
    end if;
    moved := true;
    if kind = 3 then
        clear := true; carry := b_level; nolog := true;
    end if;
end if;
{{- end}}

{{- /* use finds x, the credits in use now, and in a bucket t, the time that they hold for. */ -}}
{{define "use" -}}
if kind = 1 and anchor = 2 or p_ops[o + {op.since}] <> 0 or p_ops[o + {op.lapse}] <> 0 then
    outside := kind = 1 and anchor = 2 and (now < p_ops[o + {op.window0}] or now >= p_ops[o + {op.window3}])
        or now < p_ops[o + {op.since}] or p_ops[o + {op.lapse}] <> 0 and now >= p_ops[o + {op.lapse}];
    stale := stale or outside;
end if;
if over > 0 then
    x := over; t := now;
elsif kind = 1 then
    {{template "use bucket"}}
elsif kind = 2 then
    {{template "use window"}}
else
    {{template "use log" (as "limit" "p_limits[c]" "key" "p_keys[c]")}}
end if;
{{- end}}

{{- /*
no longer is the retry time of a refusal that time alone ends. A limit that was changed keeps no cell
longer than until it is empty. whole says that the cell empties all at once.
*/ -}}
{{define "no longer" -}}
case when {{.whole}} then {{.empty}} else least({{.retry}}, {{.empty}}) end
{{- end}}

{{- /* decide finds how many are granted, x with those, and when the others could pass. */ -}}
{{define "decide" -}}
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
        retry := {{template "after" (as "t" "t" "credits" "x - (ceiling - need)")}};
    elsif kind = 2 then
        {{template "retry window"}}
    else
        {{template "retry log" (as "limit" "p_limits[c]" "key" "p_keys[c]" "over" "x - (ceiling - need)")}}
    end if;
    if granted = 0 and over = 0 and need <= ceiling - a_pending[c] and x > ceiling - need then
        retry := {{template "no longer" (as "whole" "kind = 1 and (anchor = 2 or drain = c_max)" "retry" "retry" "empty" "b_empty")}};
    end if;
    if p_ops[o + {op.block}] > 0 and verb = 1 and b_block <= now and retry <> c_max then
        b_block := now + p_ops[o + {op.block}];
        moved := true;
    end if;
    retry := greatest(retry, b_block);
elsif kind = 3 and verb = 1 and p_ops[o + {op.how}] <> 3 and x > capacity - least(unit, capacity) then
    {{template "retry log" (as "limit" "p_limits[c]" "key" "p_keys[c]" "over" "x - (capacity - least(unit, capacity))")}}
end if;
fits := not outside and (granted = cnt or (partial and granted > 0));
if not fits then
    admitted := false;
end if;
res[r + {out.granted}] := granted; res[r + {out.used}] := x; res[r + {out.clock}] := clock; res[r + {out.retry_at}] := retry;
{{- end}}

{{- /* charge keeps what to go back to, and writes what is granted into the cell. */ -}}
{{define "charge" -}}
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
        a_empty[c] := {{template "empty after" (as "t" "t" "credits" "x" "prev" "b_prev" "empty" "b_empty")}};
    elsif kind = 2 then
        w_level := w_level + granted * cost;
        a_prev[c] := w_prev; a_level[c] := w_level; a_at[c] := now;
        a_empty[c] := {{template "empty window" (as "level" "w_level" "prev" "w_prev")}};
    else
        a_level[c] := x; a_at[c] := now; a_prev[c] := b_prev;
        a_empty[c] := greatest(b_empty, now + step);
    end if;
elsif moved and verb = 1 and not several then
    a_law[c] := b_law; a_level[c] := b_level; a_prev[c] := b_prev; a_at[c] := b_at;
    a_unit[c] := b_unit; a_empty[c] := b_empty; a_block[c] := b_block; a_step[c] := b_step;
end if;
{{- end}}
