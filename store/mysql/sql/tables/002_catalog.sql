-- The catalog: limits, plans and overrides, for all who use this database. Limits are in
-- headgate_limits, which gets what the others have; everything else is in headgate_catalog.
-- Rows may be edited by hand: triggers make a version for each row that is changed.
--
-- DDL commits by itself here, so each statement may be repeated after a migration that
-- was cut off.

-- kind        name       item_key           text
-- plan        the plan   name of a limit    its notation in this plan
-- assignment  ''         a key              the plan
-- override    the limit  a key              its notation for this key
-- file        its hash   ''                 ''
--
-- prefix-assignment and prefix-override are for all keys that begin with key.
--
-- note is a reason, or where a file was; from until on (microseconds, 0 for never) a row
-- counts no more. kind, name and item_key are UTF-8, and kept as bytes, as keys of cells are.
create table if not exists headgate_catalog (
    kind     varbinary(32) not null comment 'What the row is.',
    name     varbinary(255) not null comment 'plan: its name. override, prefix-override: the limit. file: its hash. Else empty.',
    item_key varbinary(512) not null default '' comment 'plan: the limit. override, assignment: the key. prefix-override, prefix-assignment: what keys begin with.',
    `text`   varchar(255) character set utf8mb4 collate utf8mb4_bin not null default '' comment 'plan, override, prefix-override: the limit in one line. assignment, prefix-assignment: the plan.',
    note     varchar(1000) character set utf8mb4 collate utf8mb4_bin not null default '' comment 'Why, or which file.',
    origin   varchar(255) character set utf8mb4 collate utf8mb4_bin not null default '' comment 'file if a file wrote it.',
    `until`  bigint not null default 0 comment 'The row counts before this time, in microseconds since 1970; 0: for ever.',
    retired  tinyint not null default 0 comment 'The file that defined it does not have it any more.',
    primary key (kind, name, item_key),
    constraint headgate_kind_is_known check (kind in ('plan', 'override', 'prefix-override', 'assignment',
        'prefix-assignment', 'file')),
    constraint headgate_item_is_not_below_0 check (`until` >= 0 and retired in (0, 1))
) engine = InnoDB comment 'Plans, overrides, and files that were applied. Rows may be changed by hand: each is a version.'
//

-- The number of the newest version: one row, which everybody locks who changes something,
-- so that versions are committed in order. kinds says which items there may be that hold for
-- a key in the place of a limit, so that calls of a database without any read nothing more: 1 overrides
-- of keys, 2 of prefixes, 4 assignments of keys, 8 of prefixes. A change by hand adds to it, in the
-- transaction of the change; an edit by a program makes it exact.
create table if not exists headgate_catalog_version (
    only_one int not null primary key default 1,
    version  bigint not null,
    kinds    int not null default 0 comment 'The sum of 1 if a key has an override, 2 if a prefix has one, 4 if a key has a plan, 8 if a prefix has one.',
    constraint headgate_only_one_version check (only_one = 1)
) engine = InnoDB comment 'The number of the newest version of limits and catalog.'
//
insert ignore into headgate_catalog_version (only_one, version) values (1, 0)
//

create table if not exists headgate_versions (
    version bigint not null primary key,
    at      bigint not null comment 'In microseconds since 1970.',
    author  text character set utf8mb4 collate utf8mb4_bin not null,
    reason  text character set utf8mb4 collate utf8mb4_bin not null
) engine = InnoDB comment 'Changes of limits and catalog: when, by whom and why.'
//

-- What a version changed. The items are JSON, in the form of Item of package store.
create table if not exists headgate_changes (
    version     bigint not null,
    kind        varbinary(32) not null,
    name        varbinary(255) not null,
    item_key    varbinary(512) not null,
    before_item text character set utf8mb4 collate utf8mb4_bin not null,
    after_item  text character set utf8mb4 collate utf8mb4_bin not null,
    primary key (version, kind, name, item_key)
) engine = InnoDB comment 'What each version has changed.'
//

-- MySQL knows no "add column if not exists". The script that `headgate schema` prints may be
-- executed twice.
set @hg_s = if((select count(*) from information_schema.columns where table_schema = database()
        and table_name = 'headgate_limits' and column_name = 'retired') > 0, 'do 0', 'alter table headgate_limits
    add column origin varchar(255) character set utf8mb4 collate utf8mb4_bin not null default ''''
        comment ''What wrote it: file, zone or bucket; empty: somebody did.'',
    add column retired tinyint not null default 0 comment ''The file that defined it does not have it any more. It still decides.'',
    drop constraint headgate_rule_is_a_limit,
    add constraint headgate_rule_is_a_limit check (rule regexp concat(''^[[:blank:]]*(unlimited|'',
        ''((token-bucket|leaky-bucket|gcra|interval|fixed-window|sliding-window|sliding-log|concurrency)[[:blank:]]+)?'',
        ''[0-9]+([.][0-9]+)?(/[0-9a-z]+)?([[:blank:]]+[A-Za-z0-9][A-Za-z0-9./_+%-]*)*)[[:blank:]]*$'')),
    add constraint headgate_limit_is_retired_or_not check (retired in (0, 1))')
//
prepare headgate from @hg_s
//
execute headgate
//
deallocate prepare headgate
//
