-- The tables. Text is kept as bytes, so that no collation takes two keys for
-- one; times are microseconds since the epoch by this server's clock, so that
-- no time zone matters. Nothing that a decision changes is indexed.

create table if not exists headgate_schema_version (
    version    int not null primary key,
    applied_at timestamp not null default current_timestamp
) engine = InnoDB
//

-- What is installed: one row. state is what the rows of all tables mean, revision the
-- number in the names of the procedures that others call, fingerprint one of the texts
-- of all procedures, and digest one of the procedures as the server has them.
create table if not exists headgate_installed (
    only_one     int not null primary key default 1,
    state        int not null,
    revision     int not null,
    fingerprint  varchar(64) not null,
    digest       varchar(64) not null,
    names        text character set utf8mb4 not null,
    installed_at timestamp not null default current_timestamp on update current_timestamp,
    check (only_one = 1)
) engine = InnoDB
//

-- One row for each limit and key. level and prev are credits, unit of them to
-- one unit of cost, step the microseconds of a step of the limit that charged it
-- last. From empty_at on, level and prev count as 0. law 0 is a cell that no charge
-- has touched.
create table if not exists headgate_cells (
    limit_name    varbinary(255) not null,
    cell_key      varbinary(512) not null,
    law           tinyint not null default 0,
    level         bigint not null default 0,
    prev          bigint not null default 0,
    at            bigint not null default 0,
    unit          bigint not null default 0,
    step          bigint not null default 0,
    empty_at      bigint not null default 0,
    blocked_until bigint not null default 0,
    reason        varbinary(512) not null default '',
    primary key (limit_name, cell_key)
) engine = InnoDB
//

-- The log of the cells whose limit keeps one. An entry counts while the time
-- is before expires_at; 0: it does not count, or no more. It may be forgotten
-- from keep_until on.
create table if not exists headgate_entries (
    number     bigint not null auto_increment primary key,
    limit_name varbinary(255) not null,
    cell_key   varbinary(512) not null,
    id         varbinary(512) not null default '',
    at         bigint not null,
    expires_at bigint not null,
    keep_until bigint not null,
    cost       bigint not null,
    granted    tinyint not null,
    key by_cell (limit_name, cell_key, expires_at, cost),
    key by_age (keep_until)
) engine = InnoDB
//

-- Limits that have had as many keys as they may. While one is sharing, keys without a
-- cell share one of its own, whose key ends with the generation: the number of the
-- period of sharing. since is when it began.
create table if not exists headgate_rooms (
    limit_name varbinary(255) not null primary key,
    generation bigint not null default 0,
    sharing    tinyint not null default 0,
    since      bigint not null default 0,
    key by_sharing (sharing)
) engine = InnoDB
//

-- How many keys limits have, as they were counted last, and may have: those that say
-- nothing of their own, with max_keys 0, as many as the row of the empty name says; 0
-- there is any number. Its took is how long the last count took, in microseconds.
create table if not exists headgate_key_counts (
    limit_name varbinary(255) not null primary key,
    max_keys   bigint not null default 0,
    key_count  bigint not null default 0,
    counted_at bigint not null default 0,
    took       bigint not null default 0
) engine = InnoDB
//

-- Limits by name, for callers from SQL. `headgate migrate --config` writes them;
-- a row may be edited by hand too. The columns after rule_compiled are what the
-- rule means, filled in when it is first used: only then is it an error if a rule
-- cannot be read. What does not look like one is refused at once.
create table if not exists headgate_limits (
    name          varchar(64) character set utf8mb4 collate utf8mb4_bin not null primary key,
    rule          varchar(255) character set utf8mb4 collate utf8mb4_bin not null,
    description   text character set utf8mb4 not null default (''),
    updated_at    timestamp not null default current_timestamp on update current_timestamp,
    rule_compiled varchar(255) character set utf8mb4 collate utf8mb4_bin,
    law int, anchor int, unit bigint, capacity bigint, step bigint, drain bigint, block bigint, history bigint,
    calendar varchar(8) character set utf8mb4, zone varchar(64) character set utf8mb4,
    constraint headgate_rule_is_a_limit check (rule regexp concat('^[[:blank:]]*(token-bucket|leaky-bucket|gcra|interval|fixed-window|sliding-window|sliding-log|concurrency)',
        '[[:blank:]]+[0-9]+([.][0-9]+)?(/[0-9a-z]+)?([[:blank:]]+[A-Za-z0-9][A-Za-z0-9./_+%-]*)*[[:blank:]]*$'))
) engine = InnoDB
//

-- Use cases with a rate for a moving window, for check_velocity.
create table if not exists headgate_zones (
    id             int not null primary key,
    description    text character set utf8mb4 not null default (''),
    rate           int not null,
    window_seconds bigint not null,
    history_days   int not null default 30,
    check (rate > 0), check (window_seconds > 0 and window_seconds <= 316224000), check (history_days >= 0 and history_days <= 3660)
) engine = InnoDB
//

-- Buckets that are filled to capacity once per refill_seconds, for request_token.
create table if not exists headgate_buckets (
    id             varchar(255) character set utf8mb4 collate utf8mb4_bin not null primary key,
    capacity       int unsigned not null,
    refill_seconds decimal(16, 6) not null,
    created_at     timestamp not null default current_timestamp,
    check (refill_seconds > 0 and refill_seconds <= 316224000)
) engine = InnoDB
//

-- What a cell remembers of requests with an id that were admitted, so that they
-- are charged once and can be settled. outcome is what was answered, as 15
-- numbers; rule the parameters that it was made under; settled is what it cost in
-- the end, -1 while that is not known, -2 if it was cancelled. It may be forgotten from keep_until on.
create table if not exists headgate_admissions (
    limit_name varbinary(255) not null,
    cell_key   varbinary(512) not null,
    id         varbinary(255) not null,
    print      bigint not null,
    rule       varbinary(255) not null,
    cost       bigint not null,
    outcome    varbinary(255) not null,
    settled    bigint not null,
    keep_until bigint not null,
    primary key (limit_name, cell_key, id),
    key by_age (keep_until)
) engine = InnoDB
//
