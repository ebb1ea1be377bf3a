{{- /*
Blocks of headgate.apply_plain.
*/ -}}

{{- /* rows of an id are those that may say something of a cell. */ -}}
{{define "rows of an id" -}}
select e.* from headgate.admissions e where e.id = {{.id}} and e.home = {{.generation}}
union all
select e.* from headgate.admissions e where e.id = {{.id}} and e.home < 0
{{- end}}

{{- /*
known ops are those that are not left, with their cells, and what is remembered of those that settle: plain
says that nothing but the cell's level stands against them. n is what is charged, or at most given back.
*/ -}}
{{define "known ops" -}}
select k.k, r.first as request, u.c, r.verb, r.id, u.clock, greatest(u.clock, c_at[u.c]) as now, u.anchor, u.capacity, u.drain, u.step, u.unit, u.cost,
    a.home, p.i, a.outcomes[p.i][{kept.at}] as made, a.outcomes[p.i][{kept.level}] as level, a.outcomes[p.i][{kept.prev}] as returned,
    case when r.verb = 1 then u.cost * u.count else a.costs[p.i] - greatest(u.cost, 0) end as n, u.count,
    p_ops[u.o + {op.kind}] = 1 and u.anchor < 2 and coalesce(c_law[u.c] in (0, 1), false) and case r.verb
        when 1 then (u.count = 1 or coalesce(r.id, '') = '') and p_ops[u.o + {op.how}] < 2 and p_ops[u.o + {op.ceiling}] = 0
            and p_ops[u.o + {op.alternative}] = 0
            and p_ops[u.o + {op.since}] = 0 and p_ops[u.o + {op.lapse}] = 0 and a.id is null
        when 4 then coalesce(not a.several and a.settled[p.i] = -1 and a.keeps[p.i] - u.clock > 0 and a.costs[p.i] >= u.cost
            and a.rules[p.i : p.i] = array[p_ops[u.o + {op.kind} : u.o + {op.drain}]]
            and coalesce(a.extensions[p.i][{extension.cost}], 0) = 0, false)
        else false end as plain
from (select x.k as first, coalesce(lead(x.k) over (order by x.k), size + 1) - 1 as last,
        p_ops[(x.k - 1) * {op.width} + {op.verb}] as verb, p_notes[x.k] as id
    from generate_series(1, size) x(k)
    where x.k = 1 or p_ops[(x.k - 1) * {op.width} + {op.group}] <> p_ops[(x.k - 2) * {op.width} + {op.group}]) r
left join lateral (select a.*, count(*) over () > 1 as several from (
        (select a.* from headgate.admissions a where a.id = r.id and a.home < 0 limit 2)
        union all
        select a.* from (select distinct c_generation[p_ops[(x.k - 1) * {op.width} + {op.cell}]] as generation
            from generate_series(r.first, r.last) x(k)) g
        cross join lateral (select * from headgate.admissions e where e.id = r.id and e.home = g.generation offset 0) a) a
    where r.id <> '' limit 1) a on true
cross join lateral generate_series(r.first, r.last) k(k)
cross join lateral (select o.o, p_ops[o.o + {op.cell}]::int as c, p_ops[o.o + {op.anchor}] as anchor, p_ops[o.o + {op.capacity}] as capacity,
        p_ops[o.o + {op.drain}] as drain, p_ops[o.o + {op.unit}] as unit, p_ops[o.o + {op.step}] as step, p_ops[o.o + {op.cost}] as cost, p_ops[o.o + {op.count}] as count,
        case when p_ops[o.o + {op.now}] <> 0 then p_ops[o.o + {op.now}] else store_clock end as clock
    from (select (k.k - 1) * {op.width} as o offset 0) o offset 0) u
cross join lateral (select case when r.verb = 4 then array_position(a.cells, c_generation[u.c]) end as i offset 0) p
where rest is null or not rest[k.k]
{{- end}}

{{- /*
decided ops are the known ops, each cell's charged one after another, all at one time. x and prev are the level and the
sum returned before the op. What a settlement gives back depends on what those before it have given back: so that is guessed
twice, and the second guess, from the sums of the first, holds if it comes out again from its own sums.
*/ -}}
{{define "decided ops" -}}
select d.k, d.request, d.c, d.verb, d.id, d.clock, d.unit, d.step, d.cost, d.n, d.count, d.home, d.i, d.fits, d.t, d.back, d.level_, d.prev_, d.written, d.final, d.keep,
    coalesce(max(d.until) over w, c_empty[d.c]) as empty
