{{- /*
Blocks of headgate.take_plain.
*/ -}}

{{- /* plain rows are the cells with what is asked of them, each with its place in the table. */ -}}
{{define "plain rows" -}}
(select x.row, x.i, x.r as rule, coalesce(x.sum, p_cost[1]) as cost, case when x.test > 0 then x.test else store_clock end as now,
        p_anchor[x.r] as anchor, p_unit[x.r] as unit, p_capacity[x.r] as capacity, p_step[x.r] as step, p_drain[x.r] as drain
    from (select y.*, coalesce(y.rule, p_rule[1]) as r, coalesce(y.time, p_now[1]) as test
        from unnest(places, p_rule, p_cost, p_now) with ordinality y(row, rule, sum, time, i)) x offset 0) u
{{- end}}

{{- /* plain fits says that row c is the cell u, or new, and has room for what is asked of it. */ -}}
{{define "plain fits" -}}
c.ctid = u.row and u.unit > 0 and {{template "has room" (as "now" "u.now")}}
{{- end}}

{{- /*
has room says that cell c takes the sum of the plain charges u, as package law would take them one
after another.
*/ -}}
{{define "has room" -}}
(c.law = 1 and c.unit = u.unit and c.step = u.step or c.law = 0) and c.prev = 0
  and c.blocked_until <= greatest({{.now}}, c.at) and c.at - {{.now}} <= 2000000
  and headgate.drained_N(c.level, c.at, c.empty_at, greatest({{.now}}, c.at), u.anchor, u.drain, u.step) <= u.capacity - u.cost
{{- end}}

{{- /* charge sum is what an update sets of a cell c that has room. */ -}}
{{define "charge sum" -}}
law = 1, unit = u.unit, step = u.step,
level = headgate.drained_N(c.level, c.at, c.empty_at, greatest({{.now}}, c.at), u.anchor, u.drain, u.step) + u.cost,
at = headgate.drained_at_N(c.level, c.at, c.empty_at, greatest({{.now}}, c.at), u.anchor, u.drain, u.step),
empty_at = headgate.drained_by_N(c.level, c.at, c.empty_at, greatest({{.now}}, c.at), u.anchor, u.drain, u.step, u.cost)
{{- end}}

{{- /*
sum rows are the cells with what is asked of them, for headgate.take_sums. A limit or a sum that a
cell does not have is the first one.
*/ -}}
{{define "sum rows" -}}
(select x.i, x.key, coalesce(x.sum, p_cost[1]) as cost, p_limit[x.r] as name, p_anchor[x.r] as anchor, p_unit[x.r] as unit,
        p_capacity[x.r] as capacity, p_step[x.r] as step, p_drain[x.r] as drain
    from (select y.*, coalesce(y.rule, p_rule[1]) as r
        from unnest(p_keys, p_rule, p_cost) with ordinality y(key, rule, sum, i)) x offset 0) u
{{- end}}
