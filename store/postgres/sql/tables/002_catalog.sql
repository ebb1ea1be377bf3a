-- The catalog: limits, plans and overrides, for all who use this database. Limits are in
-- headgate.limits, which gets what the others have; everything else is in headgate.catalog.
-- Rows may be edited by hand: each transaction that changes some is a version.

alter table headgate.limits add column if not exists origin text not null default ''; -- 'file': a file wrote it
alter table headgate.limits add column if not exists retired boolean not null default false; -- the file has it no more; it still decides

-- What may hold for some keys in the place of the limit: 1 an override of a key, 2 one of a prefix,
-- 4 a plan; the sum of those that there are. Triggers of headgate.catalog keep it, in the
-- transaction that changes a row there. While it is 0, a decision reads nothing there.
alter table headgate.limits add column if not exists varies int not null default 0;

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
