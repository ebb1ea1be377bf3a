-- Requests with an id: one row for each request, not one for each of its cells.

-- A schema of state 1 lacks the columns of cells and has rows of the other kind.
do $$ begin
    if not exists (select from pg_attribute a where a.attrelid = 'headgate.cells'::regclass and a.attname = 'generation') then
        alter table headgate.cells add column generation bigint not null generated always as identity,
            add column ids_until bigint not null default 0;
    end if;
    if exists (select from pg_attribute a where a.attrelid = to_regclass('headgate.admissions') and a.attname = 'limit_name') then
        alter table headgate.admissions rename to admissions_of_cells;
        drop index headgate.admissions_by_time;
    end if;
end $$;

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

-- A row of state 1 becomes a request of one charge.
do $$ begin
    if to_regclass('headgate.admissions_of_cells') is not null then
        insert into headgate.admissions (id, home, keep_until, cells, prints, keeps, costs, settled, rules, outcomes, extensions)
        select a.id, c.generation, a.keep_until, array[c.generation], array[a.print], array[a.keep_until], array[a.cost], array[a.settled],
            array[case when a.rule[4] > 0 then a.rule else array[a.outcome[2], 0, a.outcome[6], 0, a.outcome[15], 0] end],
            array[array[a.outcome[1], a.outcome[3], a.outcome[4], a.outcome[5], a.outcome[7], a.outcome[8], a.outcome[9], a.outcome[12], a.outcome[14]]],
            case when cardinality(a.outcome) > 15 then array[a.outcome[16:19]] end
        from headgate.admissions_of_cells a join headgate.cells c on c.limit_name = a.limit_name and c.key = a.key;
        update headgate.cells c set ids_until = a.until
        from (select limit_name, key, max(keep_until) as until from headgate.admissions_of_cells group by limit_name, key) a
        where c.limit_name = a.limit_name and c.key = a.key;
        drop table headgate.admissions_of_cells;
    end if;
end $$;
