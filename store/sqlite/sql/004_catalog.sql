-- The catalog: limits, plans, overrides, and the files that were applied.
create table catalog_items (
    kind     text not null,
    name     text not null,
    key      text not null,
    text     text not null,
    note     text not null,
    origin   text not null,
    max_keys integer not null,
    until    integer not null,
    retired  integer not null,
    primary key (kind, name, key)
) without rowid, strict;

create table catalog_versions (
    version integer primary key,
    at      integer not null,
    author  text not null,
    reason  text not null
) strict;

-- What a version changed: the item before and after as JSON.
create table catalog_changes (
    version integer not null,
    kind    text not null,
    name    text not null,
    key     text not null,
    before  text not null,
    after   text not null,
    primary key (version, kind, name, key)
) without rowid, strict;
