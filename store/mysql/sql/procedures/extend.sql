-- A charge under an id that grows while its work goes on: headgate_extend and headgate_extend_all.

-- headgate_extended_N writes what the extension of a charge leaves, of which record is what its second row has
-- answered: see rememberExtended. It needs the variables that the record has, and leaves the number of the entry in
-- @hg_entry, what is charged in all in @hg_charged, and whether the request was admitted in @hg_admitted.
drop procedure if exists headgate_extended_N
//
create procedure headgate_extended_N(p_limit varbinary(255), p_key varbinary(512), p_id varbinary(255), p_kind int, p_anchor int, p_unit bigint,
    p_capacity bigint, p_step bigint, p_given bigint, p_history bigint, p_ttl bigint, record varchar(2048) character set latin1)
modifies sql data sql security invoker
begin
    declare p_verb, p_count int default 1;
    declare p_note varbinary(255) default p_id;
    declare p_cost, had, remains bigint default 0;
    declare terms varbinary(255) default concat_ws(' ', p_kind, p_anchor, p_unit, p_capacity, p_step, p_given);
    set @hg_o = record, @hg_entry = 0, @hg_charged = @hg_g, @hg_g = 1;
    set @hg_more = {{answered more}}, @hg_admitted = {{answered admitted}};
    set p_cost = @hg_more;
    if @hg_clear and @hg_done <> 2 then
        update headgate_entries set expires_at = 0 where limit_name = p_limit and cell_key = p_key and expires_at > 0;
    end if;
    {{log}}
    if p_kind = 3 and @hg_done = 1 then
        set had = (select {{entry of outcome}} from headgate_admissions a where a.limit_name = p_limit and a.cell_key = p_key and a.id = p_id);
        set remains = coalesce((select e.cost from headgate_entries e where e.number = had and e.limit_name = p_limit and e.cell_key = p_key
            and e.granted = 1 and e.expires_at > @hg_now), 0);
        if remains <> 0 then
            update headgate_entries set expires_at = 0, cost = 0 where number = had and limit_name = p_limit and cell_key = p_key;
            update headgate_entries set cost = cost + remains where number = @hg_entry and limit_name = p_limit and cell_key = p_key;
        end if;
    end if;
    if @hg_admitted then
        update headgate_admissions
        set outcome = case when @hg_more = 0 then outcome
                when p_kind = 3 then {{moved outcome}}
                when p_kind = 1 and (p_anchor = 2 or p_given = 9007199254740991) then {{raised outcome}}
                else {{extended outcome}} end,
            rule = if(@hg_more > 0 and rule <> terms, '{{no terms}}', rule), cost = cost + @hg_more,
            keep_until = greatest(keep_until, @hg_told + p_ttl)
        where limit_name = p_limit and cell_key = p_key and id = p_id;
    end if;
    set @hg_g = @hg_charged;
end
//

-- headgate_more_N makes p_cost what the charge of an id has charged in all. It leaves what headgate_once_N does, and
-- what headgate_extended_N does.
drop procedure if exists headgate_more_N
//
create procedure headgate_more_N(p_limit varbinary(255), p_key varbinary(512), p_kind int, p_anchor int, p_unit bigint,
    p_capacity bigint, p_step bigint, p_drain bigint, p_block bigint, p_history bigint, p_cost bigint, p_ttl bigint,
    p_id varbinary(255), p_ceiling bigint, p_b0 bigint, p_b1 bigint, p_b2 bigint, p_b3 bigint, p_since bigint, p_lapse bigint)
modifies sql data sql security invoker
begin
    declare inside, again, p_pos, p_first, p_size, p_count int default 1;
    declare tries, p_partial int default 0;
    declare p_now, p_heal, p_given bigint default 0;
    set p_given = p_drain, p_drain = greatest(p_drain, 1);
    set p_heal = {{heal}};

    {{begin}}
            {{more variables}}
            set @hg_undo = cast(repeat('0', 289) as binary);
            insert into headgate_cells (limit_name, cell_key)
            select p_limit, p_key from (select 11 as pass union all select 12) o
            on duplicate key update law = if({{extend}} < 0, 0, @hg_law), {{save}}
                reason = if(@hg_block <> headgate_cells.blocked_until, '', headgate_cells.reason), blocked_until = @hg_block;
            set @hg_g = {{granted}};
            call headgate_extended_N(p_limit, p_key, p_id, p_kind, p_anchor, p_unit, p_capacity, p_step, p_given, p_history, p_ttl, @hg_r);
            delete from headgate_cells where limit_name = p_limit and cell_key = p_key and law = 0; -- an extension makes none
            {{commit}}
    {{outcome}};
    set @hg_stale = @hg_how = 1, @hg_now = greatest(@hg_clk, @hg_at), @hg_g = @hg_admitted;
end
//

-- headgate_extend makes total what was charged under an id in all, all of it or nothing: what that is more than before is
-- decided as headgate_take decides a cost, and remembered for another life_seconds, of which 0 or null is an hour. A total
-- that is not more charges nothing, and answers what was answered first. One row, that of headgate_take, and charged:
-- what is charged in all, also if it was refused. An id that is not known or was settled is an error.
drop procedure if exists headgate_extend
//
create procedure headgate_extend(id varchar(1024) character set utf8mb4 collate utf8mb4_bin, rule varchar(2048) character set utf8mb4 collate utf8mb4_bin,
    `key` varchar(1024) character set utf8mb4 collate utf8mb4_bin, total decimal(65, 30), life_seconds decimal(65, 30))
modifies sql data sql security definer comment 'Charges more under an id, so that total is charged in all. charged is what is, also if it was refused.'
begin
    declare life bigint;
    call headgate_enter_N();
    call headgate_life_N(life_seconds, life);
    call headgate_verb_N(10, 0, rule, `key`, total, coalesce(id, ''), life, 0, 0);
    {{figures}},
        cast(cast(@hg_charged as decimal(26, 9)) / @hg_c as decimal(26, 9)) as charged;
end
//

-- headgate_extend_all is headgate_extend for several charges of a request with an id, all or none; cost is what each has
-- charged in all from then on. They need not be all of the request's. The rows are those of headgate_take_all, with charged.
drop procedure if exists headgate_extend_all
//
create procedure headgate_extend_all(id varchar(1024) character set utf8mb4 collate utf8mb4_bin, charges longtext character set utf8mb4 collate utf8mb4_bin,
    life_seconds decimal(65, 30))
modifies sql data sql security definer comment 'headgate_extend for several charges under an id, all or none. One row for each.'
begin
    declare life bigint;
    call headgate_enter_N();
    call headgate_life_N(life_seconds, life);
    call headgate_all_N(10, charges, coalesce(id, ''), life, 0);
    {{each extended}};
end
//
