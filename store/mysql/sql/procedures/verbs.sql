-- What people call to be charged once, to settle, to start later, and to hold.

-- headgate_print_N is Print of package law, of a request of one charge.
create procedure headgate_print_N(p_limit varbinary(255), p_key varbinary(512), p_cost bigint, p_unit bigint, out print bigint)
    deterministic contains sql sql security invoker
begin
    declare g decimal(65, 0);
    declare charge varbinary(2048);
    call headgate_gcd_N(p_cost, p_unit, g);
    set charge = concat(length(p_limit), ':', p_limit, length(p_key), ':', p_key, p_cost div g, '/', p_unit div g);
    set print = conv(left(sha2(charge, 256), 13), 16, 10);
end
//

-- headgate_id_N refuses what is no id; null is none.
create procedure headgate_id_N(id varchar(1024) character set utf8mb4 collate utf8mb4_bin)
    deterministic contains sql sql security invoker
begin
    if id = '' then
        call headgate_fail_N('id: is missing');
    elseif id is not null then
        call headgate_text_N('id', id, 255);
    end if;
end
//

-- headgate_charge_N checks the key and the cost of a charge, and returns the limit that holds for the key at a time
-- of the server's, and until when; the cost in credits; whether it may start late, and up to which level it may
-- charge then. A wait of -1 charges whatever the level. field is what the cost is called; the others are those of headgate_verb_N.
create procedure headgate_charge_N(verb int, held int, rule varchar(2048) character set utf8mb4 collate utf8mb4_bin,
    `key` varchar(1024) character set utf8mb4 collate utf8mb4_bin, cost decimal(65, 30), field varchar(8) character set utf8mb4, wait bigint, moment bigint,
    out name varchar(255) character set utf8mb4, out law int, out anchor int, out unit bigint, out capacity bigint, out step bigint, out drain bigint,
    out block bigint, out history bigint, out calendar varchar(8) character set utf8mb4, out zone varchar(64) character set utf8mb4,
    out since bigint, out lapse bigint, out credits bigint, out late int, out ceiling bigint)
modifies sql data sql security invoker
begin
    declare word, notation varchar(255) character set utf8mb4 collate utf8mb4_bin;
    declare applied varchar(1024) character set utf8mb4 collate utf8mb4_bin;
    declare exact decimal(65, 30);
    if cost is null then
        call headgate_fail_N(concat(field, ': is null'));
    elseif cost < 0 or cost = 0 and verb not in (4, 8) then
        call headgate_fail_N(concat(field, ': is ', trim(trailing '.' from trim(trailing '0' from cast(cost as char))), '; it must ', if(verb = 4, 'not be below 0', 'be above 0')));
    elseif cost > 9007199254740991 then
        call headgate_fail_N(concat(field, ': is too large'));
    end if;
    call headgate_text_N('key', `key`, 512);
    call headgate_find_N(rule, `key`, moment, name, notation, applied, since, lapse, law, anchor, unit, capacity, step, drain, block, history, calendar, zone);
    set late = 0, ceiling = 0, exact = ceiling(cost * unit);
    if held or law = 3 or wait > 0 then
        set word = substring_index(trim(replace(notation, char(9 using utf8mb4), ' ')), ' ', 1); -- of the algorithm
        set word = if(word regexp '^[0-9]' and word <> '0', 'token-bucket', word);
    end if;
    if capacity = 1 and unit = 2000000 and cost > 0 then
        set exact = 2; -- of limit 0: more than fits, however little or much it is
    end if;
    if held and word <> 'concurrency' then
        call headgate_fail_N(concat('limit: ', name, ' is taken, not acquired: only concurrency limits are'));
    elseif verb in (1, 2, 9, 10) and not held and word = 'concurrency' then
        call headgate_fail_N(concat('limit: ', name, ' is acquired and released, not taken'));
    elseif exact > 9007199254740991 then
        call headgate_fail_N(concat(field, ': is too large'));
    end if;
    set credits = exact;
    if wait <> 0 or @hg_keep is not null then -- a refusal does not block a key for a caller that waits, or leaves headroom
        set block = 0;
    end if;
    if wait < 0 then
        if @hg_keep is not null then
            call headgate_fail_N('keep: has no meaning for what is charged whatever the level');
        end if;
        set ceiling = if(law = 2, -4294967295, -9007199254740991); -- Highest of package law; below 0: also if nothing starts late
    elseif @hg_keep is not null then
        if verb in (1, 2, 9, 10) then
            call headgate_keeping_N(@hg_keep, unit, capacity, ceiling);
        end if;
    elseif wait > 0 and word in ('token-bucket', 'leaky-bucket', 'gcra') then
        set late = 1, ceiling = if(wait div step > (9007199254740991 - capacity) div drain, 9007199254740991, capacity + wait div step * drain);
    end if;
