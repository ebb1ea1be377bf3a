-- headgate_sweep removes up to p_max rows that can matter to no decision, for databases that
-- no headgate process sweeps: entries that count no more and that nobody asked to keep,
-- then what is remembered of requests, once its time is over, then cells that could
-- refuse nobody. It waits for no lock of a cell. One row: removed.
create procedure headgate_sweep(p_max int)
modifies sql data sql security invoker comment 'Removes rows that can no longer refuse a request.'
begin
    declare inside, pending, found int;
    declare removed, ended, part int default 0; -- entries, admissions, cells
    declare now, n bigint;
    declare l, i varbinary(255);
    declare k varbinary(512);
    declare old cursor for
        (select e.number, '', '', '' from (select number, limit_name, cell_key, expires_at, keep_until from headgate_entries force index (by_age)
            where part = 0 and keep_until <= now order by keep_until, number) e
        left join headgate_cells c on c.limit_name = e.limit_name and c.cell_key = e.cell_key
        where c.law is null or e.expires_at <= c.at or {{emptied c}} limit p_max)
        union all
        (select 0, limit_name, cell_key, id from headgate_admissions where part = 1 and keep_until <= now order by keep_until limit p_max)
        union all
        (select 0, c.limit_name, c.cell_key, '' from headgate_cells c where part = 2 and {{dead c}} order by c.limit_name, c.cell_key limit p_max);
    declare continue handler for not found set ended = 1;
    declare exit handler for sqlexception begin
        if not inside then rollback; end if;
        resignal;
    end;
    if p_max is null then
        call headgate_fail_N('p_max: is null');
    elseif p_max < 0 then
        call headgate_fail_N(concat('p_max: is ', p_max, '; it must not be below 0'));
    end if;
    call headgate_inside_N(inside);
    set now = {{clock}}, pending = 0;
    while part < 3 do
        set ended = 0;
        open old;
        fetch old into n, l, k, i;
        while not ended and removed < p_max do
            if not inside and pending mod 100 = 0 then -- so that nobody waits long for these rows
                commit;
                set transaction isolation level read committed;
                start transaction;
            end if;
            set pending = pending + 1;
            case part
                when 0 then
                    delete from headgate_entries where number = n and keep_until <= now;
                when 1 then
                    delete from headgate_admissions where limit_name = l and cell_key = k and id = i and keep_until <= now;
                else
                    set found = null;
                    select c.law into found from headgate_cells c where c.limit_name = l and c.cell_key = k for update skip locked;
                    delete from headgate_cells where found is not null and limit_name = l and cell_key = k and {{dead headgate_cells}};
            end case;
            set removed = removed + row_count(), ended = 0;
            fetch old into n, l, k, i;
        end while;
        close old;
        set part = part + 1;
    end while;
    if not inside then
        commit;
    end if;
    select removed;
end
//
