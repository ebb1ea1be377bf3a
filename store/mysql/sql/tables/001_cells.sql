-- The tables. Text is kept as bytes, so that no collation takes two keys for
-- one; times are microseconds since the epoch by this server's clock, so that
-- no time zone matters. Nothing that a decision changes is indexed.

create table if not exists headgate_schema_version (
    version    int not null primary key,
    applied_at timestamp not null default current_timestamp
) engine = InnoDB comment 'The migrations of tables that were applied.'
//

-- What is installed: one row. state is what the rows of all tables mean, revision the
-- number in the names of the procedures that others call, fingerprint one of the texts
-- of all procedures, and digest one of the procedures as the server has them.
create table if not exists headgate_installed (
    only_one     int not null primary key default 1,
    state        int not null comment 'What the rows of all tables mean.',
    revision     int not null comment 'The number in the names of the procedures that others call.',
    fingerprint  varchar(64) not null comment 'Of the texts of all procedures, as the program has them.',
    digest       varchar(64) not null comment 'Of the procedures in names, as the server has them.',
    names        text character set utf8mb4 not null comment 'The procedures that were installed.',
    installed_at timestamp not null default current_timestamp on update current_timestamp,
    check (only_one = 1)
) engine = InnoDB comment 'Which procedures are installed: one row.'
//

-- One row for each limit and key. level and prev are credits, unit of them to
-- one unit of cost, step the microseconds of a step of the limit that charged it
-- last. From empty_at on, level and prev count as 0. law 0 is a cell that no charge
-- has touched.
create table if not exists headgate_cells (
    limit_name    varbinary(255) not null comment 'The name of the limit, or its notation.',
    cell_key      varbinary(512) not null comment 'Who the limit is applied to.',
    law           tinyint not null default 0 comment '1: a level that drains, 2: counters of two windows, 3: a log of entries; 0: no charge was made.',
    level         bigint not null default 0 comment 'Credits in use at the time at.',
    prev          bigint not null default 0 comment 'Credits of the window before, or the sum ever returned.',
    at            bigint not null default 0 comment 'The time that level holds for.',
    unit          bigint not null default 0 comment 'Credits to one unit of cost.',
    step          bigint not null default 0 comment 'Microseconds of a step of the limit that charged last.',
    empty_at      bigint not null default 0 comment 'From here on nothing is in use.',
    blocked_until bigint not null default 0 comment 'Everything is refused before this time.',
    reason        varbinary(512) not null default '' comment 'Why it is blocked.',
    primary key (limit_name, cell_key)
) engine = InnoDB comment 'What each key uses of each limit. headgate_levels shows it for people. Times are microseconds since 1970.'
//

-- The log of the cells whose limit keeps one. An entry counts while the time
-- is before expires_at; 0: it does not count, or no more. It may be forgotten
-- from keep_until on.
create table if not exists headgate_entries (
    number     bigint not null auto_increment primary key,
    limit_name varbinary(255) not null,
    cell_key   varbinary(512) not null,
    id         varbinary(512) not null default '' comment 'Of the request, where it has one.',
    at         bigint not null,
    expires_at bigint not null comment 'The attempt counts before this time; 0: it does not count.',
    keep_until bigint not null comment 'From here on a sweep may remove the row.',
    cost       bigint not null comment 'In credits.',
    granted    tinyint not null comment 'It was allowed.',
    key by_cell (limit_name, cell_key, expires_at, cost),
    key by_age (keep_until)
) engine = InnoDB comment 'The attempts of limits that keep a log. headgate_history shows them for people.'
//

