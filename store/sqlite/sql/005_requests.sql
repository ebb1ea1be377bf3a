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

-- Until when an id is known in a cell, or was. The cell stays for so long.
alter table cells add column ids_until integer not null default 0;

-- Cells that were reset while ids were known in them. They know no charge of an era before era.
-- The present era is the number of such resets: see settings.
create table resets (
    limit_name text not null,
    key        text not null,
    era        integer not null,
    keep_until integer not null,
    primary key (limit_name, key)
) without rowid, strict;

insert into requests (id, several, home_limit, home_key, charges, keep_until)
    select id, 0, limit_name, key, json_array(json_object('limit', limit_name, 'key', key, 'print', print,
        'terms', rule, 'cost', cost, 'outcome', outcome, 'settled', settled, 'keep_until', keep_until, 'era', 0)), keep_until
    from admissions;
update cells set ids_until = coalesce((select max(a.keep_until) from admissions a
    where a.limit_name = cells.limit_name and a.key = cells.key), 0);
drop table admissions;
