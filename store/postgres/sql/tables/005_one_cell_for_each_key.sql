-- A cell belongs to one key. Cells that new keys of full limits shared go, with what was charged in them.
delete from headgate.admissions a using headgate.cells c
where left(c.key, 16) = 'headgate:shared:' and c.generation = any (a.cells);
delete from headgate.entries e where left(e.key, 16) = 'headgate:shared:';
delete from headgate.cells c where left(c.key, 16) = 'headgate:shared:';
drop table if exists headgate.settings, headgate.rooms, headgate.key_counts;
alter table headgate.limits drop column if exists max_keys;
alter table headgate.catalog drop column if exists max_keys;
-- It has a column less.
drop function if exists headgate.sweep_from_N(int, int, bigint, text, text);
