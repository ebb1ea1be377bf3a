{{- /*
What headgate.apply does for the verbs whose ops each stand alone: return, settle, renew,
block and reset, of the request of the ops i to j.
*/ -}}

{{- /* answer cell puts the state of cell c into the outcome of an op. */ -}}
{{define "answer cell" -}}
res[r + {out.law}] := a_law[c]; res[r + {out.level}] := a_level[c]; res[r + {out.prev}] := a_prev[c]; res[r + {out.at}] := a_at[c];
res[r + {out.unit}] := a_unit[c]; res[r + {out.empty_at}] := a_empty[c]; res[r + {out.blocked_until}] := a_block[c]; res[r + {out.step}] := a_step[c];
{{- end}}

{{define "apart" -}}
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
    if stale or verb = 4 and p_ops[o + {op.count}] = 0 then -- settled before
        {{template "answer cell"}}
        res[r + {out.clock}] := case when stale then greatest(clock, a_at[c]) else clock end;
        res[r + {out.status}] := case when stale then 1 else 2 end;
    elsif verb < 5 then
        {{template "give back"}}
    elsif verb = 7 then
        {{template "renew"}}
    elsif verb = 5 then
        {{template "block"}}
    elsif verb = 6 then
        {{template "reset"}}
    else -- of a program that is newer than these functions
        perform headgate_internal.fail_N(format('verb: %s is not known here', verb));
    end if;
end loop;
{{- end}}

{{define "give back" -}}
back := array[{cell: law => a_law[c], level => a_level[c], prev => a_prev[c], at => a_at[c], unit => a_unit[c],
    empty_at => a_empty[c], blocked_until => a_block[c], step => a_step[c]}];
if verb = 4 and p_ops[o + {settle.last_cost}] > 0 then -- it was extended
    back := headgate_internal.give_back_twice_N(p_limits[c], p_keys[c], p_ops[o + 1 : o + {op.width}], back, clock);
else
    back := headgate_internal.give_back_N(p_limits[c], p_keys[c], p_ops[o + 1 : o + {op.width}], back, clock);
end if;
if back[{out.granted}] <> 0 then
    a_law[c] := back[{out.law}]; a_level[c] := back[{out.level}]; a_prev[c] := back[{out.prev}]; a_at[c] := back[{out.at}];
    a_unit[c] := back[{out.unit}]; a_empty[c] := back[{out.empty_at}]; a_step[c] := back[{out.step}];
    a_dirty[c] := true; dirty := true;
end if;
for g in 1 .. {out.width} loop
    res[r + g] := back[g];
end loop;
{{- end}}

{{define "renew" -}}
if a_law[c] = p_ops[o + {op.kind}] and a_unit[c] = p_ops[o + {op.unit}] then
    now := greatest(clock, a_at[c]);
    update headgate.entries e
    set expires_at = greatest(e.expires_at, now + p_ops[o + {op.step}]),
        keep_until = greatest(e.keep_until, now + p_ops[o + {op.step}]) -- never less: see law/renew.go
    where e.number = p_ops[o + {op.entry}] and e.limit_name || '' = p_limits[c] and e.key || '' = p_keys[c]
      and e.granted and e.expires_at + 0 > now; -- by number only
    get diagnostics u = row_count;
    if u > 0 then
        res[r + {out.granted}] := 1;
        a_empty[c] := greatest(a_empty[c], now + p_ops[o + {op.step}]);
        a_dirty[c] := true; dirty := true;
    end if;
end if;
{{template "answer cell"}}
res[r + {out.clock}] := clock;
{{- end}}

{{define "block" -}}
if a_law[c] = 0 then
    a_law[c] := p_ops[o + {op.kind}]; a_unit[c] := p_ops[o + {op.unit}]; a_step[c] := p_ops[o + {op.step}];
end if;
a_block[c] := case when p_ops[o + {op.ttl}] > 0 then greatest(clock, a_at[c]) + p_ops[o + {op.ttl}] else 0 end;
a_dirty[c] := true; dirty := true;
update headgate.cells e set blocked_until = a_block[c],
    reason = case when p_ops[o + {op.ttl}] > 0 then coalesce(p_notes[k], '') else '' end
where e.limit_name = p_limits[c] and e.key = p_keys[c];
res[r + {out.granted}] := p_ops[o + {op.count}];
{{template "answer cell"}}
res[r + {out.clock}] := clock; res[r + {out.retry_at}] := a_block[c];
{{- end}}

{{define "reset" -}}
res[r + {out.clock}] := clock;
if a_law[c] <> 0 then
    res[r + {out.granted}] := 1;
    a_gone[c] := true; gone := true;
end if;
update headgate.entries e set expires_at = 0
where e.limit_name = p_limits[c] and e.key = p_keys[c] and e.expires_at > 0;
update headgate.cells e set blocked_until = 0, reason = '', ids_until = 0, generation = default -- it forgets its ids
where e.limit_name = p_limits[c] and e.key = p_keys[c] and (e.blocked_until <> 0 or e.ids_until <> 0);
a_law[c] := 0; a_level[c] := 0; a_prev[c] := 0; a_at[c] := 0; a_unit[c] := 0;
a_empty[c] := 0; a_block[c] := 0; a_step[c] := 0;
{{- end}}
