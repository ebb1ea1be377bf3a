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
drop procedure if exists headgate_inside_N
//
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

-- headgate_full_N raises the error that what needs a cell of its own gets where its limit
-- has no room for one.
drop procedure if exists headgate_full_N
//
create procedure headgate_full_N(p_limit varbinary(255), what varchar(32) character set utf8mb4)
    deterministic contains sql sql security invoker
begin
    call headgate_fail_N(concat('limit: "', convert(p_limit using utf8mb4), '" has as many keys as it may, and this one is not among them; ', what, ' needs a key of its own'));
end
//

-- headgate_ask_N applies one op and leaves its outcome in the variables @hg_...:
-- g granted, x used, clk the time of the decision, retry, stale, entry, and the
-- cell: law, level, prev, at, unit, empty, block. It is what the Go driver sends,
-- with the same laws in it, as a procedure. From p_since until p_lapse, 0 for no end, what is
-- asked holds: a decision at another time is stale, and does nothing. Verb 9 takes as many credits as fit.
--
-- Outside a transaction it makes one of its own, repeated when it conflicts with
-- another; inside one of the caller's it charges as part of that, and the cell
-- stays locked until it ends. It never commits what is the caller's.
drop procedure if exists headgate_ask_N
//
create procedure headgate_ask_N(p_verb int, p_limit varbinary(255), p_key varbinary(512), p_kind int, p_anchor int, p_unit bigint,
    p_capacity bigint, p_step bigint, p_drain bigint, p_block bigint, p_history bigint, p_cost bigint, p_ceiling bigint, p_ttl bigint,
    p_note varbinary(512), p_b0 bigint, p_b1 bigint, p_b2 bigint, p_b3 bigint, p_since bigint, p_lapse bigint)
modifies sql data sql security invoker
begin
    declare inside, again int default 1;
    declare tries int default 0;
    declare p_pass, p_pos, p_first, p_size, p_partial int default 0;
    declare p_count bigint default 1;
    declare p_now, p_heal, p_generation bigint default 0;
    declare own_key varbinary(512) default p_key;
    set p_pass = if(p_verb in (5, 6), p_verb, 0);
    if p_verb = 9 then -- what fits, credit by credit
        set p_verb = 1, p_partial = 1, p_count = p_cost, p_cost = 1;
    end if;
    set p_drain = greatest(p_drain, 1);
    set p_heal = {{heal}};

    {{begin}}
            insert into headgate_cells (limit_name, cell_key) values (p_limit, p_key)
            on duplicate key update law = if({{laws}} < 0, 0, @hg_law), {{save}}
                reason = if(p_verb = 5, if(p_ttl > 0, p_note, ''), if(@hg_block <> headgate_cells.blocked_until, '', headgate_cells.reason)),
                blocked_until = @hg_block;
            set @hg_entry = 0;
            if @hg_full <> 0 and p_verb = 5 then -- there is no block to lift
                delete from headgate_cells where limit_name = p_limit and cell_key = p_key and law = 0;
                if p_ttl > 0 then
                    call headgate_full_N(p_limit, 'a block');
                end if;
            elseif @hg_full <> 0 then
                {{redirect}}
            end if;
            if p_verb = 6 or (p_verb = 1 and @hg_clear and @hg_done <> 2) then
                update headgate_entries set expires_at = 0 where limit_name = p_limit and cell_key = p_key and expires_at > 0;
            end if;
            if p_verb = 6 then
                delete from headgate_admissions where limit_name = p_limit and cell_key = p_key;
            end if;
            {{log}}
            {{commit}}
end
//
