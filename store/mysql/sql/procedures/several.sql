-- Several charges in one request, all or none: headgate_take_all, headgate_take_all_once, headgate_reserve_all and
-- headgate_settle_all. What is asked is a JSON array of objects with limit, key and cost.
--
-- Within these procedures the charges are a JSON array of arrays: limit and key in hexadecimal digits, the
-- numbers of the op as a text with commas, and some of them by themselves. See groupColumns.

-- headgate_rows_N returns the rows of the statement that decides: one of each charge for the first pass, then one of
-- each for the second. generations has the period of each key that shares a cell, 17 digits each.
drop procedure if exists headgate_rows_N
//
create procedure headgate_rows_N(asked longtext character set utf8mb4, generations longtext character set latin1, pass1 int, pass2 int, out chosen longtext character set utf8mb4)
    deterministic contains sql sql security invoker
begin
    declare done, i, beginning int default 0;
    declare generation bigint;
    declare l varchar(510) character set utf8mb4;
    declare k, cell varchar(2048) character set utf8mb4;
    declare numbers varchar(1024) character set utf8mb4;
    declare pass_one, pass_two, seen longtext character set utf8mb4 default '';
    declare charges cursor for select o.l, o.k, o.numbers
        from json_table(asked, '$[*]' columns (l varchar(510) path '$[0]', k varchar(1024) path '$[1]', numbers varchar(1024) path '$[2]')) o;
    declare continue handler for not found set done = 1;
    open charges;
    fetch charges into l, k, numbers;
    while not done do
        set i = i + 1, generation = substring(generations, 17 * i - 16, 17);
        if generation > 0 then
            set k = hex(concat('headgate:shared:', generation));
        end if;
        set cell = concat(';', l, ',', k, '=');
        set beginning = locate(cell, seen);
        if beginning = 0 then
            set seen = concat(seen, cell, i), beginning = i;
        else
            set beginning = substring_index(substring(seen, beginning + char_length(cell), 8), ';', 1);
        end if;
        set pass_one = concat(pass_one, ',["', l, '","', k, '",', pass1, ',', i, ',', beginning, ',', generation, ',', numbers, ']'),
            pass_two = concat(pass_two, ',["', l, '","', k, '",', pass2, ',', i, ',', beginning, ',', generation, ',', numbers, ']');
        fetch charges into l, k, numbers;
    end while;
    close charges;
    set chosen = concat('[', substring(pass_one, 2), pass_two, ']');
end
//

