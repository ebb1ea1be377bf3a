-- The return rule: law/giveback.go in SQL, line by line. See law.sql.

-- headgate_correct_N is Record.correct: it gives back cost credits of a charge to a cell, or charges more if cost is below 0. op_level,
-- op_at, op_returned and p_entry say which charge it was: see Op. It is not called for a calendar whose boundaries are others.
create procedure headgate_correct_N(p_limit varbinary(255), p_key varbinary(512), kind int, anchor int, unit bigint,
    capacity bigint, step bigint, drain bigint, b0 bigint, b1 bigint, b2 bigint, b3 bigint, cost bigint,
    op_level bigint, op_at bigint, op_returned bigint, p_entry bigint, clock bigint,
    inout s_kind int, inout s_level bigint, inout s_prev bigint, inout s_at bigint, inout s_unit bigint, inout s_step bigint,
    inout s_empty_at bigint, out granted bigint, out used bigint)
    modifies sql data sql security invoker
correcting: begin
    declare moment bigint default greatest(clock, s_at);
    declare was_kind, whole int default s_kind;
    declare was_level bigint default s_level;
    declare was_prev bigint default s_prev;
    declare was_unit bigint default s_unit;
    declare was_step bigint default s_step;
    declare x, t, unused, returned, total, credits, empty_at bigint default 0;
    declare prev, level, beginning, carried, q, f bigint default 0; -- of a sliding window
    set granted = 0, used = 0;
    if s_kind = 0 and cost < 0 then -- empty for so long that it was swept
        set s_kind = kind, s_unit = unit, s_step = step;
    end if;
    if s_kind <> kind or s_unit <> unit or kind < 3 and s_step <> step then
        leave correcting; -- reset, or the limit was changed
    end if;
    if moment >= s_empty_at then
        set s_level = 0, s_prev = 0;
    end if;
    case kind
        when 1 then
            set whole = anchor = 2 or drain = 9007199254740991;
            call headgate_bucket_N(anchor, step, drain, b0, b1, b2, s_level, s_at, moment, x, t);
            if whole and s_level > 0 then
                set x = s_level;
                if anchor = 0 then
                    set t = moment - (moment - s_at) mod step;
                end if;
            end if;
            if cost > 0 then
                if op_at <= moment then -- undrained
                    call headgate_bucket_N(anchor, step, drain, b0, b1, b2, op_level, op_at, moment, unused, total);
                    set returned = greatest(0, s_prev - op_returned);
                    if x > capacity and not whole then
                        set granted = greatest(0, least(cost, capacity - (drain - 1)) - greatest(0, x - unused + returned));
                    else
                        set granted = least(cost, greatest(0, unused - returned));
                    end if;
                end if;
                set granted = least(granted, x);
                if s_prev > 9007199254740991 - granted then
                    set granted = 0;
                end if;
                if not whole then
                    set s_prev = s_prev + granted;
                end if;
            else
                set total = 1; -- over: whether the charge was made in a window that has ended
                if anchor <> 0 or drain >= capacity then
                    call headgate_bucket_N(anchor, step, drain, b0, b1, b2, 1, op_at, greatest(moment, op_at), total, unused);
                end if;
                if total > 0 then
                    set granted = greatest(cost, x - 9007199254740991);
                end if;
            end if;
        when 2 then
            set prev = s_prev, level = s_level;
            call headgate_window_N(step, moment, s_at, prev, level, beginning, carried, q, f);
            set x = carried + level;
            if op_at - op_at mod step = beginning then
                set granted = greatest(least(cost, level), level - 4294967295);
                set level = level - granted;
            end if;
        else
            if moment < s_empty_at and s_level > 0 then
                if moment > s_at then
                    call headgate_sum_N(1, p_limit, p_key, s_at, moment, total);
                end if;
                set x = greatest(0, s_level - total);
            end if;
            set credits = coalesce((select e.cost from headgate_entries e force index (primary) where e.number = p_entry
                and e.limit_name = p_limit and e.cell_key = p_key and e.granted = 1 and e.expires_at > moment for update), 0);
            if credits > 0 then
                set granted = greatest(least(cost, credits, x), x - 9007199254740991);
            end if;
            if granted <> 0 then
                update headgate_entries e set e.expires_at = if(e.cost > granted, e.expires_at, 0), e.cost = e.cost - granted
                where e.number = p_entry;
            end if;
    end case;
    set x = x - granted, used = x;
    if granted = 0 then
        set s_kind = was_kind, s_level = was_level, s_prev = was_prev, s_unit = was_unit, s_step = was_step;
        leave correcting;
    end if;
    set s_step = step;
    case kind
        when 1 then
            if granted < 0 then
                call headgate_after_N(anchor, step, drain, b0, b1, b2, b3, t, x, empty_at);
                set s_empty_at = if(s_prev > 0, greatest(empty_at, s_empty_at), empty_at);
            end if;
            set s_level = x, s_at = t;
        when 2 then
            set s_prev = prev, s_level = level, s_at = moment,
                s_empty_at = if(level > 0, beginning + 2 * step, if(prev > 0, beginning + step, 0));
        else
            set s_level = x, s_at = moment;
    end case;
end
//
