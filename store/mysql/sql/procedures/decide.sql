-- headgate_inside_N tells whether there is a transaction of the caller's, or may be at any
-- moment, without autocommit. Outside one, the next has the level READ COMMITTED. To
-- ask by a SAVEPOINT would not do: on MySQL, where Group Replication has rolled a
-- transaction back, SAVEPOINT begins another one without an error, and the COMMIT
-- sends the statements of both to the other servers.
--
-- MariaDB with innodb_snapshot_isolation ends a caller's transaction, and undoes all of
-- it, when a cell was charged by another since its snapshot (error 1020), unless it is
-- READ COMMITTED. So it is refused before anything is done. The level of one
-- transaction cannot be read, only that of the session.
create procedure headgate_inside_N(out inside int)
modifies sql data sql security invoker
begin
    set inside = not @@autocommit;
    if not inside then
        begin
            declare continue handler for 1568 set inside = 1; -- within a transaction, its level cannot be set
            set transaction isolation level read committed;
        end;
    end if;
    /*M! if inside then
        set @hg_strict = 0;
        begin
            declare exit handler for 1193 begin end; -- the server has no such variable
            prepare headgate_strict from 'set @hg_strict = @@innodb_snapshot_isolation and @@tx_isolation in (''REPEATABLE-READ'', ''SERIALIZABLE'')';
            execute headgate_strict;
            deallocate prepare headgate_strict;
        end;
        if @hg_strict then
            call headgate_fail_N('{{strict}}');
        end if;
    end if; */
end
//

-- headgate_ask_N applies one op to a cell and leaves its outcome in the variables @hg_...:
-- g granted, x used, clk the store's clock, now the time of the decision, retry, stale, entry, and of the
-- cell at, empty and block. The verbs are those of package law that need no id, and 9, which takes as many credits as
-- fit. p_ttl is how long a block lasts, or the number of a lease. From p_since until p_lapse, 0 for no end, what is asked holds: a
-- decision at another time is stale, and does nothing.
--
-- Outside a transaction it makes one of its own, repeated when it conflicts with
-- another; inside one of the caller's it charges as part of that, and the cell
-- stays locked until it ends. It never commits what is the caller's. A check locks nothing.
create procedure headgate_ask_N(p_verb int, p_limit varbinary(255), p_key varbinary(512), p_kind int, p_anchor int, p_unit bigint,
    p_capacity bigint, p_step bigint, p_drain bigint, p_block bigint, p_history bigint, p_cost bigint, p_ceiling bigint, p_ttl bigint,
    p_note varbinary(512), p_b0 bigint, p_b1 bigint, p_b2 bigint, p_b3 bigint, p_since bigint, p_lapse bigint)