-- headgate_group_N decides a request: verb 1 takes, 4 settles, 10 extends. Of each charge it leaves an array in @hg_all, with
-- what headgate_once_N leaves: see outcomeColumns; and in @hg_moments the times of the decisions, 17 digits each. @hg_stale
-- says that nothing was done, since what is asked does not hold at these times.
drop procedure if exists headgate_group_N
//
create procedure headgate_group_N(verb int, p_size int, asked longtext character set utf8mb4, p_note varbinary(255), p_ttl bigint, p_late int, p_print bigint)
modifies sql data sql security invoker
begin
    declare inside, again, p_verb, p_count int default 1;
    declare tries, i, ended int default 0;
    declare p_kind, p_anchor int;
    declare p_unit, p_capacity, p_step, p_given, p_history, p_cost bigint;
    declare p_limit varbinary(255);
    declare p_key varbinary(512);
    declare chosen longtext character set utf8mb4;
    declare record, state varchar(2048) character set latin1;
    declare generations longtext character set latin1 default repeat('0', 17 * p_size);
    declare p_id varbinary(255) default p_note;
    declare ops cursor for select unhex(o.l), unhex(o.k), {{group columns}}
        from json_table(asked, '$[*]' columns (l varchar(510) path '$[0]', k varchar(1024) path '$[1]', {{group paths}})) o;
    declare continue handler for not found set ended = 1;

    {{open}}
            {{more variables}}
            call headgate_rows_N(asked, generations, case when verb = 4 then 4 when verb = 10 then 11 when p_id <> '' or p_late then 8 else 1 end,
                case when verb = 4 then 10 when verb = 10 then 12 when p_id <> '' or p_late then 9 else 2 end, chosen);
            insert into headgate_cells (limit_name, cell_key)
            select unhex(o.l), unhex(o.k) from {{group rows}} order by 1, 2
            on duplicate key update law = headgate_cells.law;
            set @hg_clock = {{clock}}, @hg_undo = cast(repeat('0', 289 * p_size) as binary);
            if verb = 4 then
                insert into headgate_cells (limit_name, cell_key)
                select unhex(o.l), unhex(o.k) from {{group rows}}
                on duplicate key update law = if({{group settle}} < 0, 0, @hg_law), {{save}}
                    reason = if(@hg_block <> headgate_cells.blocked_until, '', headgate_cells.reason), blocked_until = @hg_block;
            elseif verb = 10 then
                insert into headgate_cells (limit_name, cell_key)
                select unhex(o.l), unhex(o.k) from {{group rows}}
                on duplicate key update law = if({{group extend}} < 0, 0, @hg_law), {{save}}
                    reason = if(@hg_block <> headgate_cells.blocked_until, '', headgate_cells.reason), blocked_until = @hg_block;
            elseif p_id <> '' or p_late then
                insert into headgate_cells (limit_name, cell_key)
                select unhex(o.l), unhex(o.k) from {{group rows}}
                on duplicate key update law = if({{group once}} < 0, 0, @hg_law), {{save}}
                    reason = if(@hg_block <> headgate_cells.blocked_until, '', headgate_cells.reason), blocked_until = @hg_block;
            else
                insert into headgate_cells (limit_name, cell_key)
                select unhex(o.l), unhex(o.k) from {{group rows}}
                on duplicate key update law = if({{group}} < 0, 0, @hg_law), {{save}}
                    reason = if(@hg_block <> headgate_cells.blocked_until, '', headgate_cells.reason), blocked_until = @hg_block;
            end if;

            -- What each charge leaves, with the variables that headgate_once_N and headgate_correct_N have for one.
            set @hg_all = '', @hg_moments = '', @hg_outdated = 0, i = 0, ended = 0;
            open ops;
            fetch ops into p_limit, p_key, p_kind, p_anchor, p_unit, p_capacity, p_step, p_given, p_history, p_cost;
            while not ended do
                set i = i + 1, @hg_entry = 0, @hg_when = 0, @hg_how = 0, @hg_charged = 0;
                if verb = 1 and p_id = '' and not p_late then
                    set record = substring_index(substring_index(@hg_r, ';', 2 * i - 1), ';', -1), state = substring_index(substring_index(@hg_r, ';', 2 * p_size + i), ';', -1);
                    {{group answer}};
                    set @hg_full = if(@hg_how = 2, @hg_now, 0), @hg_how = @hg_how > 0 or @hg_done = 2, @hg_now = if(@hg_full, @hg_clk, @hg_now), @hg_told = @hg_now;
                else
                    set record = substring_index(substring_index(@hg_r, ';', i), ';', -1);
                    {{group outcome}};
                    set @hg_full = if(@hg_how = 6, @hg_full, 0), @hg_had_entry = if(verb = 4, @hg_now, 0),
                        @hg_now = if(verb = 4 or @hg_how = 2, greatest(@hg_clk, @hg_at), @hg_now);
                end if;
                if @hg_full <> 0 and p_id <> '' then
                    delete from headgate_cells where limit_name = p_limit and cell_key = p_key and law = 0;
                    call headgate_full_N(p_limit, 'a request with an id');
                elseif @hg_full <> 0 then
                    delete from headgate_cells where limit_name = p_limit and law = 0 and cell_key = if(substring(generations, 17 * i - 16, 17) > 0,
                        concat('headgate:shared:', cast(substring(generations, 17 * i - 16, 17) as unsigned)), p_key);
                    set again = 1, generations = insert(generations, 17 * i - 16, 17, lpad(greatest(0, @hg_full), 17, '0'));
                elseif verb = 4 then
                    if @hg_done = 1 then
                        update headgate_admissions set settled = p_cost where limit_name = p_limit and cell_key = p_key and id = p_id;
                    end if;
                    if p_kind = 3 and @hg_g <> 0 then
                        update headgate_entries set expires_at = if(cost > @hg_g, expires_at, 0), cost = cost - @hg_g
                        where number = @hg_had_entry and limit_name = p_limit and cell_key = p_key;
                    end if;
                    delete from headgate_cells where limit_name = p_limit and cell_key = p_key and law = 0; -- a correction makes none
                elseif verb = 10 then
                    call headgate_extended_N(p_limit, p_key, p_id, p_kind, p_anchor, p_unit, p_capacity, p_step, p_given, p_history, p_ttl, record);
                    delete from headgate_cells where limit_name = p_limit and cell_key = p_key and law = 0;
                    -- Whether this charge has passed, or would have, and what is in use without it then.
                    set @hg_g = @hg_retry = 0, @hg_x = if(@hg_g and not @hg_admitted and @hg_how = 0, @hg_x - @hg_more, @hg_x);
                else
                    if substring(generations, 17 * i - 16, 17) > 0 then
                        set p_key = concat('headgate:shared:', cast(substring(generations, 17 * i - 16, 17) as unsigned));
                    end if;
                    if @hg_clear and @hg_done <> 2 then
                        update headgate_entries set expires_at = 0 where limit_name = p_limit and cell_key = p_key and expires_at > 0;
                    end if;
                    {{log}}
                    if p_id <> '' and @hg_done = 1 then
                        replace into headgate_admissions (limit_name, cell_key, id, print, rule, cost, outcome, settled, keep_until)
                        values (p_limit, p_key, p_id, p_print, concat_ws(' ', p_kind, p_anchor, p_unit, p_capacity, p_step, p_given), p_cost,
                            concat_ws(' ', replace(substring_index(record, ',', 11), ',', ' '), @hg_entry, 0, @hg_when, @hg_step), -1,
                            greatest(@hg_told, @hg_when) + p_ttl);
                    end if;
                end if;
                set @hg_outdated = @hg_outdated or @hg_how = 1, @hg_moments = concat(@hg_moments, lpad(greatest(@hg_clk, @hg_at), 17, '0')),
                    @hg_all = concat(@hg_all, ',[', concat_ws(',', @hg_g, @hg_x, @hg_clk, @hg_retry, @hg_at, @hg_empty, @hg_block, @hg_now, @hg_how, @hg_when, @hg_charged), ']');
                set ended = 0;
                fetch ops into p_limit, p_key, p_kind, p_anchor, p_unit, p_capacity, p_step, p_given, p_history, p_cost;
            end while;
            close ops;
            {{commit}}
    set @hg_stale = @hg_outdated, @hg_all = concat('[', substring(@hg_all, 2), ']');
