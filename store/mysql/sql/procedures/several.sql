-- Requests with an id, that may start late, or of several charges, all or none: headgate_group_N decides them, for
-- headgate_verb_N (one charge) and headgate_all_N. The procedures for people are headgate_take_all, headgate_take_all_once,
-- headgate_reserve_all and headgate_settle_all. What these are asked is a JSON array of objects with limit, key and cost.

-- headgate_group_N decides a request: verb 1 takes, 4 settles (a cost of -2 cancels), 10 extends. It is applyAsked,
-- applyOnce, applySettle and applyExtend of package law. asked is a JSON array with an array for each charge: limit and key
-- in hexadecimal digits, and numbers: see opColumns. Of each charge it leaves an array in @hg_all, see outcomeColumns, and of
-- the last one the same numbers in variables; and in @hg_moments the times of the decisions, 17 digits each. @hg_stale says
-- that nothing was done, since what is asked does not hold at these times.
--
-- It goes through the charges several times, in the order of their cells: pass 0 sees what is known of the id, 1 decides,
-- 2 sees whether all can start together, and 3 decides again and writes. All cells are locked, so it decides the same
-- each time. A single charge needs the last pass only.
drop procedure if exists headgate_group_N
//
create procedure headgate_group_N(p_verb int, p_size int, asked longtext character set utf8mb4, p_id varbinary(255), p_ttl bigint, p_late int, p_print bigint)
modifies sql data sql security invoker
begin
    declare inside, again int default 1;
    declare tries, ended, n, is_first, p_kind, p_anchor, cleared, moved, clears, stale, outdated, admitted, counts int default 0;
    declare pass, fault, fault_of, fresh, starts, known, same, how, decided, fits, was_kind int default 0;
    declare p_unit, p_capacity, p_step, p_drain, p_block, p_history, p_cost, p_ceiling, p_b0, p_b1, p_b2, p_b3, p_since, p_lapse bigint;
    declare p_limit varbinary(255);
    declare p_key varbinary(512);
    declare last_limit varbinary(255);
    declare last_key varbinary(512);
    declare clock, moment, pending, carry, granted, used, retry_at, entry, start_at, own, steps, charge, answered bigint default 0;
    declare base_level, base_prev, base_at, base_step, base_empty_at, left_level, left_prev, left_at, left_empty_at bigint;
    declare row_at, row_empty_at, row_blocked_until, unused, had_prev, given, credits bigint default 0;
    declare was_level, was_prev, was_at, was_unit, was_step, was_empty_at, was_blocked_until bigint default 0;
    declare a_print, a_cost, a_settled, a_until bigint; -- what is remembered of the id
    declare a_rule varbinary(255);
    declare a_outcome varbinary(512);
    declare {{receipt}} bigint;
    {{cell}}

    {{open}}
            begin -- it ends with its cursor when the transaction is repeated
                declare ops cursor for select o.n, unhex(o.l), unhex(o.k), {{op columns}} from {{ops}} order by o.l, o.k, o.n;
                declare continue handler for not found set ended = 1;
                insert into headgate_cells (limit_name, cell_key) select unhex(o.l), unhex(o.k) from {{ops}} order by o.l, o.k
                on duplicate key update law = headgate_cells.law;
                set clock = {{clock}}, pass = if(p_size = 1, 3, if(p_id <> '', 0, 1)), fault = 0, fault_of = 0, fresh = 0, starts = p_late, start_at = 0,
                    admitted = 1, outdated = 0, @hg_all = '', @hg_moments = repeat('0', 17 * p_size);
                while pass < 4 do
                    open ops;
                    set ended = 0, is_first = 1;
                    fetch ops into n, p_limit, p_key, {{op variables}};
                    while not ended do
                        if is_first then
                            {{read}} for update;
                            set row_at = s_at, row_empty_at = s_empty_at, row_blocked_until = s_blocked_until, counts = s_kind <> 0,
                                pending = 0, cleared = 0;
                        end if;

                        -- known
                        set known = 0, how = 0, charge = p_cost, moment = greatest(clock, s_at);
                        if p_id <> '' then
                            set ended = 0;
                            select a.print, a.cost, a.settled, a.keep_until, a.rule, a.outcome into a_print, a_cost, a_settled, a_until, a_rule, a_outcome
                            from headgate_admissions a where a.limit_name = p_limit and a.cell_key = p_key and a.id = p_id for update;
                            set known = not ended and a_until > clock and not (p_verb = 1 and a_settled = -2);
                            if known then
                                select r.* into {{receipt}} from {{numbers of a_outcome}} r;
                                set same = a_rule = concat_ws(' ', p_kind, p_anchor, p_unit, p_capacity, p_step, p_drain);
                            end if;
                        end if;
                        if p_id <> '' and (pass = 0 or p_size = 1) then
                            case
                                when p_verb = 1 then
                                    set how = if(known and a_print <> p_print, 3, 0), fresh = fresh or not known, starts = starts or known and r_start_at > 0;
                                when not known then
                                    set how = 4;
                                when p_verb = 4 then
                                    set how = if(a_settled <> -1 and a_settled <> p_cost, 5, 0),
                                        outdated = outdated or p_kind = 1 and p_anchor = 2 and (moment < p_b0 or moment >= p_b3);
                                else
                                    set how = if(a_settled <> -1, 5, if(r_unit <> p_unit, 3, 0));
                            end case;
                            if how > 0 and (fault = 0 or n < fault_of) then -- that of the first charge
                                set fault = how, fault_of = n;
                            end if;
                        end if;
                        if pass > 0 then
                            set how = 0, granted = 0, used = 0, retry_at = 0, entry = 0, answered = 0, decided = 0, stale = 0;
                            case
                                when fault > 0 then
                                    set how = fault;
                                when p_verb = 4 then
                                    set how = if(outdated, 1, if(a_settled <> -1, 2, 0)); -- settled as it is now
                                when p_verb = 10 then
                                    set charge = p_cost - a_cost, decided = charge > 0, how = if(decided, 0, 2);
                                else
                                    set decided = not known or fresh and starts, how = if(decided, 0, 2);
                            end case;
                            if decided then
                                set was_kind = s_kind, was_level = s_level, was_prev = s_prev, was_at = s_at, was_unit = s_unit, was_step = s_step,
                                    was_empty_at = s_empty_at, was_blocked_until = s_blocked_until;
                                call headgate_decide_N(p_limit, p_key, 1, p_kind, p_anchor, p_unit, p_capacity, p_step, p_drain, p_block, charge, 1, 0,
                                    if(p_late or p_ceiling < p_capacity, p_ceiling, 0), p_late, p_b0, p_b1, p_b2, p_b3, p_since, p_lapse, clock, pending, cleared, {{state}}, base_level, base_prev,
                                    base_at, base_step, base_empty_at, moved, moment, clears, carry, granted, used, retry_at, stale);
                                set fits = granted, left_level = s_level, left_prev = s_prev, left_at = s_at, left_empty_at = s_empty_at,
                                    pending = pending + granted * charge;
                                if pass = 1 or p_size = 1 then
                                    set admitted = admitted and granted, outdated = outdated or stale;
                                end if;
                                if p_late and not stale and (pass = 1 or p_size = 1 and admitted or start_at > 0) then -- late
                                    set own = moment;
                                    if used > p_capacity then
                                        set steps = (used - p_capacity) div p_drain + ((used - p_capacity) mod p_drain > 0);
                                        set own = greatest(own, if(steps > (9007199254740991 - s_at) div p_step, 9007199254740991, s_at + steps * p_step));
                                    end if;
                                    if pass = 1 or p_size = 1 then
                                        set start_at = greatest(start_at, own);
                                    end if;
                                    if pass > 1 and start_at > moment then -- raise
                                        set steps = greatest(0, start_at - s_at);
                                        set steps = steps div p_step + (steps mod p_step > 0);
                                        if steps > (9007199254740991 - pending) div p_drain then
                                            set granted = 0, retry_at = start_at, admitted = 0;
                                        else
                                            set left_prev = if(start_at > own, least(9007199254740991, base_prev + used), base_prev),
                                                used = greatest(used, steps * p_drain + pending), left_level = used, left_at = s_at;
                                            call headgate_after_N(0, p_step, p_drain, 0, 0, 0, 0, s_at, used, left_empty_at);
                                            set left_empty_at = if(left_prev > 0, greatest(left_empty_at, base_empty_at), left_empty_at);
                                        end if;
                                    end if;
                                end if;
                            end if;
                            if pass = 3 then
                                if decided and outdated then
                                    set how = 1, granted = 0, used = 0, retry_at = 0;
                                elseif decided then -- settle
                                    if admitted then
                                        update headgate_cells c set c.law = s_kind, c.level = left_level, c.prev = left_prev, c.at = left_at, c.unit = s_unit,
                                            c.step = s_step, c.empty_at = left_empty_at, c.reason = if(c.blocked_until <> s_blocked_until, '', c.reason),
                                            c.blocked_until = s_blocked_until
                                        where c.limit_name = p_limit and c.cell_key = p_key;
                                        set row_at = left_at, row_empty_at = left_empty_at, row_blocked_until = s_blocked_until, counts = 1;
                                    elseif moved then
                                        update headgate_cells c set c.law = s_kind, c.level = if(is_first, base_level, c.level),
                                            c.prev = if(is_first, base_prev, c.prev), c.at = if(is_first, base_at, c.at), c.unit = s_unit, c.step = base_step,
                                            c.empty_at = if(is_first, base_empty_at, c.empty_at),
                                            c.reason = if(c.blocked_until <> s_blocked_until, '', c.reason), c.blocked_until = s_blocked_until
                                        where c.limit_name = p_limit and c.cell_key = p_key;
                                        set row_at = if(is_first, base_at, row_at), row_empty_at = if(is_first, base_empty_at, row_empty_at),
                                            row_blocked_until = s_blocked_until, counts = 1;
                                    end if;
                                    if p_kind = 3 then
                                        call headgate_log_N(p_limit, p_key, p_id, p_step, p_history, moment, admitted or moved, clears, carry, base_empty_at,
                                            admitted, charge, entry);
                                    end if;
                                end if;

                                if p_verb = 1 and decided and how = 0 then
                                    set answered = if(admitted, start_at, 0);
                                    if admitted and p_id <> '' then
                                        replace into headgate_admissions (limit_name, cell_key, id, print, rule, cost, outcome, settled, keep_until)
                                        values (p_limit, p_key, p_id, p_print, concat_ws(' ', p_kind, p_anchor, p_unit, p_capacity, p_step, p_drain), p_cost,
                                            concat_ws(' ', granted, s_kind, left_level, left_prev, left_at, s_unit, left_empty_at, s_blocked_until, used,
                                                clock, retry_at, entry, 0, start_at, s_step), -1, greatest(clock, start_at) + p_ttl);
                                    end if;
                                elseif p_verb = 10 and how in (0, 2) and admitted and not outdated then -- extend
                                    if decided and p_kind = 3 then
                                        set credits = coalesce((select e.cost from headgate_entries e where e.number = r_entry and e.limit_name = p_limit
                                            and e.cell_key = p_key and e.granted = 1 and e.expires_at > left_at for update), 0);
                                        if credits > 0 then
                                            update headgate_entries e set e.expires_at = 0, e.cost = 0 where e.number = r_entry;
                                            update headgate_entries e set e.cost = e.cost + credits where e.number = entry;
                                        end if;
                                        set r_entry = entry;
                                    elseif decided then
                                        if p_kind = 1 and (p_anchor = 2 or p_drain = 9007199254740991) then
                                            set r_level = least(9007199254740991, r_level + r_more);
                                        end if;
                                        set r_more = charge, r_more_level = left_level, r_more_at = left_at, r_more_prev = left_prev;
                                    end if;
                                    set a_cost = a_cost + if(decided, charge, 0);
                                    update headgate_admissions a set a.cost = a_cost, a.keep_until = greatest(a.keep_until, clock + p_ttl),
                                        a.rule = if(decided and not same, '{{no terms}}', a.rule),
                                        a.outcome = concat_ws(' ', {{answer of receipt}}, if(r_more <> 0, concat_ws(' ', r_more, r_more_level, r_more_at, r_more_prev), null))
                                    where a.limit_name = p_limit and a.cell_key = p_key and a.id = p_id;
                                elseif p_verb = 4 and how = 0 then
                                    update headgate_admissions a set a.settled = p_cost where a.limit_name = p_limit and a.cell_key = p_key and a.id = p_id;
                                    if same then -- by another rule nothing is corrected
                                        set unused = a_cost - greatest(p_cost, 0), had_prev = s_prev;
                                        if r_more > 0 then -- what was charged last is given back first
                                            call headgate_correct_N(p_limit, p_key, p_kind, p_anchor, p_unit, p_capacity, p_step, p_drain, p_b0, p_b1, p_b2, p_b3,
                                                least(unused, r_more), r_more_level, r_more_at, r_more_prev, r_entry, clock,
                                                s_kind, s_level, s_prev, s_at, s_unit, s_step, s_empty_at, granted, used);
                                        end if;
                                        if unused > r_more or r_more = 0 then
                                            set given = granted;
                                            call headgate_correct_N(p_limit, p_key, p_kind, p_anchor, p_unit, p_capacity, p_step, p_drain, p_b0, p_b1, p_b2, p_b3,
                                                unused - r_more, r_level, r_at, r_prev + s_prev - had_prev, r_entry, clock,
                                                s_kind, s_level, s_prev, s_at, s_unit, s_step, s_empty_at, granted, used);
                                            set granted = granted + given;
                                        end if;
                                        if granted <> 0 then
                                            {{save}}
                                            set row_at = s_at, row_empty_at = s_empty_at, counts = 1;
                                        end if;
                                    end if;
                                end if;

                                -- the answer
                                set @hg_g = granted, @hg_x = used, @hg_clk = clock, @hg_retry = retry_at, @hg_at = row_at, @hg_empty = row_empty_at,
                                    @hg_block = row_blocked_until, @hg_now = moment, @hg_how = how, @hg_when = answered, @hg_entry = entry, @hg_charged = 0;
                                if p_verb in (1, 10) and how = 2 then -- what was answered first
                                    set @hg_g = r_granted, @hg_x = r_used, @hg_retry = r_retry_at, @hg_at = r_at, @hg_empty = r_empty_at,
                                        @hg_block = r_blocked_until, @hg_when = r_start_at, @hg_now = greatest(clock, r_at);
                                end if;
                                if p_verb = 10 then -- whether this charge has passed, or would have
                                    set @hg_g = @hg_retry = 0 and how in (0, 2), @hg_charged = if(how in (0, 2), a_cost, 0);
                                    if @hg_g and not admitted and decided and p_size > 1 then
                                        set @hg_x = @hg_x - charge;
                                    end if;
                                end if;
                                set @hg_moments = insert(@hg_moments, 17 * n - 16, 17, lpad(@hg_now, 17, '0')),
                                    @hg_all = concat(@hg_all, ',[', concat_ws(',', n, @hg_g, @hg_x, @hg_clk, @hg_retry, @hg_at, @hg_empty, @hg_block,
                                        @hg_now, @hg_how, @hg_when, @hg_charged), ']');
                            end if;
                        end if;
                        if decided and not fits then -- what follows on the cell is decided as if it had not been asked
                            set s_kind = was_kind, s_level = was_level, s_prev = was_prev, s_at = was_at, s_unit = was_unit, s_step = was_step,
                                s_empty_at = was_empty_at, s_blocked_until = was_blocked_until;
                        end if;
                        set ended = 0, decided = 0, last_limit = p_limit, last_key = p_key;
                        fetch ops into n, p_limit, p_key, {{op variables}};
                        set is_first = ended or p_limit <> last_limit or p_key <> last_key;
                        if pass = 3 and is_first and not counts then -- it was made to be locked
                            delete from headgate_cells where limit_name = last_limit and cell_key = last_key and law = 0;
                        end if;
                    end while;
                    close ops;
                    case pass
                        when 0 then
                            set pass = if(fault > 0 or outdated or p_verb = 4, 3, 1);
                        when 1 then
                            set start_at = if(admitted and not outdated, start_at, 0), pass = if(start_at > 0, 2, 3);
                        when 2 then
                            set pass = 3;
                        else
                            set pass = 4;
                    end case;
                end while;
            end;
            {{commit}}
    set @hg_stale = outdated and fault = 0, @hg_all = concat('[', substring(@hg_all, 2), ']');
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
    declare since, lapse, unit, capacity, step, drain, block, history, credits, ceiling, b0, b1, b2, b3, print, part, moment bigint default 0;
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
            set asked = concat(asked, ',["', hex(name), '","', hex(`key`), '",',
                concat_ws(',', law, anchor, unit, capacity, step, drain, block, history, credits, ceiling, b0, b1, b2, b3, since, lapse), ']');
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