-- Limits by name, those of the catalog: see 002_catalog.sql. A row may be edited by hand.
-- The columns after rule_compiled are what the rule means. A trigger fills them in, and
-- refuses a rule that cannot be read. A server without triggers refuses what does not look
-- like a rule, and fills them in when it is first used.
create table if not exists headgate_limits (
    name          varchar(64) character set utf8mb4 collate utf8mb4_bin not null primary key,
    rule          varchar(255) character set utf8mb4 collate utf8mb4_bin not null comment 'The limit in one line, such as token-bucket 5/1m. It is checked.',
    description   varchar(1000) character set utf8mb4 not null default '',
    updated_at    timestamp not null default current_timestamp on update current_timestamp,
    rule_compiled varchar(255) character set utf8mb4 collate utf8mb4_bin comment 'The rule whose meaning the next columns have. A trigger fills them in.',
    law int, anchor int, unit bigint, capacity bigint, step bigint, drain bigint, block bigint, history bigint,
    calendar varchar(8) character set utf8mb4, zone varchar(64) character set utf8mb4,
    origin        varchar(255) character set utf8mb4 collate utf8mb4_bin not null default '' comment 'What wrote it: file, zone or bucket; empty: somebody did.',
    retired       tinyint not null default 0 comment 'The file that defined it does not have it any more. It still decides.',
    constraint headgate_limit_is_retired_or_not check (retired in (0, 1)),
    constraint headgate_rule_is_a_limit check (rule regexp concat('^[[:blank:]]*(unlimited|renamed from [a-z][a-z0-9_.-]*|',
        '((token-bucket|leaky-bucket|gcra|interval|fixed-window|sliding-window|sliding-log|concurrency)[[:blank:]]+)?',
        '[0-9]+([.][0-9]+)?(/[0-9a-z]+)?([[:blank:]]+[A-Za-z0-9][A-Za-z0-9./_+%,-]*)*)[[:blank:]]*$'))
) engine = InnoDB comment 'The limits by name. A row may be inserted, changed and deleted by hand: each is a version in headgate_versions.'
//

-- Use cases with a rate for a moving window, for check_velocity.
create table if not exists headgate_zones (
    id             int not null primary key,
    description    varchar(1000) character set utf8mb4 not null default '',
    rate           int not null comment 'How many attempts may pass in a window.',
    window_seconds bigint not null,
    history_days   int not null default 30 comment 'For how long attempts are remembered.',
    check (rate > 0), check (window_seconds > 0 and window_seconds <= 316224000), check (history_days >= 0 and history_days <= 3660)
) engine = InnoDB comment 'Limits for check_velocity: rate attempts in any window_seconds. Each is the limit zone.ID too.'
//

-- Buckets that are filled to capacity once per refill_seconds, for request_token.
create table if not exists headgate_buckets (
    id             varchar(255) character set utf8mb4 collate utf8mb4_bin not null primary key,
    capacity       int unsigned not null comment 'Tokens in a full bucket.',
    refill_seconds decimal(16, 6) not null comment 'How long after its first token the bucket is full again.',
    created_at     timestamp not null default current_timestamp,
    check (refill_seconds > 0 and refill_seconds <= 316224000)
) engine = InnoDB comment 'Buckets for request_token. Each is the limit bucket.ID too, where the id can be part of a name.'
//

-- What a cell remembers of requests with an id that were admitted, so that they
-- are charged once and can be extended and settled. cost is what they have charged in all.
-- outcome is what was answered first, as 15 numbers, and after an extension four of the last one: what it
-- charged, and the level, at and prev that it made. rule is the parameters that it was made under, zeros after an
-- extension by others; settled is what it cost in the end, -1 while that is not known, -2 if it was cancelled. It may be
-- forgotten from keep_until on.
create table if not exists headgate_admissions (
    limit_name varbinary(255) not null,
    cell_key   varbinary(512) not null,
    id         varbinary(255) not null,
    print      bigint not null comment 'Of all charges of the request.',
    rule       varbinary(255) not null comment 'Numbers of the limit at that time.',
    cost       bigint not null comment 'Credits charged to this key, with all extensions.',
    outcome    varbinary(512) not null comment 'Numbers of the first answer, then those of the last extension, if there is one.',
    settled    bigint not null comment 'Credits that it cost in the end; -1: not known yet; -2: it was cancelled.',
    keep_until bigint not null comment 'From here on the id is forgotten.',
    primary key (limit_name, cell_key, id),
    key by_age (keep_until)
) engine = InnoDB comment 'Requests with an id that were admitted, so that each is charged once.'
//

-- Users who were given a role: see Grant. What a migration makes again, and what it adds, is given to them
-- again.
create table if not exists headgate_roles (
    user_name varchar(128) character set utf8mb4 collate utf8mb4_bin not null,
    host_name varchar(255) character set utf8mb4 collate utf8mb4_bin not null,
    role      varchar(16) character set utf8mb4 collate utf8mb4_bin not null,
    primary key (user_name, host_name)
) engine = InnoDB comment 'Users that were given a role by headgate migrate --role.'
//