end
//

-- headgate_all_N checks the charges, finds their limits and asks. It leaves what headgate_group_N does, and in
-- @hg_asked the charges with their limits.
drop procedure if exists headgate_all_N
//
create procedure headgate_all_N(verb int, charges longtext character set utf8mb4 collate utf8mb4_bin, id varchar(1024) character set utf8mb4 collate utf8mb4_bin,
    life bigint, wait bigint)
modifies sql data sql security invoker
begin
    declare size, i, tries, ended, late, may, law, anchor, twice int default 0;
    declare since, lapse, unit, capacity, step, drain, block, history, credits, ceiling, b0, b1, b2, b3, print, part, moment, p_kind, p_step, p_capacity, p_drain bigint default 0;
    declare rule varchar(2048) character set utf8mb4 collate utf8mb4_bin;
    declare `key` varchar(1024) character set utf8mb4 collate utf8mb4_bin;
    declare amount varchar(1024) character set utf8mb4 collate utf8mb4_bin;
    declare cost decimal(65, 30);
    declare name varchar(255) character set utf8mb4;
    declare calendar varchar(8) character set utf8mb4;
    declare zone varchar(64) character set utf8mb4;
    declare asked, seen, cell longtext character set utf8mb4;
    declare list cursor for select left(o.rule, 2048), left(o.k, 1024), left(o.cost, 1024)
        from json_table(charges, '$[*]' columns (rule varchar(2048) path '$.limit', k varchar(1024) path '$.key', cost varchar(1024) path '$.cost')) o;
    declare continue handler for not found set ended = 1;
    call headgate_id_N(id);
    if charges is null then
        call headgate_fail_N('charges: is null');
    elseif not json_valid(charges) then
        call headgate_fail_N('charges: is not JSON');
    elseif json_type(charges) <> 'ARRAY' then
        call headgate_fail_N('charges: is not an array of objects with limit, key and cost');
    end if;
    set size = json_length(charges);
    if size = 0 then
        call headgate_fail_N('charges: is empty; a request has one charge or more');
    elseif size > 1000 then
        call headgate_fail_N(concat('charges: has ', size, ' elements, at most 1000 are allowed'));
    end if;
    set @hg_clk = {{clock}}, @hg_stale = 1, @hg_how = 0, @hg_moments = '';
    while @hg_stale and tries < 4 do
        set i = 0, late = wait > 0, asked = '', seen = '', print = 0, ended = 0;
        open list;
        fetch list into rule, `key`, amount;
        while not ended do
            set moment = if(tries = 0, @hg_clk, substring(@hg_moments, 17 * i + 1, 17));
            set @hg_place = concat('charges[', i, ']: ');
            if json_length(charges, concat('$[', i, ']')) <> 3 then
                call headgate_fail_N('has other members than limit, key and cost');
            elseif amount is not null and amount not regexp '^[-+]?[0-9]{1,60}([.][0-9]+)?([eE][-+]?[0-9]{1,2})?$' then
                call headgate_fail_N(concat('cost: "', left(amount, 40), '" is not a decimal number such as 3 or 0.5'));
            elseif abs(amount + 0e0) > 9007199254740992 then
                call headgate_fail_N('cost: is too large');
            elseif abs(amount + 0e0) < 1e-30 and amount + 0e0 <> 0 then
                call headgate_fail_N('cost: has more than 30 digits after the point');
            end if;
            set cost = cast(amount as decimal(65, 30));
            call headgate_charge_N(verb, 0, rule, `key`, cost, 'cost', wait, moment, name, law, anchor, unit, capacity, step, drain, block, history,
                calendar, zone, since, lapse, credits, may, ceiling);
            set cell = concat(';', hex(name), ',', hex(`key`), ';');
            if id is not null and locate(cell, seen) > 0 then
                call headgate_fail_N('key: is charged twice; a request with an id charges each key of a limit once');
            end if;
            set @hg_place = '';
            set seen = concat(seen, cell), late = late and may, b0 = 0, b1 = 0, b2 = 0, b3 = 0;
            if calendar is not null then
                call headgate_bounds_N(calendar, zone, moment, b0, b1, b2, b3);
            end if;
            if id is not null and verb = 1 then
                call headgate_print_N(name, `key`, credits, unit, part);
                set print = (print + part) & 9007199254740991;
            end if;
            set p_kind = law, p_step = step, p_capacity = capacity, p_drain = greatest(drain, 1);
            set asked = concat(asked, ',["', hex(name), '","', hex(`key`), '","',
                concat_ws(',', law, anchor, unit, capacity, step, p_drain, drain, block, {{heal}}, history, credits, ceiling, b0, b1, b2, b3, since, lapse), '",',
                concat_ws(',', law, anchor, unit, capacity, step, drain, history, credits), ']');
            set i = i + 1, ended = 0;
            fetch list into rule, `key`, amount;
        end while;
        close list;
        set asked = concat('[', substring(asked, 2), ']');
        call headgate_group_N(verb, size, asked, coalesce(id, ''), life, late, print);
        set tries = tries + 1;
    end while;
    call headgate_fault_N(id);
    set @hg_asked = asked;
