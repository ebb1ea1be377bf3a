{{- /*
sweep entries of empty cells adds to removed how many entries of a range it removes. Entries of a cell that looks empty may
have been counted by a charge whose COMMIT is under way, so the cell is locked, or its entries stay.
*/ -}}
{{define "sweep entries of empty cells" -}}
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
