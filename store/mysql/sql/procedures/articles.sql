-- The procedures of the articles, by their own names, but exact. Their comment says
-- that they are ours: no others of these names are ever replaced.

-- headgate_foreign_articles fails if there are others.
drop procedure if exists headgate_foreign_articles
//
create procedure headgate_foreign_articles()
reads sql data sql security invoker
begin
    declare foreigners text character set utf8mb4;
    set foreigners = (select group_concat(routine_name order by routine_name separator ', ') from information_schema.routines
        where {{foreign articles}});
    if foreigners is not null then
        set session transaction read only; -- so that even a client that goes on after an error drops none
        call headgate_fail_N(concat({{left alone}}));
    end if;
end
//

call headgate_foreign_articles()
//

-- check_velocity asks whether a key of a zone may pass, and records the attempt,
-- allowed or blocked, under its transaction id. One row.
drop procedure if exists check_velocity
//
create procedure check_velocity(p_zone_id int, p_bucket_key varchar(1024) character set utf8mb4 collate utf8mb4_bin)
modifies sql data sql security definer comment 'made by headgate: asks whether a key of a zone may pass, and records that'
begin
    declare v_rate, inside int;
    declare v_window, v_history bigint;
    call headgate_enter_N();
    select z.rate, z.window_seconds, greatest(1, z.history_days * 86400000000) into v_rate, v_window, v_history from headgate_zones z where z.id = p_zone_id;
    if v_rate is null then
        call headgate_fail_N(concat('zone: ', coalesce(p_zone_id, 'null'), ' is not in headgate_zones; insert its id, rate and window_seconds'));
    elseif p_bucket_key is null then
        call headgate_fail_N('bucket_key: is null');
    elseif length(p_bucket_key) > 512 then
        call headgate_fail_N(concat('bucket_key: is ', length(p_bucket_key), ' bytes long, at most 512 are allowed'));
    elseif locate(char(0 using utf8mb4), p_bucket_key) > 0 then
        call headgate_fail_N('bucket_key: contains a NUL byte');
    elseif left(p_bucket_key, 16) = 'headgate:shared:' then
        call headgate_fail_N('bucket_key: {{is reserved}}');
    end if;
    set @hg_count = 0;
    call headgate_inside_N(inside);
    if not inside then
        call headgate_direct_N(concat('zone.', p_zone_id), p_bucket_key, 3, 0, 1000, v_rate * 1000, v_window * 1000000, 0, v_history, 1000, 0);
    end if;
    if not @hg_count then
        call headgate_ask_N(1, concat('zone.', p_zone_id), p_bucket_key, 3, 0, 1000, v_rate * 1000, v_window * 1000000, 0, 0, v_history, 1000, 0, 0, '', 0, 0, 0, 0, 0, 0);
    end if;
    select 1 - @hg_g as blocked, @hg_entry as transaction_id, p_zone_id as zone_id, p_bucket_key as `key`, v_rate as rate, v_window as `window`;
end
//

-- request_token takes a token from a bucket of headgate_buckets, which is full
-- again at the first request after its refill_seconds. Its limit is bucket.ID, where the id can be
-- a part of a name, else request_token, and its key the id. One row: granted, 1 or 0;
-- remaining; retry_after, seconds until there is one, null for never (a bucket of
-- capacity 0); at, UTC. The number of affected rows is 1 or 0 too. MySQL takes that
-- of the last statement, so one that counts is the last. MariaDB adds up those of all
-- statements but the ones that return rows, so none counts but the last: variables
-- are set, not selected into, and what is written is returned. A row that was
-- returned cannot be taken back, so from then on a conflict is an error.
drop procedure if exists request_token
//
create procedure request_token(p_id varchar(1024) character set utf8mb4 collate utf8mb4_bin)
modifies sql data sql security definer comment 'made by headgate: takes a token from a bucket of headgate_buckets'
taking: begin
    declare inside, again, p_verb, p_kind, p_count int default 1;
    declare tries, ignored, p_anchor, p_partial int default 0;
    declare p_drain bigint default 9007199254740991;
    declare p_unit, p_cost bigint default 1000;
    declare p_capacity, p_step, p_block, p_history, p_ceiling, p_now, p_heal, p_generation, p_b0, p_b1, p_b2, p_b3, p_since, p_lapse bigint default 0;
    declare p_limit varbinary(255); -- it is never full: its keys are in headgate_buckets
    declare named varchar(64) character set utf8mb4 collate utf8mb4_bin;
    declare p_key varbinary(1024) default p_id;
    declare continue handler for not found begin end;

    call headgate_enter_N();
    call headgate_bucket_name_N(p_id, named);
    set p_limit = coalesce(named, 'request_token');
    call headgate_inside_N(inside);
    if not inside then
        set p_capacity = (select b.capacity * 1000 from headgate_buckets b where b.id = p_id);
        set p_step = (select b.refill_seconds * 1000000 from headgate_buckets b where b.id = p_id);
        set @hg_count = 0;
        if p_capacity is not null then
            call headgate_direct_N(p_limit, p_key, p_kind, p_anchor, p_unit, p_capacity, p_step, p_drain, 0, p_cost, 1);
        end if;
        if @hg_count then
            select {{token}};
            /*!80000 select 1 into ignored from dual where @hg_g = 1; */ -- MariaDB has counted the row of the cell
            leave taking;
        end if;
    end if;
    {{open}}
            -- The lock of the bucket is there at the first use of a key too, which has no row of its own to lock.
            set p_capacity = (select b.capacity * 1000 from headgate_buckets b where b.id = p_id for update);
            set p_step = (select b.refill_seconds * 1000000 from headgate_buckets b where b.id = p_id for update);
            if p_capacity is null then
                call headgate_fail_N(concat('bucket: ', coalesce(concat('"', left(p_id, 40), '"'), 'null'), ' is not in headgate_buckets; insert its id, capacity and refill_seconds'));
            end if;
            set p_heal = {{heal}};
            set @hg_new = (select c.law from headgate_cells c where c.limit_name = p_limit and c.cell_key = p_key for update) is null;
            set @hg_clock = {{clock}};
            set ignored = (select length({{look}}) from (select 1 as n) o
                left join headgate_cells c on c.limit_name = p_limit and c.cell_key = p_key for update);
            set tries = 100;
            if @hg_new then
                insert into headgate_cells (limit_name, cell_key, law, {{saved columns}})
                values (p_limit, p_key, @hg_law, {{saved values}})
                on duplicate key update law = if((@hg_g := 0) = 0, headgate_cells.law, 0) -- a block has just made it: refused, to ask again
                /*M! returning {{token}} */;
            else
                insert into headgate_cells (limit_name, cell_key) values (p_limit, p_key)
                on duplicate key update law = @hg_law, {{save}}
                    reason = if(@hg_block <> headgate_cells.blocked_until, '', headgate_cells.reason), blocked_until = @hg_block
                /*M! returning {{token}} */;
            end if;
            {{commit}}
    /*!80000 select {{token}}; */
    select 1 into ignored from dual where @hg_g = 1;
end
//