end
//

-- headgate_take_all takes several charges, all or none. charges is a JSON array of objects with limit, key and cost, such as
-- [{"limit": "user", "key": "alice", "cost": 2.5}]. One row for each: ordinality, from 1; allowed, of the whole request; limit_name,
-- key; capacity, whole units; remaining, retry_after, reset_after and at as of headgate_take; refused, 1 if this charge would not have passed.
drop procedure if exists headgate_take_all
//
create procedure headgate_take_all(charges longtext character set utf8mb4 collate utf8mb4_bin)
modifies sql data sql security definer comment 'Takes several charges, all or none. One row for each; refused is 1 of those that would not have passed.'
begin
    call headgate_enter_N();
    call headgate_all_N(1, charges, null, 0, 0);
    {{each}};
end
//

-- headgate_take_all_once is headgate_take_all for a request with an id, as headgate_take_once is headgate_take.
drop procedure if exists headgate_take_all_once
//
create procedure headgate_take_all_once(id varchar(1024) character set utf8mb4 collate utf8mb4_bin, charges longtext character set utf8mb4 collate utf8mb4_bin,
    life_seconds decimal(65, 30))
modifies sql data sql security definer comment 'headgate_take_all, charged once however often it is called with the id.'
begin
    declare life bigint;
    declare starts bigint;
    call headgate_enter_N();
    call headgate_life_N(life_seconds, life);
    call headgate_all_N(1, charges, coalesce(id, ''), life, 0);
    set starts = (select max(if(u.`when` > u.clk, u.`when`, 0)) from {{outcomes}});
    if starts > 0 then
        call headgate_fail_N(concat('id: "', left(id, 40), '" was reserved, and starts at ', cast('1970-01-01' + interval starts microsecond as datetime(6)), ' UTC'));
    end if;
    {{each once}};