end
//

-- headgate_fault_N raises the error of an id: @hg_how above 2.
create procedure headgate_fault_N(id varchar(1024) character set utf8mb4 collate utf8mb4_bin)
    contains sql sql security invoker
begin
    if @hg_how > 2 then
        call headgate_fail_N(concat('id: "', left(id, 40), '": ', case @hg_how when 3 then 'the id was used for other charges'
            when 4 then 'no request of this id is known' else 'it is settled already' end));
    end if;
end
//

-- headgate_started_N refuses an id that was reserved, and starts later.
create procedure headgate_started_N(id varchar(1024) character set utf8mb4 collate utf8mb4_bin)
    contains sql sql security invoker
begin
    if @hg_when > @hg_clk then
        call headgate_fail_N(concat('id: "', left(id, 40), '" was reserved, and starts at ', cast('1970-01-01' + interval @hg_when microsecond as datetime(6)), ' UTC'));
    end if;
end
//

-- headgate_verb_N finds the limit that holds for the key, checks the arguments, and asks: again with what holds at the
-- server's time, if the boundaries or the limit that were right before the lock hold no more. The verbs are those of package
-- law, but 8 to cancel, 9 to take what fits, and 10 to extend. held says that the limit has to be one whose charges are; the seconds of
-- an id or a block, wait and lease are 0 where there is none. Name, unit, capacity and step stay in @hg_name, @hg_c, @hg_capacity and
-- @hg_step.
create procedure headgate_verb_N(verb int, held int, rule varchar(2048) character set utf8mb4 collate utf8mb4_bin, `key` varchar(1024) character set utf8mb4 collate utf8mb4_bin,
    cost decimal(65, 30), id varchar(1024) character set utf8mb4 collate utf8mb4_bin, seconds decimal(65, 30), wait bigint, lease bigint,
    note varchar(1024) character set utf8mb4)
modifies sql data sql security invoker
begin
    declare name varchar(255) character set utf8mb4;
    declare calendar varchar(8) character set utf8mb4;
    declare zone varchar(64) character set utf8mb4;
    declare law, anchor, late, inside, i int default 0;
    declare credits, since, lapse, unit, capacity, step, drain, block, history, ceiling, b0, b1, b2, b3, print, life bigint default 0;
    call headgate_enter_N();
    set @hg_clk = {{clock}}, @hg_stale = 1, @hg_how = 0, @hg_when = 0, life = if(verb = 5, seconds * 1000000, 0);
    if id is not null then
        call headgate_id_N(id);
        call headgate_life_N(seconds, life);
    elseif lease is null or held and verb <> 1 and lease < 1 then
        call headgate_fail_N('lease: was never acquired');
    end if;
    while @hg_stale and i < 4 do
        if i = 0 or since > 0 or lapse > 0 then
            call headgate_charge_N(verb, held, rule, `key`, cost, case verb when 4 then 'actual' when 10 then 'total' else 'cost' end, wait, if(i = 0, @hg_clk, @hg_now), name, law, anchor, unit,
                capacity, step, drain, block, history, calendar, zone, since, lapse, credits, late, ceiling);
        end if;
        if calendar is not null then
            call headgate_bounds_N(calendar, zone, if(i = 0, @hg_clk, @hg_now), b0, b1, b2, b3);
        end if;
        set @hg_count = 0;
        if verb = 1 and id is null and law = 1 and calendar is null and block = 0 and ceiling = 0 and since = 0 and lapse = 0 then
            call headgate_inside_N(inside);
            if not inside then
                call headgate_direct_N(name, `key`, anchor, unit, capacity, step, drain, credits);
            end if;
        end if;
        case
            when @hg_count then
                begin end; -- it is decided
            when id is null and not late then
                call headgate_ask_N(verb, name, `key`, law, anchor, unit, capacity, step, drain, block, history, credits, ceiling,
                    if(verb = 5, life, lease), note, b0, b1, b2, b3, since, lapse);
            else
                if id is not null and verb = 1 then
                    call headgate_print_N(name, `key`, credits, unit, print);
                end if;
                call headgate_group_N(if(verb = 8, 4, verb), 1, concat('[["', hex(name), '","', hex(`key`), '",', concat_ws(',', law, anchor, unit, capacity,
                    step, drain, block, history, if(verb = 8, -2, credits), ceiling, b0, b1, b2, b3, since, lapse, 1, print), ']]'), coalesce(id, ''), life, late);
        end case;
        set i = i + 1;
    end while;
    call headgate_fault_N(id);
    set @hg_name = name, @hg_c = unit, @hg_capacity = capacity, @hg_step = step;
