-- Requests with an id: one row for each, in the place of one for each of its cells.

-- A schema that was made before has the columns of cells not yet, and rows of the other kind.
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

-- What is remembered of a request that was admitted: cells are the generations of the cells that it has
-- charged, and home is the first of these, negative if there are more. For each of these, in the same order:
-- prints, of all charges of the request; keeps, from when on the id is forgotten; costs, credits charged
-- in all; settled, credits that it cost in the end, -1 before that is known, -2 if it was cancelled;
-- rules, kind, anchor, unit, capacity, step and drain of the limit by then, a capacity of 0 if it was
-- extended under another limit; outcomes, numbers of what headgate.apply_N answered first:
-- granted, level, prev, at, empty_at, blocked_until, used, entry and start_at; and extensions, null if
-- there was none in a bucket or in windows: cost of the last one, 0 if there was none, and level, at and prev
-- of the cell after it. keep_until is the last of keeps.
--
-- An id is known to each cell apart. Rows of one cell are found by id and home, so that an id that many
-- keys use costs no more than others; of the rows of several cells all those of the id are read. An id may
-- be in several rows, but then these have no cell in common: what is admitted again on a cell replaces what
-- was there in its row. What a row has of a cell is written by those who have locked the cell, so others may
-- write the rest of the row at the same time: each changes the row as it finds it under the row's own lock.
-- Rows are locked after all cells, in the order of id and home. A sweep removes whole rows.
--
-- Half of each page is free, so that a row that is settled stays in its page (HOT).
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

-- Each of the former rows is a request of one charge.
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