end
//

-- headgate_reserve_all is headgate_reserve for several charges, all or none, with a start in common: later than now only if all
-- limits are token-bucket, leaky-bucket or gcra. The rows have start_at, UTC, delay in seconds and replayed too, the same in all of them.
drop procedure if exists headgate_reserve_all
//
create procedure headgate_reserve_all(charges longtext character set utf8mb4 collate utf8mb4_bin, wait_seconds decimal(65, 30),
    id varchar(1024) character set utf8mb4 collate utf8mb4_bin, life_seconds decimal(65, 30))
modifies sql data sql security definer comment 'Takes several charges now, all or none, for a start in common at most wait later.'
begin
    declare life bigint default 0;
    call headgate_enter_N();
    if wait_seconds is null or wait_seconds < 0 or wait_seconds > 3660 * 86400 then
        call headgate_fail_N('wait_seconds: must be from 0 to 3660 days');
    elseif id is not null then
        call headgate_life_N(life_seconds, life);
    end if;
    call headgate_all_N(1, charges, id, life, floor(wait_seconds * 1000000));
    {{each reserved}};
end
//

-- headgate_settle_all is headgate_settle for several charges of a request with an id, all or none; cost is what each has cost. They
-- need not be all of the request's. One row for each: ordinality, limit_name, key, corrected.
drop procedure if exists headgate_settle_all
//
create procedure headgate_settle_all(id varchar(1024) character set utf8mb4 collate utf8mb4_bin, charges longtext character set utf8mb4 collate utf8mb4_bin)
modifies sql data sql security definer comment 'Sets the costs of charges under an id. corrected is what was given back of each; below 0: charged in addition.'
begin
    call headgate_enter_N();
    call headgate_all_N(4, charges, coalesce(id, ''), 0, 0);
    select o.n as ordinality, convert(unhex(o.l) using utf8mb4) as limit_name, convert(unhex(o.k) using utf8mb4) as `key`,
        cast(cast(u.g as decimal(26, 9)) / o.unit as decimal(26, 9)) as corrected
    from {{asked}} join {{outcomes}} on u.n = o.n order by o.n;
end
//
