-- Several charges in one request, all or none, or the first of several alternatives: headgate_take_all, headgate_take_first, both
-- with _once, headgate_reserve_all and headgate_settle_all. What is asked is a JSON array of objects with limit, key and cost.

-- headgate_all_N checks the charges, finds their limits and asks. Verb 11 takes the first alternative that passes. It leaves what
-- headgate_group_N does, and in @hg_asked the charges with their limits.
create procedure headgate_all_N(verb int, charges longtext character set utf8mb4 collate utf8mb4_bin, id varchar(1024) character set utf8mb4 collate utf8mb4_bin,
    seconds decimal(65, 30), wait bigint)
modifies sql data sql security invoker
begin
    declare size, members, numbered, turn, i, tries, ended, late, may, law, anchor int default 0;
    declare is_choice int default verb = 11;
    declare since, lapse, unit, capacity, step, drain, block, history, credits, ceiling, b0, b1, b2, b3, print, part, moment, life bigint default 0;
    declare rule varchar(2048) character set utf8mb4 collate utf8mb4_bin;
    declare `key`, amount, nth varchar(1024) character set utf8mb4 collate utf8mb4_bin;
    declare cost decimal(65, 30);
    declare name varchar(255) character set utf8mb4;
    declare calendar varchar(8) character set utf8mb4;
    declare zone varchar(64) character set utf8mb4;
    declare asked, seen, cell longtext character set utf8mb4;
    declare list cursor for select left(o.rule, 2048), left(o.k, 1024), left(o.cost, 1024), left(o.nth, 1024)
        from json_table(charges, '$[*]' columns (rule varchar(2048) character set utf8mb4 path '$.limit',
            k varchar(1024) character set utf8mb4 path '$.key', cost varchar(1024) character set utf8mb4 path '$.cost',
            nth varchar(1024) character set utf8mb4 path '$.alternative')) o;
    declare continue handler for not found set ended = 1;
    call headgate_enter_N();
    call headgate_id_N(id);
    if id is not null then
        call headgate_life_N(seconds, life);
    end if;
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
    -- to look at the n-th of 1,000 takes as long as to read the half of them
    select count(*) into members from json_table(charges, '$[*].*' columns (n for ordinality)) o;
    set verb = if(is_choice, 1, verb), numbered = (select count(o.nth) from json_table(charges, '$[*]' columns (nth varchar(1024) character set utf8mb4
        path '$.alternative')) o where is_choice);
    set @hg_clk = {{clock}}, @hg_stale = 1, @hg_how = 0, @hg_moments = '';
    while @hg_stale and tries < 4 do
        set i = 0, turn = 0, late = wait > 0, asked = '', seen = '', print = 0, ended = 0;
        open list;
        fetch list into rule, `key`, amount, nth;
        while not ended do
            set moment = if(tries = 0, @hg_clk, substring(@hg_moments, 17 * i + 1, 17));
            set @hg_place = concat('charges[', i, ']: ');
            if members <> 3 * size + numbered and json_length(charges, concat('$[', i, ']')) <> 3 + (numbered > 0 and nth is not null) then
                call headgate_fail_N(concat('has other members than limit, key', if(is_choice, ', cost and alternative', ' and cost')));
            elseif amount is not null and amount not regexp '^[-+]?[0-9]{1,60}([.][0-9]+)?([eE][-+]?[0-9]{1,2})?$' then
                call headgate_fail_N(concat('cost: "', left(amount, 40), '" is not a decimal number such as 3 or 0.5'));
            elseif abs(amount + 0e0) > 9007199254740992 then
                call headgate_fail_N('cost: is too large');
            elseif abs(amount + 0e0) < 1e-30 and amount + 0e0 <> 0 then
                call headgate_fail_N('cost: has more than 30 digits after the point');
            end if;
            set cost = cast(amount as decimal(65, 30)), nth = case when not is_choice then 1 when numbered = 0 then i + 1 else nth end;
            if nth is null or nth not in (concat(greatest(turn, 1)), concat(least(turn + 1, 255))) then
                call headgate_fail_N('alternative: number the alternatives 1, 2, ... up to 255, one after another, in all charges or in none');
            elseif nth <> turn then
                set asked = replace(asked, '"print"', print), print = 0, seen = '', turn = nth;
            end if;
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
                concat_ws(',', law, anchor, unit, capacity, step, drain, block, history, credits, ceiling, b0, b1, b2, b3, since, lapse, turn), ',"print"]');
            set i = i + 1, ended = 0;
            fetch list into rule, `key`, amount, nth;
        end while;
        close list;
        set asked = concat('[', replace(substring(asked, 2), '"print"', print), ']');
        call headgate_group_N(verb, size, asked, coalesce(id, ''), life, late);
        set tries = tries + 1;
    end while;
    call headgate_fault_N(id);
    set @hg_asked = asked;