from (
    select b.*, case when verb = 1 then greatest(headgate_internal.after_N(b.t, b.level_, b.anchor, b.drain, b.step, 0, 0, 0, 0),
            case when nth = 1 and prev_ > 0 then c_empty[c] else 0 end) end as until
    from (
        select f.*, x + taken - back as level_, prev + case when whole then 0 else back end as prev_,
            taken_before + taken > 0 or given + back > 0 as written,
            coalesce(plain and back = {{template "given back" (as "x" "x" "prev" "prev")}}
                and (earlier is null or earlier < request
                    and p_ops[(k - 1) * {op.width} + {op.now}] = p_ops[(earlier - 1) * {op.width} + {op.now}]
                    and p_ops[(k - 1) * {op.width} + {op.kind} : (k - 1) * {op.width} + {op.drain}]
                        = p_ops[(earlier - 1) * {op.width} + {op.kind} : (earlier - 1) * {op.width} + {op.drain}])
                and case verb
                    when 1 then (c_law[c] = 0 or c_unit[c] = unit and c_step[c] = step) and c_block[c] <= now and c_at[c] - clock <= 2000000
                        and x <= capacity - n and (x > 0 or x0 = 0) -- one that was emptied before has another time
                    else c_law[c] = 1 and c_unit[c] = unit and c_step[c] = step and made <= now and x <= capacity and prev <= 9007199254740991 - back
                    end, false) as fits
        from (
            select s.*, x0 + taken_before - given as x, prev0 + case when whole then 0 else given end as prev
            from (
                select g.*, (sum(back) over w)::bigint - back as given
                from (
                    select o.*, {{template "given back" (as "x" "x0 + taken_before - guessed" "prev" "prev0 + case when whole then 0 else guessed end")}} as back
                    from (
                        select o.*, (sum(taken) over w)::bigint - taken as taken_before, (sum(guess) over w)::bigint - guess as guessed,
                            lag(k) over w as earlier, lead(k) over w is null as final, count(*) filter (where verb = 1) over w as nth,
                            max(case when verb = 1 and id <> '' then clock + p_ops[(k - 1) * {op.width} + {op.ttl}] end) over w as keep
                        from (
                            select o.*, case when verb = 1 then n else 0 end as taken, {{template "given back" (as "x" "x0" "prev" "prev0")}} as guess
                            from (
                                select o.*, drain = 9007199254740991 as whole, case when now >= empty0 then 0 else c_prev[c] end as prev0,
                                    case when plain then headgate_internal.drained_N(level0, at0, empty0, now, anchor, drain, step) end as x0,
                                    case when plain then headgate_internal.drained_at_N(level0, at0, empty0, now, anchor, drain, step) end as t,
                                    case when plain and verb = 4 and made <= now then {{template "left" (as "level" "level" "at" "made" "now" "now")}} end as held
                                from (select o.*, c_level[c] as level0, c_at[c] as at0, c_empty[c] as empty0 from ({{template "known ops"}} offset 0) o offset 0) o offset 0) o offset 0) o
                        window w as (partition by c order by k rows unbounded preceding)) o offset 0) g
                window w as (partition by c order by k rows unbounded preceding)) s offset 0) f offset 0) b offset 0) d
window w as (partition by c order by k rows unbounded preceding)
{{- end}}

{{- /* given back is what a settlement gives back of a charge, of which held is left; 0 of what takes. */ -}}
{{define "given back" -}}
case when verb = 4 then greatest(0, least(n, {{.x}}, held - greatest(0, {{.prev}} - returned))) else 0 end
{{- end}}

{{- /* charge once decides about the ops that are not left, and writes them if all of them fit. */ -}}
{{define "charge once" -}}
with decided as materialized (
    {{template "decided ops"}}
), agreed as materialized (
    select bool_and(fits) as yes from decided
), charged as (
    update headgate.cells e
    set law = 1, unit = u.unit, step = u.step, level = u.level_, prev = u.prev_, at = u.t, empty_at = u.empty, ids_until = greatest(e.ids_until, u.keep)
    from (select *, places[c] as place from decided where final and written and (select yes from agreed) offset 0) u
    where e.ctid = u.place
), admitted as (
    insert into headgate.admissions (id, home, keep_until, cells, prints, keeps, costs, settled, rules, outcomes)
    select u.id, (array_agg(u.cell))[1] * case when count(*) > 1 then -1 else 1 end, max(u.clock + u.ttl), array_agg(u.cell), array_agg(u.print), array_agg(u.clock + u.ttl), array_agg(u.n),
        array_agg(-1::bigint), array_agg(u.rule),
        array_agg(array[{kept: granted => 1, level => u.level_, prev => u.prev_, at => u.t, empty_at => u.empty, blocked_until => u.blocked, used => u.level_}])
    from (select d.request, d.id, d.clock, d.n, d.level_, d.prev_, d.t, d.empty, c_block[d.c] as blocked, c_generation[d.c] as cell,
            p_ops[(d.k - 1) * {op.width} + {op.ttl}] as ttl, p_prints[d.k] as print,
            p_ops[(d.k - 1) * {op.width} + {op.kind} : (d.k - 1) * {op.width} + {op.drain}] as rule
        from decided d where d.verb = 1 and d.id <> '' and (select yes from agreed) order by d.k offset 0) u
    group by u.request, u.id
), settled as (
    update headgate.admissions e
    set settled = case when u.size = cardinality(e.settled) then u.costs else headgate_internal.put_N(e.settled, u.places, u.costs) end
    from (select d.id, d.home, count(*) as size, array_agg(d.i) as places, array_agg(d.cost) as costs
        from (select request, id, home, i, cost from decided where verb = 4 and (select yes from agreed) order by request, i offset 0) d
        group by d.request, d.id, d.home order by d.id, d.home offset 0) u
    where e.id = any (array[u.id]) and e.home = u.home
)
select array_agg(d.k), array_agg(d.fits), array_agg(array[{out: granted => case when d.verb = 1 then d.count else d.back end, law => 1,
    level => case when d.written then d.level_ else c_level[d.c] end, prev => case when d.written then d.prev_ else c_prev[d.c] end,
    at => case when d.written then d.t else c_at[d.c] end, unit => d.unit, empty_at => d.empty, blocked_until => c_block[d.c], used => d.level_,
    clock => d.clock, step => d.step}])
into asked, fits, outcomes
from (select * from decided order by k offset 0) d;
{{- end}}