end
//

-- headgate_life_N returns how long an id is remembered, in microseconds: an hour where
-- nothing is said, since a procedure has no defaults.
create procedure headgate_life_N(seconds decimal(65, 30), out life bigint)
    deterministic contains sql sql security invoker
begin
    if seconds is null or seconds = 0 then
        set seconds = 3600;
    elseif seconds < 0.000001 or seconds > 3660 * 86400 then
        call headgate_fail_N('life_seconds: must be from a microsecond to 3660 days');
    end if;
    set life = floor(seconds * 1000000);
end
//

-- headgate_take_once is headgate_take for a request with an id: asked again with the
-- same charge within its life, it returns the first admission, replayed 1, and
-- charges nothing. What was refused or cancelled is decided again; with another
-- charge it is an error. A life of 0 or null is an hour.
create procedure headgate_take_once(id varchar(1024) character set utf8mb4 collate utf8mb4_bin, rule varchar(2048) character set utf8mb4 collate utf8mb4_bin,
    `key` varchar(1024) character set utf8mb4 collate utf8mb4_bin, cost decimal(65, 30), life_seconds decimal(65, 30))
modifies sql data sql security definer comment 'headgate_take, charged once however often it is called with the id.'
begin
    call headgate_verb_N(1, 0, rule, `key`, cost, coalesce(id, ''), life_seconds, 0, 0, '');
    call headgate_started_N(id);
    {{figures}},
        @hg_how = 2 as replayed;
end
//

-- headgate_debit charges work that is done already, under an id, whatever the level: called again, it charges nothing
-- and returns the first result, replayed 1. One row: charged, 0 if the key is blocked; used, what is in use then; is_over,
-- 1 if that is more than the limit allows at once; limit_name; at; replayed. What is above delays others until it has
-- drained. A life of 0 or null is an hour.
create procedure headgate_debit(id varchar(1024) character set utf8mb4 collate utf8mb4_bin, rule varchar(2048) character set utf8mb4 collate utf8mb4_bin,
    `key` varchar(1024) character set utf8mb4 collate utf8mb4_bin, cost decimal(65, 30), life_seconds decimal(65, 30))
modifies sql data sql security definer comment 'Charges work that is done already, under an id, whatever the level.'
begin
    call headgate_verb_N(1, 0, rule, `key`, cost, coalesce(id, ''), life_seconds, -1, 0, '');
    call headgate_started_N(id);
    select @hg_g > 0 as charged,
        cast(cast(@hg_x div @hg_c as decimal(26, 6)) + cast((cast(@hg_x mod @hg_c as decimal(38)) * 1000000 + @hg_c - 1) div @hg_c as decimal(26, 6)) / 1000000 as decimal(26, 6)) as used,
        @hg_x > @hg_capacity as is_over, @hg_name as limit_name, cast('1970-01-01' + interval @hg_now microsecond as datetime(6)) as at,
        @hg_how = 2 as replayed;
end
//

-- headgate_settle makes actual the cost of a charge that was admitted under an id; 0
-- is nothing at all, and final. One row: corrected, what is given back is above 0, what is
-- charged in addition below. Settled at the same cost again, it is 0; at another it
-- is an error, and so is an id that is not known.
create procedure headgate_settle(id varchar(1024) character set utf8mb4 collate utf8mb4_bin, rule varchar(2048) character set utf8mb4 collate utf8mb4_bin,
    `key` varchar(1024) character set utf8mb4 collate utf8mb4_bin, actual decimal(65, 30))
modifies sql data sql security definer comment 'Sets the cost of the charge under an id. corrected is what was given back; below 0: charged in addition.'
begin
    call headgate_verb_N(4, 0, rule, `key`, actual, coalesce(id, ''), 0, 0, 0, '');
    select cast(cast(@hg_g as decimal(26, 9)) / @hg_c as decimal(26, 9)) as corrected;
end
//

