{{- /*
One plain charge, for functions that name its limit, key and rule as headgate.take_one
does: clock is when it is made. It returns the numbers of the outcome, or of a charge that
is granted those of the row c that granted says.
*/ -}}

{{- /*
grant one grants a plain charge by one update, if the cell is there, is of the bucket law in
the same unit and step, has had nothing returned, is neither blocked nor ahead of the clock,
and has room.
*/ -}}
{{define "grant one" -}}
update headgate.cells c
set level = headgate.drained_N(c.level, c.at, c.empty_at, greatest(clock, c.at), {{.anchor}}, {{.drain}}, {{.step}}) + {{.cost}},
    at = headgate.drained_at_N(c.level, c.at, c.empty_at, greatest(clock, c.at), {{.anchor}}, {{.drain}}, {{.step}}),
    empty_at = headgate.drained_by_N(c.level, c.at, c.empty_at, greatest(clock, c.at), {{.anchor}}, {{.drain}}, {{.step}}, {{.cost}})
where c.limit_name = {{.limit}} and c.key = {{.key}} and c.law = 1 and c.unit = {{.unit}} and c.step = {{.step}} and c.prev = 0
  and c.blocked_until <= greatest(clock, c.at) and c.at - clock <= 2000000
  and headgate.drained_N(c.level, c.at, c.empty_at, greatest(clock, c.at), {{.anchor}}, {{.drain}}, {{.step}}) <= {{.capacity}} - {{.cost}}
returning {{.granted}} into {{.into}};
if found then
    {{template "not set back" .now}}
end if;
{{- end}}

{{- /*
not set back undoes a call if the server's clock was set back after it had read the clock: it may
have waited for a row meanwhile that others have charged by the new clock, and would drain what
comes between the two. law allows a cell to be 2 s ahead. now is a test's time; 0: the server's clock.
*/ -}}
{{define "not set back" -}}
if {{.}} = 0 and (extract(epoch from clock_timestamp()) * 1000000)::bigint < clock - 2000000 then
    raise exception 'headgate: the clock was set back while this charge waited: repeat it' using errcode = '40001';
end if;
{{- end}}

{{define "take one" -}}
{{template "grant one" (as "limit" "p_limit" "key" "p_key" "anchor" "p_anchor" "unit" "p_unit" "capacity" "p_capacity"
    "step" "p_step" "drain" "p_drain" "cost" "p_cost" "now" "p_now" "granted" .granted "into" "res")}}
if found then
    return res;
end if;
if p_now = 0 then -- the update may have waited for the row
    clock := (extract(epoch from clock_timestamp()) * 1000000)::bigint;
end if;

if p_block = 0 and p_cost <= p_capacity then
    select array[{out: granted => 0, law => 1, level => c.level, prev => 0, at => c.at, unit => c.unit, empty_at => c.empty_at,
        blocked_until => c.blocked_until, used => u.x, clock => clock,
        retry_at => greatest(c.blocked_until, {{template "no longer" (as "whole" "p_drain = 9007199254740991" "empty" "c.empty_at"
            "retry" "headgate.after_N(u.t, u.x - (p_capacity - p_cost), p_anchor, p_drain, p_step, 0, 0, 0, 0)")}}),
        entry => 0, status => 0, start_at => 0, step => c.step}]
    into res
    from headgate.cells c, lateral (select
        headgate.drained_N(c.level, c.at, c.empty_at, greatest(clock, c.at), p_anchor, p_drain, p_step) as x,
        headgate.drained_at_N(c.level, c.at, c.empty_at, greatest(clock, c.at), p_anchor, p_drain, p_step) as t offset 0) u
    where c.limit_name = p_limit and c.key = p_key and c.law = 1 and c.unit = p_unit and c.step = p_step and c.prev = 0
      and c.blocked_until <= greatest(clock, c.at) and c.at - clock <= 2000000
      and u.x > p_capacity - p_cost;
    if found then
        return res;
    end if;

    insert into headgate.cells as c (limit_name, key, law, level, at, unit, step, empty_at)
    select p_limit, p_key, 1, p_cost, headgate.drained_at_N(0, 0, 0, clock, p_anchor, p_drain, p_step), p_unit, p_step,
        headgate.drained_by_N(0, 0, 0, clock, p_anchor, p_drain, p_step, p_cost)
    on conflict do nothing
    returning {{.granted}} into res;
    if found then
        return res;
    end if;
end if;

return headgate.apply_N(array[p_limit], array[p_key], array[2::smallint],
    array[{op: verb => 1, group => 1, cell => 1, kind => 1, anchor => p_anchor, unit => p_unit, capacity => p_capacity,
        step => p_step, drain => p_drain, block => p_block, cost => p_cost, count => 1, now => p_now}], null);
{{- end}}
