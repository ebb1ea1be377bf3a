-- Package law in SQL, line by line and with its names: law/decide.go and kinds.go; giveback.sql has
-- giveback.go. Change both or neither. It stands here once, for all procedures.
--
-- kind, anchor, unit, capacity, step and drain are those of the limit; b0 to b3 the boundaries of a calendar; s_kind to
-- s_blocked_until the cell. 9007199254740991 is law.Max. No product may leave BIGINT, so what could is divided first.

-- headgate_bucket_N returns the credits x in use at a moment of a level as of a time at, and the time t that x holds for.
create procedure headgate_bucket_N(anchor int, step bigint, drain bigint, b0 bigint, b1 bigint, b2 bigint,
    level bigint, at bigint, moment bigint, out x bigint, out t bigint)
    deterministic contains sql sql security invoker
begin
    declare n bigint;
    case anchor
        when 0 then
            set n = (moment - at) div step, t = at + n * step;
        when 1 then
            set t = greatest(at, moment - moment mod step), n = (t - at) div step + ((t - at) mod step > 0);
        else
            set t = greatest(at, if(b2 <= moment, b2, if(b1 <= moment, b1, b0))), n = least(t - at, 1);
    end case;
    set x = if(n >= level div drain + (level mod drain > 0), 0, level - drain * n);
    if x = 0 and anchor = 0 then
        set t = moment; -- an empty cell has no phase
    end if;
end
//

-- headgate_after_N returns the time at which credits more than there are at t have drained.
create procedure headgate_after_N(anchor int, step bigint, drain bigint, b0 bigint, b1 bigint, b2 bigint, b3 bigint,
    t bigint, credits bigint, out later bigint)
    deterministic contains sql sql security invoker
begin
    declare n bigint default credits div drain + (credits mod drain > 0);
    if credits <= 0 then
        set later = t;
    elseif anchor = 2 then
        set later = if(b0 > t, b0, if(b1 > t, b1, if(b2 > t, b2, b3)));
    else
        set later = if(anchor = 1, t - t mod step, t),
            later = if(later >= 9007199254740991 or n > (9007199254740991 - later) div step, 9007199254740991, later + n * step);
    end if;
end
//

-- headgate_window_N rolls the two counters of a sliding window forward to a moment. carry is what the window before still
-- counts for, q the width of a share of it, and f the number of such shares.
create procedure headgate_window_N(step bigint, moment bigint, at bigint, inout prev bigint, inout level bigint,
    out beginning bigint, out carry bigint, out q bigint, out f bigint)
    deterministic contains sql sql security invoker
begin
    set beginning = moment - moment mod step;
    case at - at mod step
        when beginning then
            begin end;
        when beginning - step then
            set prev = level, level = 0;
        else
            set prev = 0, level = 0;
    end case;
    set q = (step + 1048575) div 1048576;
    if step mod q <> 0 and step mod 1000000 = 0 then
        set q = step div 1000000;
    end if;
    set f = step div q;
    set carry = (prev * least(f, (step - (moment - beginning) + q - 1) div q) + f - 1) div f;
end
//

-- headgate_sum_N returns the credits of a log that expire after one time and not after another. Unless it is for a check
-- it locks them, since it may be part of a transaction of the caller's whose snapshot is older than the cell.
create procedure headgate_sum_N(verb int, p_limit varbinary(255), p_key varbinary(512), passed bigint, moment bigint, out total bigint)
    reads sql data sql security invoker
begin
    if verb = 2 then
        set total = (select cast(coalesce(sum(e.cost), 0) as signed) from headgate_entries e force index (by_cell)
            where e.limit_name = p_limit and e.cell_key = p_key and e.expires_at > passed and e.expires_at <= moment);
    else
        set total = (select cast(coalesce(sum(e.cost), 0) as signed) from headgate_entries e force index (by_cell)
            where e.limit_name = p_limit and e.cell_key = p_key and e.expires_at > passed and e.expires_at <= moment lock in share mode);
    end if;
end
//

-- headgate_freed_N returns when so many credits of a log have expired that count at a moment. It looks at the first
-- entries first.
create procedure headgate_freed_N(verb int, p_limit varbinary(255), p_key varbinary(512), moment bigint, need bigint, out later bigint)
    reads sql data sql security invoker
begin
    declare most, seen int default 64;
    set later = null;
    while later is null do
        if verb = 2 then
            select min(if(f.total >= need, f.expires_at, null)), count(*) into later, seen
            from (select e.expires_at, sum(e.cost) over (order by e.expires_at rows unbounded preceding) as total
                from (select n.expires_at, n.cost from headgate_entries n force index (by_cell)
                    where n.limit_name = p_limit and n.cell_key = p_key and n.expires_at > moment order by n.expires_at limit most) e) f;
        else
            select min(if(f.total >= need, f.expires_at, null)), count(*) into later, seen
            from (select e.expires_at, sum(e.cost) over (order by e.expires_at rows unbounded preceding) as total
                from (select n.expires_at, n.cost from headgate_entries n force index (by_cell)
                    where n.limit_name = p_limit and n.cell_key = p_key and n.expires_at > moment order by n.expires_at limit most lock in share mode) e) f;
        end if;
        if later is null and seen < most then
            set later = 9007199254740991;
        end if;
        set most = most * 16;
    end while;