-- headgate_cancel takes back a charge that was admitted under an id. Unlike one that
-- was settled at 0, its id can be admitted again, also by an attempt that is still
-- under way. One row: returned, how much of it; cancelled again, it is 0.
create procedure headgate_cancel(id varchar(1024) character set utf8mb4 collate utf8mb4_bin, rule varchar(2048) character set utf8mb4 collate utf8mb4_bin,
    `key` varchar(1024) character set utf8mb4 collate utf8mb4_bin)
modifies sql data sql security definer comment 'Takes back the charge under an id. returned is how much of it.'
begin
    call headgate_verb_N(8, 0, rule, `key`, 0, coalesce(id, ''), 0, 0, 0, '');
    select cast(cast(@hg_g as decimal(26, 9)) / @hg_c as decimal(26, 9)) as returned;
end
//

-- headgate_reserve takes cost now for a start at most wait_seconds from now: with
-- token-bucket, leaky-bucket and gcra each reservation has a start of its own, first
-- come first served; under other limits it starts at once or is not made. Sleep for
-- delay seconds, then begin. With an id it can be asked again and settled; null is
-- none. One row: allowed, start_at, UTC, delay, retry_after, limit_name, replayed.
create procedure headgate_reserve(rule varchar(2048) character set utf8mb4 collate utf8mb4_bin, `key` varchar(1024) character set utf8mb4 collate utf8mb4_bin,
    cost decimal(65, 30), wait_seconds decimal(65, 30), id varchar(1024) character set utf8mb4 collate utf8mb4_bin, life_seconds decimal(65, 30))
modifies sql data sql security definer comment 'Takes cost now for a start at most wait later.'
begin
    call headgate_enter_N();
    if wait_seconds is null or wait_seconds < 0 or wait_seconds > 3660 * 86400 then
        call headgate_fail_N('wait_seconds: must be from 0 to 3660 days');
    end if;
    call headgate_verb_N(1, 0, rule, `key`, cost, id, life_seconds, floor(wait_seconds * 1000000), 0, '');
    select @hg_g as allowed,
        if(@hg_g, cast('1970-01-01' + interval if(@hg_when > 0, @hg_when, @hg_clk) microsecond as datetime(6)), null) as start_at,
        if(@hg_g, cast(cast(greatest(0, @hg_when - @hg_clk) as decimal(26, 6)) / 1000000 as decimal(20, 6)), null) as delay,
        {{retry after}} as retry_after,
        @hg_name as limit_name, @hg_how = 2 as replayed;
end
//

-- headgate_acquire holds cost of a concurrency limit until headgate_release, or until
-- nobody has renewed it for the limit's ttl, in seconds. One row: acquired; lease, its
-- number, for renew and release; ttl; retry_after, until one ends if nobody renews it;
-- limit_name.
create procedure headgate_acquire(rule varchar(2048) character set utf8mb4 collate utf8mb4_bin, `key` varchar(1024) character set utf8mb4 collate utf8mb4_bin, cost decimal(65, 30))
modifies sql data sql security definer comment 'Holds cost of a concurrency limit: a lease.'
begin
    call headgate_verb_N(1, 1, rule, `key`, cost, null, 0, 0, 0, '');
    select @hg_g as acquired, if(@hg_g, @hg_entry, null) as lease, cast(cast(@hg_step as decimal(26, 6)) / 1000000 as decimal(20, 6)) as ttl,
        {{retry after}} as retry_after,
        @hg_name as limit_name;
end
//

-- headgate_renew lets a lease last for the ttl that its limit has now, from now, and never for less
-- than it did. One row: done, 0 if the lease is lost: others may have it.
create procedure headgate_renew(rule varchar(2048) character set utf8mb4 collate utf8mb4_bin, `key` varchar(1024) character set utf8mb4 collate utf8mb4_bin, lease bigint)
modifies sql data sql security definer comment 'Lets a lease last from now on. done is 0 if it is lost.'
begin
    call headgate_verb_N(7, 1, rule, `key`, 1, null, 0, 0, lease, '');
    select @hg_g > 0 as done;
end
//

-- headgate_release ends a lease. One row: done, 0 if it was lost or released before.
create procedure headgate_release(rule varchar(2048) character set utf8mb4 collate utf8mb4_bin, `key` varchar(1024) character set utf8mb4 collate utf8mb4_bin, lease bigint)
modifies sql data sql security definer comment 'Ends a lease. done is 0 if it was lost before.'
begin
    call headgate_verb_N(3, 1, rule, `key`, 1, null, 0, 0, lease, '');
    select @hg_g > 0 as done;
end
//
