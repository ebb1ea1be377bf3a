-- A single charge of a plain cell: one that is not there, or was charged under the same limit before, and of
-- which nothing was returned. Most charges are of one. Calls from SQL use it, and the Go driver for a lone charge.

-- headgate_direct_N is headgate_ask for a charge outside a transaction, by a bucket without a calendar
-- or by a log, without a block. It leaves the same variables, and in @hg_count whether
-- the cell was plain: if not, nothing was done, and headgate_ask has to decide. While @hg_end is 1, the charge may
-- have been committed: a caller whose call has failed can tell. It is
-- Decide of package law, line by line, without what a plain cell does not need. MariaDB adds a row that is
-- selected into variables to those that a CALL has changed; if p_uncounted is 1 a cursor reads it, which takes longer.
drop procedure if exists headgate_direct_N
//
create procedure headgate_direct_N(p_limit varbinary(255), p_key varbinary(512), p_kind int, p_anchor int, p_unit bigint,
    p_capacity bigint, p_step bigint, p_drain bigint, p_history bigint, p_cost bigint, p_uncounted int)
modifies sql data sql security invoker
begin
    declare never bigint default 9007199254740991;
    declare law, g int;
    declare fresh int default 0;
    declare level, prev, at, unit, step, dry, block, clk, moment, x, t, n, retry bigint default 0;
    declare present cursor for
        select c.law, c.level, c.prev, c.at, c.unit, c.step, c.empty_at, c.blocked_until
        from headgate_cells c where c.limit_name = p_limit and c.cell_key = p_key for update;
    declare continue handler for not found begin end; -- law stays null
    declare exit handler for 1213, 1020, 3101, 1062 begin -- a conflict, or others made the cell: nothing was done
        rollback;
        set @hg_count = 0;
    end;
    declare exit handler for sqlexception begin
        rollback;
        resignal;
    end;
    set @hg_count = 0, @hg_entry = 0, @hg_end = 0;
    set transaction isolation level read committed; -- at a higher one a row that is missing is locked with its neighbours
    start transaction;
    if p_uncounted then
        open present;
        fetch present into law, level, prev, at, unit, step, dry, block;
        close present;
    else
        select c.law, c.level, c.prev, c.at, c.unit, c.step, c.empty_at, c.blocked_until into law, level, prev, at, unit, step, dry, block
        from headgate_cells c where c.limit_name = p_limit and c.cell_key = p_key for update;
    end if;
    set clk = {{clock}};
    if law is null then
        set fresh = 1, law = p_kind, unit = p_unit, step = p_step;
    end if;
    if law = p_kind and unit = p_unit and step = p_step and prev = 0 and (at <= clk or at - clk <= {{heal}}) then
        set moment = greatest(clk, at), x = if(moment >= dry, 0, level);
        if p_kind = 3 then
            if x > 0 and moment > at then
                set x = greatest(0, x - (select cast(coalesce(sum(e.cost), 0) as signed) from headgate_entries e force index (by_cell)
                    where e.limit_name = p_limit and e.cell_key = p_key and e.expires_at > at and e.expires_at <= moment));
            end if;
            set g = x <= p_capacity - p_cost and block <= moment;
            if g then
                set level = x + p_cost, x = level, at = moment, dry = greatest(dry, moment + p_step);
            end if;
            if g or p_history > 0 then
                insert into headgate_entries (limit_name, cell_key, id, at, expires_at, keep_until, cost, granted)
                values (p_limit, p_key, '', moment, if(g, moment + p_step, 0), moment + greatest(p_history, if(g, p_step, 0)), p_cost, g);
                set @hg_entry = last_insert_id();
            end if;
        else
            if p_anchor = 0 then
                set n = (moment - at) div p_step, t = at + n * p_step;
            else
                set t = greatest(at, moment - moment mod p_step), n = (t - at) div p_step + ((t - at) mod p_step > 0);
            end if;
            if p_drain < never then
                set x = if(n >= x div p_drain + (x mod p_drain > 0), 0, x - p_drain * n);
            end if;
            if x = 0 and p_anchor = 0 then
                set t = moment;
            end if;
            set g = x <= p_capacity - p_cost and block <= moment;
            if g then
                set x = x + p_cost, at = t;
                set n = x div p_drain + (x mod p_drain > 0), dry = if(p_anchor = 1, t - t mod p_step, t),
                    dry = if(n > (never - dry) div p_step, never, dry + n * p_step);
                set level = x;
            end if;
        end if;
        if g and fresh then
            insert into headgate_cells (limit_name, cell_key, law, level, at, unit, step, empty_at)
            values (p_limit, p_key, law, level, at, unit, step, dry);
        elseif g then
            update headgate_cells c set c.level = level, c.at = at, c.empty_at = dry where c.limit_name = p_limit and c.cell_key = p_key;
        end if;
        if not g then
            if p_cost > p_capacity then
                set retry = never;
            elseif x <= p_capacity - p_cost then -- only a block is in the way
                set retry = moment;
            elseif p_kind = 3 then
                call headgate_freed_N(p_limit, p_key, moment, x - (p_capacity - p_cost), retry);
                set retry = least(retry, greatest(moment + p_step, dry), dry);
            elseif p_drain = never then
                set retry = dry;
            else
                set x = x - (p_capacity - p_cost), n = x div p_drain + (x mod p_drain > 0), retry = if(p_anchor = 1, t - t mod p_step, t),
                    retry = least(dry, if(n > (never - retry) div p_step, never, retry + n * p_step)), x = x + (p_capacity - p_cost);
            end if;
            set retry = greatest(retry, block);
        end if;
        set @hg_count = 1, @hg_g = g, @hg_x = x, @hg_clk = clk, @hg_now = moment, @hg_retry = retry, @hg_level = level, @hg_at = at,
            @hg_empty = dry, @hg_block = block, @hg_stale = 0;
    end if;
    set @hg_end = 1;
    commit;
end
//

-- headgate_freed_N returns the time at which so many credits of a log have expired. As in decide.tmpl, the sum
-- names a column that is not in the index.
drop procedure if exists headgate_freed_N
//
create procedure headgate_freed_N(p_limit varbinary(255), p_key varbinary(512), moment bigint, need bigint, out later bigint)
    reads sql data sql security invoker
begin
    set @hg_sum = 0;
    set later = coalesce((select e.expires_at from headgate_entries e force index (by_cell)
        where e.limit_name = p_limit and e.cell_key = p_key and e.expires_at > moment
            and (@hg_sum := @hg_sum + if(e.granted, e.cost, 0)) >= need
        order by e.expires_at limit 1), 9007199254740991);
end
//
