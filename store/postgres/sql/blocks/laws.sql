{{- /*
The laws in PL/pgSQL: package law, with its names.

An op is in p_ops after the first o numbers; kind, anchor, capacity, step and drain are
variables. Base is in b_level, b_prev, b_at and b_empty, and now is the time of the
decision. outside says that a calendar does not cover it. c_max is 2^53 - 1, and so is
the number in blocks that are part of a function in SQL too.
*/ -}}

{{- /* The bucket law. */ -}}

{{- /* boundary is the last boundary of a calendar that is not after now. */ -}}
{{define "boundary" -}}
case when p_ops[o + {op.window2}] <= {{.now}} then p_ops[o + {op.window2}] when p_ops[o + {op.window1}] <= {{.now}} then p_ops[o + {op.window1}] else p_ops[o + {op.window0}] end
{{- end}}

{{- /* steps are those from at to now, for the anchors that need no calendar. */ -}}
{{define "steps" -}}
case when anchor = 1 then (greatest({{.at}}, {{.now}} - {{.now}} % step) - {{.at}} + step - 1) / step else ({{.now}} - {{.at}}) / step end
{{- end}}

{{- /* left is what steps leave of a level. It never multiplies first. */ -}}
{{define "left" -}}
greatest(0, {{.level}} - drain * least(({{.level}} + drain - 1) / drain,
    {{with .steps}}{{.}}{{else}}{{template "steps" $}}{{end}}))
{{- end}}

{{- /* drained is the level at now. A window counts in full until it is empty. */ -}}
{{define "drained" -}}
case when drain = 9007199254740991 then {{.level}}
    else {{template "left" .}} end
{{- end}}

{{- /* drained at is the time that the drained level holds for. */ -}}
{{define "drained at" -}}
case when anchor = 1 then greatest({{.at}}, {{.now}} - {{.now}} % step)
    when {{with .empty}}{{.}} or {{end}}{{.level}} = 0 or drain < 9007199254740991 and ({{.now}} - {{.at}}) / step >= ({{.level}} + drain - 1) / drain then {{.now}}
    else {{.at}} + ({{.now}} - {{.at}}) / step * step end
{{- end}}

{{define "use bucket" -}}
x := case when anchor = 2 then b_level else {{template "drained" (as "level" "b_level" "at" "b_at" "now" "now")}} end;
t := case when anchor = 2 then case when outside then now else greatest(b_at, {{template "boundary" (as "now" "now")}}) end
    else {{template "drained at" (as "level" "b_level" "at" "b_at" "now" "now")}} end;
{{- end}}

{{- /* after is when credits have drained, from t. */ -}}
{{define "after" -}}
headgate_internal.after_N({{.t}}, {{.credits}}, anchor, drain, step, p_ops[o + {op.window0}], p_ops[o + {op.window1}], p_ops[o + {op.window2}], p_ops[o + {op.window3}])
{{- end}}

{{- /*
empty after is when a bucket is empty that was written. What was returned is remembered
for as long as before at least.
*/ -}}
{{define "empty after" -}}
greatest({{template "after" .}}, case when {{.prev}} > 0 then {{.empty}} else 0 end)
{{- end}}

{{- /* The window law. */ -}}

{{- /* weighed is the share by which the window before counts. */ -}}
{{define "weighed" -}}
({{.prev}} * least(f, (step - now % step + q - 1) / q) + f - 1) / f
{{- end}}

{{define "use window" -}}
w_start := now - now % step;
w_prev := b_prev; w_level := b_level;
if b_at - b_at % step = w_start then
    null;
elsif b_at - b_at % step = w_start - step then
    w_prev := b_level; w_level := 0;
else
    w_prev := 0; w_level := 0;
end if;
q := headgate_internal.grain_N(step);
f := step / q;
x := {{template "weighed" (as "prev" "w_prev")}} + w_level;
{{- end}}

{{define "empty window" -}}
case when {{.level}} > 0 then now - now % step + 2 * step when {{.prev}} > 0 then now - now % step + step else 0 end
{{- end}}

{{define "retry window" -}}
at_ := w_start; prev_ := w_prev; level_ := w_level + granted * cost;
if need > ceiling - level_ then
    at_ := w_start + step; prev_ := level_; level_ := 0;
end if;
room := ceiling - level_ - need;
retry := case when prev_ = 0 or room >= prev_ then at_ else at_ + step - q * (room * f / prev_) end;
{{- end}}

{{- /* The log law. */ -}}

{{define "expire log" -}}
select greatest(0, b_level - coalesce(sum(e.cost), 0)) into x from headgate.entries e
where e.limit_name = {{.limit}} and e.key = {{.key}} and e.granted and e.expires_at > b_at and e.expires_at <= now;
{{- end}}

{{- /* use log finds the credits in use. limit and key are those of the cell. */ -}}
{{define "use log" -}}
x := carry;
if not clear then
    x := 0;
    if now < b_empty and b_level > 0 then
        x := b_level;
        if now > b_at and not nolog then
            {{template "expire log" .}}
        end if;
    end if;
end if;
{{- end}}

{{- /* retry log is when so many credits more have expired. limit and key are those of the cell. */ -}}
{{define "retry log" -}}
retry := greatest(now + step, b_empty);
if not nolog then
    select least(retry, min(s.expires_at)) into retry from (
        select e.expires_at, sum(e.cost) over (order by e.expires_at, e.number) as freed
        from headgate.entries e
        where e.limit_name = {{.limit}} and e.key = {{.key}} and e.granted and e.expires_at > now) s
    where s.freed >= {{.over}};
end if;
{{- end}}

{{- /* record puts an attempt into the log. */ -}}
{{define "record" -}}
insert into headgate.entries (limit_name, key, id, at, expires_at, keep_until, cost, granted)
values ({{.limit}}, {{.key}}, {{.id}}, now,
    case when admitted then now + {{.step}} else 0 end,
    now + greatest({{.history}}, case when admitted then {{.step}} else 0 end),
    {{.cost}}, admitted)
returning number into entry;
{{- end}}

{{- /* move adds to the entry what the one before, of a charge that is extended, still has. */ -}}
{{define "move" -}}
select e.cost into room from headgate.entries e
where e.number = {{.before}} and e.limit_name || '' = {{.limit}} and e.key || '' = {{.key}} and e.granted and e.expires_at + 0 > now; -- by number only
if room is not null then
    update headgate.entries e
    set cost = case when e.number = entry then e.cost + room else 0 end, expires_at = case when e.number = entry then e.expires_at else 0 end
    where e.number = any (array[{{.before}}, entry]);
end if;
{{- end}}
