{{- /*
Blocks of headgate_internal.sweep_from, which goes through entries and cells in slices: what is in one is a condition.
*/ -}}

{{define "sweep entries" -}}
with dead as (
    select e.number from headgate.entries e
    left join headgate.cells c on c.limit_name = any (array[e.limit_name]) and c.key = e.key -- see headgate_internal.apply_N
    where {{.}}
      and e.keep_until <= now and (c.key is null or e.expires_at <= c.at)
    limit p_max
    for update of e skip locked)
delete from headgate.entries e using dead where e.number = any (array[dead.number]);
get diagnostics removed = row_count;
-- A charge that is about to be committed still counts some of these: it has the cell locked.
with dead as (
    select e.number from headgate.entries e
    join headgate.cells c on c.limit_name = any (array[e.limit_name]) and c.key = e.key
    where {{.}}
      and e.keep_until <= now and c.empty_at <= now - 100000
    limit greatest(p_max - removed, 0)
    for update of e, c skip locked)
delete from headgate.entries e using dead where e.number = any (array[dead.number]);
get diagnostics more = row_count;
removed := removed + more;
{{- end}}

{{define "sweep admissions" -}}
with dead as (
    select a.id, a.home from headgate.admissions a where a.keep_until <= now
    order by a.keep_until limit greatest(p_max - removed, 0)
    for update skip locked)
delete from headgate.admissions a using dead
where a.id = any (array[dead.id]) and a.home = dead.home;
get diagnostics more = row_count;
removed := removed + more;
{{- end}}

{{define "sweep cells" -}}
with dead as (
    select c.limit_name, c.key from headgate.cells c
    where {{.}}
      and c.empty_at <= now and c.blocked_until <= now and c.ids_until <= now
      and (select true from headgate.entries e where e.limit_name = c.limit_name and e.key = c.key limit 1) is null
    limit greatest(p_max - removed, 0)
    for update skip locked)
delete from headgate.cells c using dead where c.limit_name = any (array[dead.limit_name]) and c.key = dead.key
  -- the clock may have been set back since the rows were found
  and c.empty_at <= (extract(epoch from clock_timestamp()) * 1000000)::bigint;
get diagnostics more = row_count;
removed := removed + more;
{{- end}}