modifies sql data sql security invoker
asking: begin
    declare inside, again int default 1;
    declare tries, p_part, cleared, moved, clears, stale, admitted, was_kind int default 0;
    declare times, entry bigint default 1;
    declare clock, moment, carry, granted, used, retry_at, ends_at bigint default 0;
    declare base_level, base_prev, base_at, base_step, base_empty_at bigint;
    {{cell}}
    if p_verb = 2 then
        begin
            declare continue handler for not found begin end;
            {{read}};
        end;
        set clock = {{clock}}, @hg_at = s_at, @hg_empty = s_empty_at, @hg_block = s_blocked_until;
        call headgate_decide_N(p_limit, p_key, 2, p_kind, p_anchor, p_unit, p_capacity, p_step, p_drain, 0, p_cost, 1, 0, p_ceiling, 0,
            p_b0, p_b1, p_b2, p_b3, p_since, p_lapse, clock, 0, cleared, {{state}}, base_level, base_prev, base_at, base_step, base_empty_at,
            moved, moment, clears, carry, granted, used, retry_at, stale);
        set @hg_g = granted, @hg_x = used, @hg_clk = clock, @hg_now = moment, @hg_retry = retry_at, @hg_stale = stale, @hg_entry = 0;
        leave asking;
    elseif p_verb = 9 then -- what fits, credit by credit
        set p_verb = 1, p_part = 1, times = p_cost, p_cost = 1;
    end if;

    {{open}}
            {{lock}}
            set entry = 0, stale = 0, granted = 0, used = 0, moment = greatest(clock, s_at), retry_at = 0, was_kind = s_kind;
            if p_verb = 5 then -- block
                if s_kind = 0 then
                    set s_kind = p_kind, s_unit = p_unit, s_step = p_step;
                end if;
                set granted = 1, s_blocked_until = if(p_ttl > 0, moment + p_ttl, 0), retry_at = s_blocked_until;
                {{save}}
                update headgate_cells c set c.reason = if(p_ttl > 0, p_note, '') where c.limit_name = p_limit and c.cell_key = p_key;
            elseif p_verb = 6 then -- reset
                set granted = s_kind <> 0, s_at = 0, s_empty_at = 0, s_blocked_until = 0;
                delete from headgate_cells where limit_name = p_limit and cell_key = p_key;
                update headgate_entries e set e.expires_at = 0 where e.limit_name = p_limit and e.cell_key = p_key and e.expires_at > 0;
                delete from headgate_admissions where limit_name = p_limit and cell_key = p_key;
            elseif p_verb = 3 then -- end a lease: give back all that is left of it
                call headgate_correct_N(p_limit, p_key, 3, 0, p_unit, 0, p_step, 0, 0, 0, 0, 0, 9007199254740991, 0, 0, 0, p_ttl, clock,
                    s_kind, s_level, s_prev, s_at, s_unit, s_step, s_empty_at, granted, used);
                if granted > 0 then
                    {{save}}
                end if;
            elseif p_verb = 7 then -- renew a lease, unless it was reset, or the limit was changed
                set ends_at = coalesce((select e.expires_at from headgate_entries e where e.number = p_ttl and e.limit_name = p_limit
                    and e.cell_key = p_key and e.granted = 1 and e.cost > 0 and e.expires_at > moment for update), 0);
                set granted = ends_at > 0 and s_kind = 3 and s_unit = p_unit;
                if granted and moment + p_step > ends_at then
                    set ends_at = moment + p_step, s_empty_at = greatest(s_empty_at, ends_at);
                    update headgate_entries e set e.expires_at = ends_at, e.keep_until = greatest(e.keep_until, ends_at) where e.number = p_ttl;
                    {{save}}
                end if;
            else
                set cleared = 0;
                call headgate_decide_N(p_limit, p_key, 1, p_kind, p_anchor, p_unit, p_capacity, p_step, p_drain, p_block, p_cost, times, p_part,
                    p_ceiling, 0, p_b0, p_b1, p_b2, p_b3, p_since, p_lapse, clock, 0, cleared, {{state}}, base_level, base_prev, base_at, base_step,
                    base_empty_at, moved, moment, clears, carry, granted, used, retry_at, stale);
                set admitted = granted > 0;
                if not stale and (admitted or moved) then
                    {{save}}
                end if;
                if not stale and p_kind = 3 then
                    call headgate_log_N(p_limit, p_key, '', p_step, p_history, moment, admitted or moved, clears, carry, base_empty_at, admitted,
                        if(admitted, granted, times) * p_cost, entry);
                end if;
            end if;
            if was_kind = 0 then -- it was made to be locked
                delete from headgate_cells where limit_name = p_limit and cell_key = p_key and law = 0;
            end if;
            {{commit}}
    set @hg_g = granted, @hg_x = used, @hg_clk = clock, @hg_now = moment, @hg_retry = retry_at, @hg_stale = stale, @hg_entry = entry,
        @hg_at = s_at, @hg_empty = s_empty_at, @hg_block = s_blocked_until;
end
//

-- headgate_log_N writes what a decision at a moment leaves in the log of its cell, and returns the number of the attempt:
-- see settle of package law. changed says that the cell is written.
create procedure headgate_log_N(p_limit varbinary(255), p_key varbinary(512), p_note varbinary(512), step bigint, history bigint,
    moment bigint, changed int, clears int, carry bigint, ends_at bigint, admitted int, credits bigint, out entry bigint)
modifies sql data sql security invoker
begin
    set entry = 0;
    if changed and clears then
        update headgate_entries e set e.expires_at = 0 where e.limit_name = p_limit and e.cell_key = p_key and e.expires_at > 0;
    end if;
    if changed and carry > 0 then
        insert into headgate_entries (limit_name, cell_key, id, at, expires_at, keep_until, cost, granted)
        values (p_limit, p_key, 'carried over', moment, ends_at, moment + greatest(step, history), carry, 1);
    end if;
    if admitted or history > 0 then
        insert into headgate_entries (limit_name, cell_key, id, at, expires_at, keep_until, cost, granted)
        values (p_limit, p_key, p_note, moment, if(admitted, moment + step, 0), moment + greatest(history, if(admitted, step, 0)), credits, admitted);
        set entry = last_insert_id();
    end if;
end
//