end
//

-- headgate_decide_N is Decide: what an op of verb 1, Take, 2, Check, or 10, which extends, would do to a cell. It makes the cell what
-- Outcome.State is, and base_level to base_empty_at what differs from that in Verdict.Base. times is Op.Count, part
-- Op.Partial, moment Verdict.Now. cleared says that nothing in the log counts.
create procedure headgate_decide_N(p_limit varbinary(255), p_key varbinary(512), verb int, kind int, anchor int, unit bigint,
    capacity bigint, step bigint, drain bigint, block bigint, cost bigint, times bigint, part int, ceiling bigint, deferred int,
    b0 bigint, b1 bigint, b2 bigint, b3 bigint, since bigint, lapse bigint, clock bigint, pending bigint, inout cleared int,
    inout s_kind int, inout s_level bigint, inout s_prev bigint, inout s_at bigint, inout s_unit bigint, inout s_step bigint,
    inout s_empty_at bigint, inout s_blocked_until bigint,
    out base_level bigint, out base_prev bigint, out base_at bigint, out base_step bigint, out base_empty_at bigint,
    out moved int, out moment bigint, out clears int, out carry bigint, out granted bigint, out used bigint, out retry_at bigint,
    out stale int)
    reads sql data sql security invoker
deciding: begin
    declare healed, converted, blocked, whole int default 0;
    declare excess, empty_at, x, t, need, total bigint default 0;
    declare prev, level, beginning, carried, q, f bigint default 0; -- of a sliding window

    -- rebase
    set moved = 0, clears = 0, carry = 0, granted = 0, used = 0, retry_at = 0;
    if s_kind = 0 then
        set s_kind = kind, s_unit = unit, s_step = step;
    end if;
    if s_at - clock > 2000000 then
        set healed = s_at - clock > case kind
            when 1 then if(capacity div drain + (capacity mod drain > 0) > 9007199254740991 div step, 9007199254740991,
                (capacity div drain + (capacity mod drain > 0)) * step)
            when 2 then least(9007199254740991, 2 * step)
            else step end;
        if healed then
            set s_at = clock;
        end if;
    end if;
    set moment = greatest(clock, s_at);
    set stale = kind = 1 and anchor = 2 and (moment < b0 or moment >= b3) or moment < since or (lapse <> 0 and moment >= lapse);
    if stale then
        leave deciding;
    end if;
    if not healed and moment >= s_empty_at then
        set s_level = 0, s_prev = 0;
    end if;

    -- convert
    if s_kind <> kind or s_unit <> unit or kind < 3 and s_step <> step then begin
        declare other int default kind = 1 and s_step <> step;
        declare fold int default s_kind <> kind or kind = 3 and s_unit <> unit or kind = 2 and s_step <> step;
        declare most bigint default if(kind = 2, 4294967295, 9007199254740991);
        declare scaled bigint default s_level + if(fold and s_kind = 2, s_prev, 0);
        set scaled = if(cast(scaled as decimal(38)) * unit > cast(9007199254740991 as decimal(38)) * s_unit, 9007199254740991, (cast(scaled as decimal(38)) * unit + s_unit - 1) div s_unit);
        if not healed and (scaled >= 9007199254740991 or scaled > capacity and (kind <> 1 or drain >= capacity)) then
            set excess = scaled;
        else
            if fold then
                set s_prev = 0, s_at = moment;
            elseif other then
                set s_at = least(moment, if(s_step > 9007199254740991 - s_at, 9007199254740991, s_at + s_step));
            end if;
            set s_level = least(scaled, most);
            set s_prev = if(cast(s_prev as decimal(38)) * unit > cast(most as decimal(38)) * s_unit, most, (cast(s_prev as decimal(38)) * unit + s_unit - 1) div s_unit);
            if kind = 1 then
                set s_prev = least(s_prev + s_level, 9007199254740991);
            end if;
            set s_kind = kind, s_unit = unit, s_step = step, converted = 1;
        end if;
    end; end if;
    if excess > 0 then
        set total = if(kind = 1, least(drain, capacity), capacity); -- what is forgotten in a step
        set total = excess div total + (excess mod total > 0);
        set empty_at = if(total > (9007199254740991 - moment) div step, 9007199254740991, moment + total * step);
        if excess < 9007199254740991 and s_kind <> 3 and empty_at < s_empty_at then
            set s_empty_at = empty_at, moved = 1;
        end if;
    elseif healed or converted then
        set moved = 1;
        case
            when s_level = 0 and (s_prev = 0 or kind = 1) then
                set empty_at = 0;
            when kind = 2 then
                set empty_at = moment - moment mod step + if(s_level > 0, 2, 1) * step;
            when kind = 3 then
                set empty_at = moment + step;
            else
                call headgate_after_N(anchor, step, drain, b0, b1, b2, b3, if(anchor = 2, moment, s_at), s_level, empty_at);
        end case;
        if healed or empty_at < s_empty_at and not (s_prev > 0 and (s_level = 0 or kind = 1 and anchor <> 2 and drain < capacity)) then
            set s_empty_at = empty_at;
        end if;
        if kind = 3 then
            set clears = 1, carry = s_level, cleared = 1;
        end if;
    end if;

    -- use
    set x = excess, whole = kind = 1 and (anchor = 2 or drain = 9007199254740991);
    if excess = 0 then
        case kind
            when 1 then
                call headgate_bucket_N(anchor, step, drain, b0, b1, b2, s_level, s_at, moment, x, t);
                if whole and s_level > 0 then
                    set x = s_level;
                    if anchor = 0 then
                        set t = moment - (moment - s_at) mod step;
                    end if;
                end if;
            when 2 then
                set prev = s_prev, level = s_level;
                call headgate_window_N(step, moment, s_at, prev, level, beginning, carried, q, f);
                set x = carried + level;
            else
                if clears then
                    set x = carry;
                elseif moment < s_empty_at and s_level > 0 then
                    if not cleared and moment > s_at then
                        call headgate_sum_N(verb, p_limit, p_key, s_at, moment, total);
                    else
                        set total = 0;
                    end if;
                    set x = greatest(0, s_level - total);
                end if;
        end case;
    end if;

    -- Decide
    set ceiling = if(ceiling > 0, ceiling, capacity);
    if deferred and times * cost > capacity - pending then
        set ceiling = 0; -- would never start
    end if;
    set blocked = s_blocked_until > moment;
    if x <= ceiling and not blocked and excess = 0 then
        set granted = least(times, (ceiling - x) div cost);
        if granted < times and not part then
            set granted = 0;
        end if;
    end if;
    set x = x + granted * cost, level = level + granted * cost, used = x;
    if granted < times then
        set need = if(part, cost, times * cost);
        if need > ceiling - pending then
            set retry_at = 9007199254740991;
        elseif excess > 0 then
            set retry_at = s_empty_at;
        elseif x <= ceiling - need then
            set retry_at = moment; -- only a block is in the way
        else
            case kind
                when 1 then
                    call headgate_after_N(anchor, step, drain, b0, b1, b2, b3, t, x - (ceiling - need), retry_at);
                when 2 then
                    begin
                        declare counted bigint default prev; -- credits that count by their share
                        declare room bigint default ceiling - level - need;
                        set retry_at = beginning;
                        if need > ceiling - level then -- not within this window
                            set retry_at = beginning + step, counted = level, room = ceiling - need;
                        end if;
                        if counted > 0 and room < counted then
                            set retry_at = retry_at + step - q * (room * f div counted);
                        end if;
                    end;
                else
                    set retry_at = 9007199254740991;
                    if not cleared then
                        call headgate_freed_N(verb, p_limit, p_key, moment, x - (ceiling - need), retry_at);
                    end if;
                    set retry_at = least(retry_at, greatest(moment + step, s_empty_at));
            end case;
            if granted = 0 then
                set retry_at = if(whole, s_empty_at, least(retry_at, s_empty_at));
            end if;
        end if;
        if block > 0 and verb <> 2 and not blocked and retry_at <> 9007199254740991 then
            set s_blocked_until = moment + block, moved = 1;
        end if;
        set retry_at = greatest(retry_at, s_blocked_until);
    elseif kind = 3 and verb = 1 and x > capacity - least(unit, capacity) then
        set retry_at = 9007199254740991;
        if not cleared then
            call headgate_freed_N(verb, p_limit, p_key, moment, x - (capacity - least(unit, capacity)), retry_at);
        end if;
        set retry_at = least(retry_at, greatest(moment + step, s_empty_at));
    end if;

    set base_level = s_level, base_prev = s_prev, base_at = s_at, base_step = s_step, base_empty_at = s_empty_at;
    if granted > 0 then -- charge
        set s_step = step;
        case kind
            when 1 then
                call headgate_after_N(anchor, step, drain, b0, b1, b2, b3, t, x, empty_at);
                set s_level = x, s_at = t, s_empty_at = if(s_prev > 0, greatest(empty_at, s_empty_at), empty_at);
            when 2 then
                set s_prev = prev, s_level = level, s_at = moment, s_empty_at = beginning + 2 * step;
            else
                set s_level = x, s_at = moment, s_empty_at = greatest(s_empty_at, moment + step);
        end case;
    end if;
end
//

