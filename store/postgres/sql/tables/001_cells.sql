-- The tables. Nothing that a decision changes is indexed, so that updates stay
-- within their page (HOT); the free third of each page is for them.

-- "create schema if not exists" asks for the right to create schemas even where the
-- administrator has made this one.
do $$ begin
    if pg_catalog.to_regnamespace('headgate') is null then
        create schema headgate;
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

-- Limits by name, for callers from SQL. `headgate migrate --config` writes
-- them; a row may be edited by hand too, the notation is checked.
create table if not exists headgate.limits (
    name        text collate "C" primary key,
    rule        text not null,
    description text not null default '',
    updated_at  timestamptz not null default now(),
    compiled    headgate.compiled
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
