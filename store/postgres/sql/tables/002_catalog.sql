-- The catalog: limits, plans and overrides, for all who use this database. Limits are in
-- headgate.limits, which gets what the others have; everything else is in headgate.catalog.
-- Rows may be edited by hand: each transaction that changes some is a version.

-- kind        name       key                text
-- plan        the plan   name of a limit    its notation in this plan
-- assignment  ''         a key              the plan
-- override    the limit  a key              its notation for this key
-- file        its hash   ''                 ''
--
-- prefix-assignment and prefix-override are for all keys that begin with key.
--
-- note is a reason, or where a file was; from until on (microseconds, 0 for never) a row
-- counts no more. compiled is what the text of a plan or an override means.
create table if not exists headgate.catalog (
    kind     text collate "C" not null check (kind in ('plan', 'override', 'prefix-override', 'assignment', 'prefix-assignment', 'file')),
    name     text collate "C" not null,
    key      text collate "C" not null default '',
    text     text not null default '',
    note     text not null default '',
    origin   text not null default '',
    until    bigint not null default 0 check (until >= 0),
    retired  boolean not null default false,
    compiled headgate.compiled,
    primary key (kind, name, key)
);

-- The number of the newest version: one row, which everybody locks who changes something,
-- so that versions are committed in order.
create table if not exists headgate.catalog_version (
    only_one boolean primary key default true check (only_one),
    version  bigint not null
);
insert into headgate.catalog_version (version) values (0) on conflict do nothing;

create table if not exists headgate.versions (
    version bigint primary key,
    at      bigint not null,
    author  text not null,
    reason  text not null
);

-- What a version changed.
create table if not exists headgate.changes (
    version bigint not null,
    kind    text collate "C" not null,
    name    text collate "C" not null,
    key     text collate "C" not null,
    before  jsonb not null,
    after   jsonb not null,
    primary key (version, kind, name, key)
);

-- Users of this server who were given a role. Migrations give them what is new.
create table if not exists headgate.granted (
    role text not null check (role in ('app', 'service')),
    name text not null,
    primary key (role, name)
);

-- What was done to keys by hand: blocks, and resets. The newest 10,000 are kept.
create table if not exists headgate.actions (
    number bigint generated always as identity primary key,
    at     bigint not null,
    verb   text not null,
    limit_name text collate "C" not null,
    key    text collate "C" not null,
    lasts  bigint not null,
    author text not null,
    reason text not null
);
