-- A limit has as many keys as it gets. Databases of before have tables and columns about a maximum of them. The triggers
-- that name the columns are made again at the end of the migration.
drop table if exists headgate_rooms, headgate_key_counts
//
set @hg_s = if((select count(*) from information_schema.columns where table_schema = database()
        and table_name = 'headgate_limits' and column_name = 'max_keys') = 0, 'do 0', 'alter table headgate_limits
    drop constraint headgate_limit_is_not_below_0, drop column max_keys,
    add constraint headgate_limit_is_retired_or_not check (retired in (0, 1))')
//
prepare headgate from @hg_s
//
execute headgate
//
deallocate prepare headgate
//
set @hg_s = if((select count(*) from information_schema.columns where table_schema = database()
        and table_name = 'headgate_catalog' and column_name = 'max_keys') = 0, 'do 0', 'alter table headgate_catalog
    drop constraint headgate_item_is_not_below_0, drop column max_keys,
    add constraint headgate_item_is_not_below_0 check (`until` >= 0 and retired in (0, 1))')
//
prepare headgate from @hg_s
//
execute headgate
//
deallocate prepare headgate
//
