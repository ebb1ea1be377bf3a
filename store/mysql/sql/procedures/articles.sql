-- The procedures of the articles, by their own names, but exact. Their comment says
-- that they are ours: no others of these names are ever replaced.

-- headgate_foreign_articles fails if there are others.
create procedure headgate_foreign_articles()
reads sql data sql security invoker
begin
    declare foreigners text character set utf8mb4;
    set foreigners = (select group_concat(routine_name order by routine_name separator ', ') from information_schema.routines
        where routine_schema = database() and routine_type = 'PROCEDURE' and lower(routine_name) in ('check_velocity', 'request_token')
        and routine_comment not like 'made by headgate%');
    if foreigners is not null then
        set session transaction read only; -- so that even a client that goes on after an error drops none
        call headgate_fail_N(concat('did not make the articles'' procedures: ', foreigners,
            ' exists and is not ours; rename or drop it and migrate again'));
    end if;
end
//

call headgate_foreign_articles()
//

-- check_velocity asks whether a key of a zone may pass, and records the attempt,
-- allowed or blocked, under its transaction id. One row.
create procedure check_velocity(p_zone_id int, p_bucket_key varchar(1024) character set utf8mb4 collate utf8mb4_bin)
modifies sql data sql security definer comment 'made by headgate: asks whether a key of a zone may pass, and records that'
begin
    declare v_rate int;
    declare v_window, v_history bigint;
    call headgate_enter_N();
    select z.rate, z.window_seconds, greatest(1, z.history_days * 86400000000) into v_rate, v_window, v_history from headgate_zones z where z.id = p_zone_id;
    if v_rate is null then
        call headgate_fail_N(concat('zone: ', coalesce(p_zone_id, 'null'), ' is not in headgate_zones; insert its id, rate and window_seconds'));
    end if;
    call headgate_text_N('bucket_key', p_bucket_key, 512);
    call headgate_ask_N(1, concat('zone.', p_zone_id), p_bucket_key, 3, 0, 1000, v_rate * 1000, v_window * 1000000, 0, 0, v_history, 1000, 0, 0, '',
        0, 0, 0, 0, 0, 0);
    select 1 - @hg_g as blocked, @hg_entry as transaction_id, p_zone_id as zone_id, p_bucket_key as `key`, v_rate as rate, v_window as `window`;
end
//

-- request_token takes a token from a bucket of headgate_buckets, which is full
-- again at the first request after its refill_seconds. Its limit is bucket.ID, where the id can be
-- a part of a name, else request_token, and its key the id. One row: granted, 1 or 0;
-- remaining; retry_after, seconds until there is one, null for never (a bucket of
-- capacity 0); at, UTC. The number of affected rows is 1 or 0 too. MySQL takes that
-- of the last statement. MariaDB adds up those of all statements but the ones that return
-- rows, so exactly one counts if a token is granted: variables are set, or fetched by a cursor, not
-- selected into, and what a refusal writes is returned.
create procedure request_token(p_id varchar(1024) character set utf8mb4 collate utf8mb4_bin)
modifies sql data sql security definer comment 'made by headgate: takes a token from a bucket of headgate_buckets'
begin
    declare inside, again int default 1;
    declare tries, ignored, cleared, moved, clears, stale, lost, told int default 0;
    declare p_capacity, p_step, clock, moment, carry, granted, used, retry_at bigint default 0;
    declare base_level, base_prev, base_at, base_step, base_empty_at bigint;
    {{cell}}
    declare p_limit varbinary(255);
    declare named varchar(64) character set utf8mb4 collate utf8mb4_bin;
    declare p_key varbinary(1024) default p_id;

    call headgate_enter_N();
    call headgate_bucket_name_N(p_id, named);
    set p_limit = coalesce(named, 'request_token');
    {{open}}
            -- The lock of the bucket is there at the first use of a key too, which has no row of its own to lock.
            set p_capacity = (select b.capacity * 1000 from headgate_buckets b where b.id = p_id for update);
            set p_step = (select b.refill_seconds * 1000000 from headgate_buckets b where b.id = p_id for update);
            if p_capacity is null then
                call headgate_fail_N(concat('bucket: ', coalesce(concat('"', left(p_id, 40), '"'), 'null'), ' is not in headgate_buckets; insert its id, capacity and refill_seconds'));
            end if;
            repeat
                begin
                    declare present cursor for select c.law, c.level, c.prev, c.at, c.unit, c.step, c.empty_at, c.blocked_until
                        from headgate_cells c where c.limit_name = p_limit and c.cell_key = p_key for update;
                    declare continue handler for not found set s_kind = null;
                    open present;
                    fetch present into {{state}};
                    close present;
                end;
                set lost = s_kind is null, clock = {{clock}}, cleared = 0;
                if lost then
                    set s_kind = 0, s_level = 0, s_prev = 0, s_at = 0, s_unit = 0, s_step = 0, s_empty_at = 0, s_blocked_until = 0;
                end if;
                call headgate_decide_N(p_limit, p_key, 1, 1, 0, 1000, p_capacity, p_step, 9007199254740991, 0, 1000, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                    clock, 0, cleared, {{state}}, base_level, base_prev, base_at, base_step, base_empty_at, moved, moment, clears, carry, granted,
                    used, retry_at, stale);
                set @hg_g = granted, @hg_clk = clock, @hg_retry = retry_at;
                if granted and lost then -- unless others have just made the cell
                    insert ignore into headgate_cells (limit_name, cell_key, law, level, prev, at, unit, step, empty_at, blocked_until)
                    values (p_limit, p_key, {{state}});
                    set lost = row_count() <> 1;
                elseif granted then
                    set lost = 0;
                    {{save}}
                elseif moved and not lost then
                    set tries = 100; -- a row that was returned cannot be taken back
                    insert into headgate_cells (limit_name, cell_key) values (p_limit, p_key)
                    on duplicate key update law = s_kind, level = s_level, prev = s_prev, at = s_at, unit = s_unit, step = s_step, empty_at = s_empty_at
                    /*M! returning {{token}} */;
                    /*M! set told = 1; */
                else
                    set lost = 0;
                end if;
            until not lost end repeat;
            {{commit}}
    if not told then
        select {{token}};
    end if;
    /*!80000 select 1 into ignored from dual where granted = 1; */
end
//
