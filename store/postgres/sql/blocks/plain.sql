{{- /*
Blocks of headgate.take_one and headgate.take_sums.
*/ -}}

{{- /* granted one is the outcome of a charge that has made row c what it is, by the credits that are in use then. */ -}}
{{define "granted one" -}}
array[{out: granted => 1, law => kind, level => c.level, prev => c.prev, at => c.at, unit => c.unit, empty_at => c.empty_at, blocked_until => c.blocked_until,
    used => {{.}}, clock => case when p_now > 0 then clock else greatest(clock, c.at) end, step => c.step}]
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

{{- /*
sum rows are the cells with what is asked of them, for headgate.take_sums. A limit or a sum that a
cell does not have is the first one.
*/ -}}
{{define "sum rows" -}}
(select x.i, x.key, coalesce(x.sum, p_cost[1]) as cost, p_limit[x.r] as name, p_anchor[x.r] as anchor, p_unit[x.r] as unit,
        p_capacity[x.r] as capacity, p_step[x.r] as step, p_drain[x.r] as drain,
        case when p_drain[x.r] > 0 then 1::smallint else 2 end as law
    from (select y.*, coalesce(y.rule, p_rule[1]) as r
        from unnest(p_keys, p_rule, p_cost) with ordinality y(key, rule, sum, i)) x offset 0) u
{{- end}}
