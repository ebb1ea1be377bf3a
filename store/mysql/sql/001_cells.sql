-- The tables. Text is kept as bytes, so that no collation takes two keys for
-- one; times are microseconds since the epoch by this server's clock, so that
-- no time zone matters. Nothing that a decision changes is indexed.

create table if not exists headgate_schema_version (
    version    int not null primary key,
    applied_at timestamp not null default current_timestamp
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
