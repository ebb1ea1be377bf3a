-- A cell belongs to one key. Cells that new keys of full limits shared go, with what was charged in them.
drop trigger key_came;
drop trigger key_went;
drop table rooms;
delete from entries where substr(key, 1, 16) = 'headgate:shared:';
delete from cells where substr(key, 1, 16) = 'headgate:shared:';
delete from settings where name = 'max_keys';
alter table catalog_items drop column max_keys;
