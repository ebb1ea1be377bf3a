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
    ids_until     integer not null default 0, -- until when an id is known in it, or was; it stays for so long
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

-- Requests with an id that were admitted, so that they are charged once, and can be extended
-- and settled. A row has those cells of a request that were admitted together: home is the
-- first of them, several says whether there are others. An id is known in each cell by itself,
-- so requests on other cells may have the same.
--
-- charges is a list in JSON, of each cell: its limit and key; print of all charges of the
-- request; terms of the limit at that time; cost that the cell was charged in all; outcome,
-- what was answered first as 15 numbers, and what the last extension made of the cell as four
-- more; settled, what it cost in the end, -1 while that is not known, -2 if it was cancelled;
-- keep_until, from when on the id is forgotten there; era, see resets.
create table requests (
    number     integer primary key,
    id         text not null,
    several    integer not null,
    home_limit text not null,
    home_key   text not null,
    charges    text not null,
    keep_until integer not null -- the last of those in charges
) strict;
create unique index requests_by_id on requests (id, several, home_limit, home_key);
create index requests_by_age on requests (keep_until);

-- Cells that were reset while ids were known in them. They know no charge of an era before era.
-- The present era is the number of such resets: see settings.
create table resets (
    limit_name text not null,
    key        text not null,
    era        integer not null,
    keep_until integer not null,
    primary key (limit_name, key)
) without rowid, strict;

-- What the file says about itself: how many resets it had.
create table settings (
    name  text primary key,
    value integer not null
) without rowid, strict;
