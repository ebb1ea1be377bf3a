-- One row for each limit and key; see package law. Text compares byte by byte.
create table cells (
    limit_name    text not null,
    key           text not null,
    law           integer not null,
    level         integer not null,
    prev          integer not null,
    at            integer not null,
    unit          integer not null,
    step          integer not null,
    empty_at      integer not null,
    blocked_until integer not null,
    reason        text not null default '',
    primary key (limit_name, key)
) without rowid, strict;

-- The log of the cells whose limit keeps one. An entry counts while the time
-- is before expires_at; 0: it does not count, or no more.
create table entries (
    number     integer primary key autoincrement,
    limit_name text not null,
    key        text not null,
    id         text not null,
    at         integer not null,
    expires_at integer not null,
    keep_until integer not null,
    cost       integer not null,
    granted    integer not null
) strict;
create index entries_by_cell on entries (limit_name, key, expires_at, granted, cost);
create index entries_by_age on entries (keep_until);
