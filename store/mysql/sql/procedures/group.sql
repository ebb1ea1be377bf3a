-- Requests with an id, that may start late, or of several charges, all or none.

-- headgate_group_N decides a request: verb 1 takes, 4 settles (a cost of -2 cancels), 10 extends. It is applyAsked,
-- applyOnce, applySettle and applyExtend of package law. asked is a JSON array with an array for each charge: limit and key
-- in hexadecimal digits, and numbers: see opColumns. Of each charge it leaves an array in @hg_all, see outcomeColumns, and of
-- the last one the same numbers in variables; and in @hg_moments the times of the decisions, 17 digits each. @hg_stale says
-- that nothing was done, since what is asked does not hold at these times.
--
-- It goes through the charges several times, in the order of their cells: pass 0 sees what is known of the id, 1 decides,
-- 2 sees whether all can start together, and 3 decides again and writes. All cells are locked, so it decides the same
-- each time. A single charge needs the last pass only. A pass goes through one alternative, of which head is the first charge: pass 0
-- through one after another until one is known, then 1 until one passes. If that is not the last, 3 writes nothing, and answers as a check.
create procedure headgate_group_N(p_verb int, p_size int, asked longtext character set utf8mb4, p_id varbinary(255), p_ttl bigint, p_late int)
modifies sql data sql security invoker
begin
    declare inside, again int default 1;
    declare tries, ended, i, n, is_first, p_kind, p_anchor, cleared, moved, clears, stale, outdated, admitted, counts int default 0;
    declare pass, fault, fault_of, fresh, starts, known, same, how, decided, fits, was_kind, head, turn, found, reused, passed_over int default 0;
    declare p_unit, p_capacity, p_step, p_drain, p_block, p_history, p_cost, p_ceiling, p_b0, p_b1, p_b2, p_b3, p_since, p_lapse, p_alternative, p_print bigint;
    declare p_limit, last_limit varbinary(255);
    declare p_key, last_key varbinary(512);
    declare clock, moment, pending, carry, granted, used, retry_at, entry, start_at, own, steps, charge, answered bigint default 0;
    declare base_level, base_prev, base_at, base_step, base_empty_at, left_level, left_prev, left_at, left_empty_at bigint;
    declare row_at, row_empty_at, row_blocked_until, unused, had_prev, given, credits bigint default 0;
    declare was_level, was_prev, was_at, was_unit, was_step, was_empty_at, was_blocked_until bigint default 0;
    declare a_print, a_cost, a_settled, a_until bigint; -- what is remembered of the id
    declare a_rule varbinary(255);
    declare a_outcome varbinary(512);
    declare {{receipt}} bigint;
    declare sorted varchar(4000) character set utf8mb4 default '';
    {{cell}}

    {{sort ops}}

    {{open}}
            begin
                declare continue handler for not found set ended = 1;
                insert into headgate_cells (limit_name, cell_key) select unhex(o.l), unhex(o.k) from {{ops}} order by o.l, o.k
                on duplicate key update law = headgate_cells.law;
                set clock = {{clock}}, pass = if(p_size = 1, 3, if(p_id <> '', 0, 1)), fault = 0, fault_of = 0, fresh = 0, decided = 0,
                    starts = p_late, start_at = 0, admitted = 1, outdated = 0, head = 0, found = 0, reused = 0, passed_over = 0,
                    @hg_all = '', @hg_moments = repeat(lpad(clock, 17, '0'), p_size);
                while pass < 4 do
                    set ended = 0, is_first = 1, i = head;
                    {{next op}}
                    set turn = p_alternative;
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
                                    set how = if(known and a_print <> p_print, 3, 0), found = found or known and how = 0, fresh = fresh or not known, starts = starts or known and r_start_at > 0;
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
                                call headgate_decide_N(p_limit, p_key, if(p_verb = 10, 10, 1), p_kind, p_anchor, p_unit, p_capacity, p_step, p_drain, if(passed_over, 0, p_block), charge, 1, 0,
                                    if(p_late or p_ceiling < p_capacity, abs(p_ceiling), 0), p_late, p_b0, p_b1, p_b2, p_b3, p_since, p_lapse, clock, pending, cleared,
                                    {{state}}, base_level, base_prev, base_at, base_step, base_empty_at, moved, moment, clears, carry, granted, used, retry_at, stale);
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
                                elseif decided and not passed_over then -- settle
                                    if p_kind = 3 then
                                        call headgate_log_N(p_limit, p_key, p_id, p_step, p_history, moment, admitted or moved, clears, carry, base_empty_at,
                                            admitted, charge, entry);
                                    end if;
                                    if admitted then
                                        set base_level = left_level, base_prev = left_prev, base_at = left_at, base_step = s_step, base_empty_at = left_empty_at;
                                    end if;
                                    if admitted or moved then
                                        update headgate_cells c set c.law = s_kind, c.level = if(admitted or is_first, base_level, c.level),
                                            c.prev = if(admitted or is_first, base_prev, c.prev), c.at = if(admitted or is_first, base_at, c.at),
                                            c.unit = s_unit, c.step = base_step, c.empty_at = if(admitted or is_first, base_empty_at, c.empty_at),
                                            c.reason = if(c.blocked_until <> s_blocked_until, '', c.reason), c.blocked_until = s_blocked_until
                                        where c.limit_name = p_limit and c.cell_key = p_key;
                                        set row_at = if(admitted or is_first, base_at, row_at),
                                            row_empty_at = if(admitted or is_first, base_empty_at, row_empty_at),
                                            row_blocked_until = s_blocked_until, counts = 1;
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

                                if granted and not admitted and decided then
                                    set retry_at = 0; -- see Outcome
                                end if;

                                -- the answer
                                set @hg_g = granted, @hg_x = used, @hg_clk = clock, @hg_retry = retry_at, @hg_at = row_at, @hg_empty = row_empty_at,
                                    @hg_block = row_blocked_until, @hg_now = moment, @hg_how = how, @hg_when = answered, @hg_entry = entry, @hg_charged = 0;
                                if p_verb in (1, 10) and how = 2 then -- what was answered first
                                    set @hg_g = r_granted, @hg_x = r_used, @hg_retry = 0, @hg_at = r_at, @hg_empty = r_empty_at,
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
                        set ended = 0, decided = 0, last_limit = p_limit, last_key = p_key, i = i + 1;
                        {{next op}}
                        set ended = ended or p_alternative <> turn, is_first = ended or p_limit <> last_limit or p_key <> last_key;
                        if pass = 3 and is_first and not counts and not passed_over then -- it was made to be locked
                            delete from headgate_cells where limit_name = last_limit and cell_key = last_key and law = 0;
                        end if;
                    end while;
                    case
                        when pass = 0 and i < p_size and not found then
                            set reused = reused or fault > 0, fault = 0, fresh = 0, starts = 0, head = i;
                        when pass = 0 then
                            set fault = if(reused and not found, 3, fault), head = if(found, head, 0), pass = if(fault > 0 or outdated or p_verb = 4, 3, 1);
                        when pass = 1 then
                            set passed_over = i < p_size and not found and not admitted and not outdated,
                                start_at = if(admitted and not outdated, start_at, 0), pass = if(start_at > 0, 2, 3);
                        when passed_over then
                            set passed_over = 0, admitted = 1, head = i, pass = 1;
                        else
                            set pass = pass + 1;
                    end case;
                end while;
                if head > 0 or i < p_size then -- cells of other alternatives that were made to be locked
                    set i = 0;
                    while i < p_size do
                        {{next op}}
                        delete from headgate_cells where limit_name = p_limit and cell_key = p_key and law = 0;
                        set i = i + 1;
                    end while;
                end if;
            end;
            {{commit}}
    set @hg_stale = outdated and fault = 0, @hg_all = concat('[', substring(@hg_all, 2), ']');
end
//

