-- A single charge of a plain cell of a bucket: one that is not there, or was charged under the same limit before,
-- and of which nothing was returned. Most charges are of one. Calls from SQL use it, and the Go driver for a lone
-- charge where an INSERT returns no rows.

-- headgate_direct_N is TakePlain of package law, line by line, outside a transaction. It leaves the variables of
-- headgate_ask, and in @hg_count whether the cell was plain: if not, nothing was done, and the general way has to
-- decide. While @hg_end is 1, the charge may have been committed: a caller whose call has failed can tell.
create procedure headgate_direct_N(p_limit varbinary(255), p_key varbinary(512), p_anchor int, p_unit bigint,
    p_capacity bigint, p_step bigint, p_drain bigint, p_cost bigint)
modifies sql data sql security invoker
begin
    declare never bigint default 9007199254740991;
    declare law, granted int;
    declare fresh int default 0;
    declare level, prev, at, unit, step, empty_at, blocked_until, clk, moment, used, t, n, excess, retry bigint default 0;
    declare continue handler for not found begin end; -- law stays null
    declare exit handler for 1213, 1020, 3101, 1062 begin -- a conflict, or others made the cell: nothing was done
        rollback;
        set @hg_count = 0;
    end;
    declare exit handler for 1180 begin -- of a member of a group, error 149 is a conflict
        declare problem text character set utf8mb4;
        get diagnostics condition 1 problem = message_text;
        rollback;
        if problem not like 'Got error 149 %' then resignal; end if;
        set @hg_count = 0;
    end;
    declare exit handler for sqlexception begin
        rollback;
        resignal;
    end;
    set @hg_count = 0, @hg_end = 0;
    set transaction isolation level read committed; -- at a higher one a row that is missing is locked with its neighbours
    start transaction;
    select c.law, c.level, c.prev, c.at, c.unit, c.step, c.empty_at, c.blocked_until
    into law, level, prev, at, unit, step, empty_at, blocked_until
    from headgate_cells c where c.limit_name = p_limit and c.cell_key = p_key for update;
    set clk = {{clock}};
    if law is null then
        set fresh = 1, law = 1, unit = p_unit, step = p_step;
    end if;
    if law = 1 and unit = p_unit and step = p_step and prev = 0 and at - clk <= 2000000 then
        set moment = greatest(clk, at), used = if(moment >= empty_at, 0, level);
        if p_anchor = 0 then
            set n = (moment - at) div p_step, t = at + n * p_step;
        else
            set t = greatest(at, moment - moment mod p_step), n = (t - at) div p_step + ((t - at) mod p_step > 0);
        end if;
        if p_drain < never then
            set used = if(n >= used div p_drain + (used mod p_drain > 0), 0, used - p_drain * n);
        end if;
        if used = 0 and p_anchor = 0 then
            set t = moment;
        end if;
        set granted = used <= p_capacity - p_cost and blocked_until <= moment;
        if granted then
            set used = used + p_cost, level = used, at = t, excess = used;
        else
            set excess = used - (p_capacity - p_cost);
        end if;
        -- When the excess has drained: all of it if it was granted, else as much as is in the way.
        set n = excess div p_drain + (excess mod p_drain > 0), retry = if(p_anchor = 1, t - t mod p_step, t),
            retry = if(n > (never - retry) div p_step, never, retry + n * p_step);
        if granted then
            set empty_at = retry, retry = 0;
            if fresh then
                insert into headgate_cells (limit_name, cell_key, law, level, at, unit, step, empty_at)
                values (p_limit, p_key, law, level, at, unit, step, empty_at);
            else
                update headgate_cells c set c.level = level, c.at = at, c.empty_at = empty_at
                where c.limit_name = p_limit and c.cell_key = p_key;
            end if;
        elseif p_cost > p_capacity then
            set retry = never;
        elseif excess <= 0 then -- only a block is in the way
            set retry = greatest(moment, blocked_until);
        elseif p_drain = never then
            set retry = greatest(empty_at, blocked_until);
        else
            set retry = greatest(least(empty_at, retry), blocked_until);
        end if;
        set @hg_count = 1, @hg_g = granted, @hg_x = used, @hg_clk = clk, @hg_now = moment, @hg_retry = retry,
            @hg_level = level, @hg_at = at, @hg_empty = empty_at, @hg_block = blocked_until, @hg_stale = 0, @hg_entry = 0;
    end if;
    set @hg_end = 1;
    commit;
end
//
