-- The tables. Nothing that a decision changes is indexed, so that updates stay
-- within their page (HOT); the free third of each page is for them.

-- Functions that only other functions, triggers and the driver call are in a schema of their own, so that those
-- of schema headgate are the ones for people. Whoever owns a schema can replace what is in it.
--
-- "create schema if not exists" asks for the right to create schemas even where the
-- administrator has made these.
do $$ begin
    if pg_catalog.to_regnamespace('headgate') is null then
        create schema headgate;
    end if;
    if to_regnamespace('headgate_internal') is null then
        create schema headgate_internal;
    end if;
    if exists (select from pg_namespace n join pg_roles r on r.oid = n.nspowner, pg_namespace h
        where n.nspname = 'headgate_internal' and h.nspname = 'headgate' and n.nspowner <> h.nspowner and r.rolname <> current_user and not r.rolsuper)
    then
        raise exception 'schema headgate_internal belongs to another user than schema headgate' using errcode = '42501';
    end if;
end $$;

create table if not exists headgate.schema_version (
    version    int primary key,
    applied_at timestamptz not null default now()
);

-- What is installed: one row, or none before there are functions. state is what the rows
-- of all tables mean, layout the number in the names of the functions that programs
-- call, revision that of the texts of all functions, fingerprint one of these texts,
-- and digest one of the functions named, as the server has them.
create table if not exists headgate.installed (
    only_one     boolean primary key default true check (only_one),
    state        int not null,
    layout       int not null,
    revision     int not null,
    fingerprint  text not null,
    digest       text not null,
    names        text[] not null,
    installed_at timestamptz not null default now()
);

-- One row for each limit and key. Times are microseconds since the epoch, of
-- this server's clock; level and prev are credits, unit of them to one unit of
-- cost, step the microseconds of a step of the limit that charged it last. From
-- empty_at on, level and prev count as 0. law 0 is a cell that no charge has touched.
-- generation is a number that no other cell has or had: what is remembered of requests
-- with an id names it, and a reset gives the cell another, so that it forgets them. Before
-- ids_until it remembers some, and a sweep leaves it alone.
create table if not exists headgate.cells (
    limit_name    text collate "C" not null,
    key           text collate "C" not null,
    law           smallint not null default 0,
    level         bigint not null default 0,
    prev          bigint not null default 0,
    at            bigint not null default 0,
    unit          bigint not null default 0,
    step          bigint not null default 0,
    empty_at      bigint not null default 0,
    blocked_until bigint not null default 0,
    reason        text not null default '',
    generation    bigint not null generated always as identity,
    ids_until     bigint not null default 0,
    primary key (limit_name, key)
) with (fillfactor = 66, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- The log of the cells whose limit keeps one. An entry counts while the time
-- is before expires_at; 0: it does not count, or no more.
create table if not exists headgate.entries (
    number     bigint generated always as identity primary key,
    limit_name text collate "C" not null,
    key        text collate "C" not null,
    id         text not null default '',
    at         bigint not null,
    expires_at bigint not null,
    keep_until bigint not null,
    cost       bigint not null,
    granted    boolean not null
);
create index if not exists entries_by_cell on headgate.entries (limit_name, key, expires_at) include (cost, granted);

do $$ begin
    if to_regtype('headgate.compiled') is null then
        -- A limit, read: params: law, anchor, unit, capacity, step, drain, block, history
        create type headgate.compiled as (canonical text, params bigint[], calendar text, zone text);
    end if;
end $$;

do $$ begin
    if to_regtype('headgate.decision') is null then
        -- What take and check answer.
        create type headgate.decision as (allowed boolean, remaining bigint, retry_after interval, reset_after interval, limit_name text, at timestamptz);
    end if;
end $$;

-- Limits by name, those of the catalog. A row may be edited by hand; the notation is checked. varies is what may hold
-- for some keys in the place of the limit: 1 an override of a key, 2 one of a prefix, 4 a plan; the sum of those that there
-- are. Triggers of headgate.catalog keep it, in the transaction that changes a row there. While it is 0, a decision
-- reads nothing there.
create table if not exists headgate.limits (
    name        text collate "C" primary key,
    rule        text not null,
    description text not null default '',
    updated_at  timestamptz not null default now(),
    compiled    headgate.compiled,
    origin      text not null default '', -- 'file': a file wrote it
    retired     boolean not null default false, -- the file has it no more; it still decides
    varies      int not null default 0
);

-- One-line limits that callers from SQL have used, compiled: what headgate_internal.find_N looks up
-- instead of compiling them again. Every row can be deleted at any time. A notation may
-- have several rows: with a unique index, a session that inserts one would wait for the
-- transaction of another one.
create table if not exists headgate.notations (
    rule     text collate "C" not null,
    compiled headgate.compiled
);
create index if not exists notations_by_rule on headgate.notations (rule);

-- Use cases with a rate for a moving window, for check_velocity.
create table if not exists headgate.zones (
    id             int primary key,
    description    text not null default '',
    rate           int not null check (rate > 0),
    window_seconds bigint not null check (window_seconds > 0 and window_seconds <= 316224000),
    history_days   int not null default 30 check (history_days >= 0 and history_days <= 3660)
);

-- Buckets that are filled to capacity once per refill_seconds, for request_token.
create table if not exists headgate.buckets (
    id             text collate "C" primary key check (char_length(id) <= 255),
    capacity       int not null check (capacity >= 0),
    refill_seconds numeric(16, 6) not null check (refill_seconds > 0 and refill_seconds <= 316224000),
    created_at     timestamptz not null default now()
);

-- Requests with an id: one row for each request, not one for each of its cells.

-- Each row is a request that was admitted. cells has the generations of the cells that it charged. home is the first of
-- them, negated if there are several. The other arrays have one element for each cell, in the order of cells:
--
-- prints      the fingerprint of all charges of the request
-- keeps       when the cell forgets the id
-- costs       credits charged, including extensions
-- settled     credits that it cost in the end; -1: not settled; -2: cancelled
-- rules       kind, anchor, unit, capacity, step and drain of the limit when it was charged; the capacity is 0 if the
--             request was extended under another limit
-- outcomes    granted, level, prev, at, empty_at, blocked_until, used, entry and start_at of the first answer
-- extensions  cost of the last extension, 0 if there was none, and level, at and prev of the cell after it; the whole
--             array is null if no bucket or window was extended
--
-- keep_until is the latest of keeps.
--
-- Each cell knows its ids separately. A row of one cell is found by id and home, so an id that many keys use is as
-- cheap as any other. Rows of several cells are found by id, and all of them are read. If an id has several rows, these
-- have no cell in common: a request that is admitted again on a cell overwrites the elements of that cell.
--
-- The elements of a cell are written only under the lock of the cell. Transactions that hold different cells may update
-- the same row; each update starts from the row as it is under the row lock. Row locks are taken after all cell locks, in
-- the order of id and home. A sweep deletes whole rows.
--
-- Half of each page stays free, so that settling a row is a HOT update.
create table if not exists headgate.admissions (
    id         text collate "C" not null,
    home       bigint not null,
    keep_until bigint not null,
    cells      bigint[] not null,
    prints     bigint[] not null,
    keeps      bigint[] not null,
    costs      bigint[] not null,
    settled    bigint[] not null,
    rules      bigint[] not null,
    outcomes   bigint[] not null,
    extensions bigint[],
    primary key (id, home)
) with (fillfactor = 50, toast_tuple_target = 4080);
create index if not exists admissions_by_time on headgate.admissions (keep_until asc);
