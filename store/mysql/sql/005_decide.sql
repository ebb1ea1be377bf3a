-- headgate_ask applies one op and leaves its outcome in the variables @hg_...:
-- g granted, x used, clk the time of the decision, retry, stale, entry, and the
-- cell: law, level, prev, at, unit, empty, block. It is what the Go driver sends,
-- with the same laws in it, as a procedure.
--
-- Outside a transaction it makes one of its own, repeated when it conflicts with
-- another; inside one of the caller's it charges as part of that, and the cell
-- stays locked until it ends. It never commits what is the caller's.
drop procedure if exists headgate_ask
//
create procedure headgate_ask(p_verb int, p_limit varbinary(255), p_key varbinary(512), p_kind int, p_anchor int, p_unit bigint,
    p_capacity bigint, p_step bigint, p_drain bigint, p_block bigint, p_history bigint, p_cost bigint, p_ttl bigint,
    p_note varbinary(512), p_b0 bigint, p_b1 bigint, p_b2 bigint, p_b3 bigint)
modifies sql data sql security invoker
begin
    declare inside, again int default 1;
    declare tries int default 0;
    declare p_pass, p_pos, p_first, p_size, p_partial int default 0;
    declare p_count int default 1;
    declare p_ceiling, p_now, p_heal bigint default 0;
    set p_pass = if(p_verb in (5, 6), p_verb, 0);
    set p_drain = greatest(p_drain, 1);
    set p_heal = {{heal}};

    {{begin}}
            insert into headgate_cells (limit_name, cell_key) values (p_limit, p_key)
            on duplicate key update law = if({{laws}} < 0, 0, @hg_law), {{save}}
                reason = if(p_verb = 5, if(p_ttl > 0, p_note, ''), if(@hg_block <> headgate_cells.blocked_until, '', headgate_cells.reason)),
                blocked_until = @hg_block;
            set @hg_entry = 0;
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