end
//

-- headgate_take_all takes several charges, all or none. charges is a JSON array of objects with limit, key and cost, such as
-- [{"limit": "user", "key": "alice", "cost": 2.5}]. One row for each: ordinality, from 1; allowed, of the whole request; limit_name,
-- key; capacity, whole units; remaining, retry_after, reset_after and at as of headgate_take; refused, 1 if this charge would not have passed.
create procedure headgate_take_all(charges longtext character set utf8mb4 collate utf8mb4_bin)
modifies sql data sql security definer comment 'Takes several charges, all or none. One row for each; refused is 1 of those that would not have passed.'
begin
    call headgate_all_N(1, charges, null, 0, 0);
    {{each}};
end
//

-- headgate_take_all_once is headgate_take_all for a request with an id, as headgate_take_once is headgate_take.
create procedure headgate_take_all_once(id varchar(1024) character set utf8mb4 collate utf8mb4_bin, charges longtext character set utf8mb4 collate utf8mb4_bin,
    life_seconds decimal(65, 30))
modifies sql data sql security definer comment 'headgate_take_all, charged once however often it is called with the id.'
begin
    call headgate_all_N(1, charges, coalesce(id, ''), life_seconds, 0);
    call headgate_started_N(id);
    {{each once}};
end
//

-- headgate_take_first takes the first of several alternatives that passes, all charges of it. They are numbered from 1 by a member
-- alternative of their charges; without that member, each charge is an alternative. What is passed over leaves nothing; if none
-- passes, the last is refused. The rows are those of headgate_take_all for each charge up to that alternative, allowed being of the
-- row's alternative; and alternative.
create procedure headgate_take_first(charges longtext character set utf8mb4 collate utf8mb4_bin)
modifies sql data sql security definer comment 'Takes the first of several alternatives that passes as a whole. One row for each charge that was looked at.'
begin
    call headgate_all_N(11, charges, null, 0, 0);
    {{each first}};
end
//

-- headgate_take_first_once takes the first alternative that passes, once for an id: called again, it answers with the alternative
-- that was charged then.
create procedure headgate_take_first_once(id varchar(1024) character set utf8mb4 collate utf8mb4_bin, charges longtext character set utf8mb4 collate utf8mb4_bin,
    life_seconds decimal(65, 30))
modifies sql data sql security definer comment 'headgate_take_first, charged once however often it is called with the id.'
begin
    call headgate_all_N(11, charges, coalesce(id, ''), life_seconds, 0);
    call headgate_started_N(id);
    {{each first once}};
end
//

-- headgate_reserve_all is headgate_reserve for several charges, all or none, with a start in common: later than now only if all
-- limits are token-bucket, leaky-bucket or gcra. The rows have start_at, UTC, delay in seconds and replayed too, the same in all of them.
create procedure headgate_reserve_all(charges longtext character set utf8mb4 collate utf8mb4_bin, wait_seconds decimal(65, 30),
    id varchar(1024) character set utf8mb4 collate utf8mb4_bin, life_seconds decimal(65, 30))
modifies sql data sql security definer comment 'Takes several charges now, all or none, for a start in common at most wait later.'
begin
    call headgate_enter_N();
    if wait_seconds is null or wait_seconds < 0 or wait_seconds > 3660 * 86400 then
        call headgate_fail_N('wait_seconds: must be from 0 to 3660 days');
    end if;
    call headgate_all_N(1, charges, id, life_seconds, floor(wait_seconds * 1000000));
    {{each reserved}};
end
//

-- headgate_settle_all is headgate_settle for several charges of a request with an id, all or none; cost is what each has cost. They
-- need not be all of the request's. One row for each: ordinality, limit_name, key, corrected.
create procedure headgate_settle_all(id varchar(1024) character set utf8mb4 collate utf8mb4_bin, charges longtext character set utf8mb4 collate utf8mb4_bin)
modifies sql data sql security definer comment 'Sets the costs of charges under an id. corrected is what was given back of each; below 0: charged in addition.'
begin
    call headgate_all_N(4, charges, coalesce(id, ''), 0, 0);
    select o.n as ordinality, convert(unhex(o.l) using utf8mb4) as limit_name, convert(unhex(o.k) using utf8mb4) as `key`,
        cast(cast(u.g as decimal(26, 9)) / o.unit as decimal(26, 9)) as corrected
    from {{asked}} join {{outcomes}} on u.n = o.n order by o.n;
end
//
