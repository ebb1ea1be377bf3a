-- What people call: headgate_take, headgate_check, headgate_block and
-- headgate_reset; and views to read. rule is a name in headgate_limits, or a
-- one-line limit.
--
-- Procedures that the role app may call run with the rights of the user who has migrated: those that name
-- a limit to take from it, and those of the articles. All others run with the rights of their
-- caller, and so do those that they call.

-- headgate_enter_N is what every decision begins with. A caller can set the clock of the session,
-- and would find every limit empty.
create procedure headgate_enter_N()
    contains sql sql security invoker
begin
    declare continue handler for sqlexception begin end; -- a server that lets nobody set it
    set @hg_place = '';
    set session timestamp = default;
end
//

-- headgate_keeping_N returns the credits up to which a charge is admitted that leaves headroom to others: a share of the
-- capacity, such as 10%, or an amount. It is rounded up. headroom.go has the same.
create procedure headgate_keeping_N(keep varchar(2048) character set utf8mb4 collate utf8mb4_bin, unit bigint, capacity bigint, out ceiling bigint)
    deterministic contains sql sql security invoker
begin
    declare share int default right(keep, 1) = '%';
    declare coef, scale bigint;
    declare amount decimal(40, 9);
    declare credits decimal(65, 20);
    call headgate_parse_amount_N('keep', left(if(share, left(keep, char_length(keep) - 1), keep), 255), coef, scale);
    set amount = cast(coef as decimal(40, 9)) / scale;
    if share and amount >= 100 then
        call headgate_fail_N(concat('keep: ', keep, ' leaves nothing of a limit to take'));
    elseif capacity = 1 and unit = 2000000 then
        set ceiling = capacity; -- limit 0: no cost fits below it
    else
        set credits = ceiling(if(share, cast(amount * capacity as decimal(65, 11)) * 0.01, amount * unit));
        if credits >= capacity then
            call headgate_fail_N(concat('keep: ', keep, ' leaves nothing to take of a limit of ',
                trim(trailing '.' from trim(trailing '0' from cast(cast(capacity * 1000000 div unit as decimal(40)) / 1000000 as decimal(40, 6)))), ' at once'));
        end if;
        set ceiling = capacity - credits;
    end if;
end
//

-- headgate_find_N returns the limit that holds for a key at a time: its name, the notation, why it applies, between which
-- times it holds, see headgate_holds_N, and what headgate_compile_N returns. rule is a name or a notation. What a charge is to
-- leave to others may stand behind it, as in "api keep 10%"; it stays in @hg_keep, null for none.
create procedure headgate_find_N(rule varchar(2048) character set utf8mb4 collate utf8mb4_bin, `key` varchar(1024) character set utf8mb4 collate utf8mb4_bin,
    moment bigint, out name varchar(255) character set utf8mb4, out notation varchar(255) character set utf8mb4 collate utf8mb4_bin,
    out applied varchar(1024) character set utf8mb4 collate utf8mb4_bin, out since bigint, out lapse bigint,
    out law int, out anchor int, out unit bigint, out capacity bigint, out step bigint, out drain bigint, out block bigint, out history bigint,
    out calendar varchar(8) character set utf8mb4, out zone varchar(64) character set utf8mb4)
modifies sql data sql security invoker
begin
    declare compiled varchar(255) character set utf8mb4 collate utf8mb4_bin;
    declare canonical varchar(255) character set utf8mb4;
    declare inside, kinds int;
    if rule is null then
        call headgate_fail_N('limit: is null');
    end if;
    set @hg_keep = if(rule regexp ' keep [^ ]*$', substring_index(rule, ' ', -1), null);
    if @hg_keep is not null then
        set rule = left(rule, char_length(rule) - char_length(@hg_keep) - 6);
    end if;
    set applied = '', since = 0, lapse = 0;
    select l.name, l.rule, l.rule_compiled, l.law, l.anchor, l.unit, l.capacity, l.step, l.drain, l.block, l.history, l.calendar, l.zone, v.kinds
    into name, notation, compiled, law, anchor, unit, capacity, step, drain, block, history, calendar, zone, kinds
    from headgate_limits n join headgate_limits l on l.name = if(n.rule like 'renamed from %', substring(n.rule, 14), n.name)
    left join headgate_catalog_version v on v.only_one = 1 where n.name = rule and l.rule not like 'renamed from %';
    if notation is not null then
        if compiled is null or compiled <> notation then
            call headgate_compile_N(notation, canonical, law, anchor, unit, capacity, step, drain, block, history, calendar, zone);
            call headgate_inside_N(inside); -- refuses what headgate_ask would refuse, before the first write
            update headgate_limits l set l.rule_compiled = l.rule, l.law = law, l.anchor = anchor, l.unit = unit, l.capacity = capacity,
                l.step = step, l.drain = drain, l.block = block, l.history = history, l.calendar = calendar, l.zone = zone, l.updated_at = l.updated_at
            where l.name = name and l.rule = notation;
        end if;
        if kinds then -- the catalog has items that may hold for the key
            set compiled = notation;
            call headgate_holds_N(kinds, name, `key`, moment, compiled, applied, since, lapse);
            if applied <> '' then
                set notation = compiled;
                call headgate_compile_N(notation, canonical, law, anchor, unit, capacity, step, drain, block, history, calendar, zone);
            end if;
        end if;
    elseif rule regexp '^[a-z][a-z0-9_.-]*$' and char_length(rule) <= 64 and rule <> 'unlimited' then
        call headgate_fail_N(concat('unknown limit: "', rule, '" is not in headgate_limits'));
    else
        -- By the name alone: of which account a session is, only its own rights tell, and these are another's.
        if exists (select 1 from headgate_roles r where r.role = 'app' and r.user_name = left(user(), char_length(user()) - locate('@', reverse(user())))) then
            call headgate_fail_N('limit: has to be a name in headgate_limits for users with the role app');
        end if;
        call headgate_compile_N(rule, name, law, anchor, unit, capacity, step, drain, block, history, calendar, zone);
        set notation = rule;
    end if;
end
//

-- headgate_text_N refuses what is no key, or no id.
create procedure headgate_text_N(what varchar(16) character set utf8mb4, s varchar(1024) character set utf8mb4 collate utf8mb4_bin, most int)
    deterministic contains sql sql security invoker
begin
    if s is null then
        call headgate_fail_N(concat(what, ': is null'));
    elseif length(s) > most then
        call headgate_fail_N(concat(what, ': is ', length(s), ' bytes long, at most ', most, ' are allowed'));
    elseif locate(char(0 using utf8mb4), s) > 0 then
        call headgate_fail_N(concat(what, ': contains a NUL byte'));
    end if;
end
//

-- headgate_take takes cost from a limit for a key. One row: allowed, 1 or 0;
-- remaining, whole units that could pass now; retry_after, seconds until this
-- cost passes, null for never, 0 when allowed; reset_after, seconds until the key
-- is as good as new; limit_name; at, the time of the decision, UTC.
create procedure headgate_take(rule varchar(2048) character set utf8mb4 collate utf8mb4_bin, `key` varchar(1024) character set utf8mb4 collate utf8mb4_bin, cost decimal(65, 30))
modifies sql data sql security definer comment 'Takes cost from a limit, by its name or in one line, for a key.'
begin
    call headgate_verb_N(1, 0, rule, `key`, cost, null, 0, 0, 0, '');
    {{figures}};
end
//

-- headgate_take_up_to takes as much of a cost as fits. One row, that of headgate_take, in which allowed is 1 if anything was
-- accepted; and accepted, all of it or less, also 0; level, what is in use then; brim, 1 if that is the capacity; capacity.
create procedure headgate_take_up_to(rule varchar(2048) character set utf8mb4 collate utf8mb4_bin, `key` varchar(1024) character set utf8mb4 collate utf8mb4_bin, cost decimal(65, 30))
modifies sql data sql security definer comment 'Takes as much of a cost as fits.'
begin
    declare fitted bigint;
    call headgate_verb_N(9, 0, rule, `key`, cost, null, 0, 0, 0, '');
    set fitted = @hg_g, @hg_g = @hg_g > 0;
    {{figures}},
        cast(cast(fitted div @hg_c as decimal(26, 6)) + cast((cast(fitted mod @hg_c as decimal(38)) * 1000000 + 0) div @hg_c as decimal(26, 6)) / 1000000 as decimal(26, 6)) as accepted,
        cast(cast(@hg_x div @hg_c as decimal(26, 6)) + cast((cast(@hg_x mod @hg_c as decimal(38)) * 1000000 + @hg_c - 1) div @hg_c as decimal(26, 6)) / 1000000 as decimal(26, 6)) as level,
        @hg_x >= @hg_capacity as brim, @hg_capacity div @hg_c as capacity;
end
//

-- headgate_check tells whether headgate_take would admit the cost, and what could pass now, and takes nothing.
create procedure headgate_check(rule varchar(2048) character set utf8mb4 collate utf8mb4_bin, `key` varchar(1024) character set utf8mb4 collate utf8mb4_bin, cost decimal(65, 30))
modifies sql data sql security definer comment 'Tells whether headgate_take would admit the cost, and what could pass now.'
begin
    call headgate_verb_N(2, 0, rule, `key`, cost, null, 0, 0, 0, '');
    set @hg_x = @hg_x - if(@hg_g > 0, cast(ceiling(cost * @hg_c) as signed), 0);
    {{figures}};
end
//

-- headgate_record_N keeps what somebody did to a key, by his name at the server.
create procedure headgate_record_N(verb varchar(16) character set utf8mb4, rule varchar(2048) character set utf8mb4 collate utf8mb4_bin,
    `key` varchar(1024) character set utf8mb4 collate utf8mb4_bin, lasts bigint, reason varchar(1024) character set utf8mb4)
modifies sql data sql security invoker
begin
    insert into headgate_actions (at, verb, limit_name, cell_key, lasts, author, reason)
    values ({{clock}}, verb, left(trim(rule), 255), `key`, lasts, user(), coalesce(reason, ''));
    delete from headgate_actions where number <= cast(last_insert_id() as signed) - 10000;
end
//

-- headgate_block refuses everything of a key for some seconds; 0 lifts that. One
-- row: blocked_until, UTC, null if not blocked.
create procedure headgate_block(rule varchar(2048) character set utf8mb4 collate utf8mb4_bin, `key` varchar(1024) character set utf8mb4 collate utf8mb4_bin,
    seconds decimal(20, 6), reason varchar(1024) character set utf8mb4)
modifies sql data sql security invoker comment 'Refuses everything of a key for some seconds; 0 lifts that.'
begin
    if seconds is null or seconds < 0 or seconds > 3660 * 86400 then
        call headgate_fail_N('seconds: must be from 0 to 3660 days');
    elseif length(coalesce(reason, '')) > 512 then
        call headgate_fail_N('reason: is longer than 512 bytes');
    end if;
    call headgate_verb_N(5, 0, rule, `key`, 1, null, seconds, 0, 0, coalesce(reason, ''));
    call headgate_record_N(if(seconds = 0, 'unblock', 'block'), @hg_name, `key`, seconds * 1000000, reason);
    select if(@hg_block > 0, cast('1970-01-01' + interval @hg_block microsecond as datetime(6)), null) as blocked_until;
end
//

-- headgate_reset forgets a key: its level and its block. One row: existed, 1 or
-- 0. A history is kept.
create procedure headgate_reset(rule varchar(2048) character set utf8mb4 collate utf8mb4_bin, `key` varchar(1024) character set utf8mb4 collate utf8mb4_bin)
modifies sql data sql security invoker comment 'Forgets what a key has used of a limit, and its block.'
begin
    call headgate_verb_N(6, 0, rule, `key`, 1, null, 0, 0, 0, '');
    call headgate_record_N('reset', @hg_name, `key`, 0, '');
    select @hg_g as existed;
end
//

-- Attempts, allowed or refused, of the limits that keep a history.
create or replace view headgate_history as
select e.number, convert(e.limit_name using utf8mb4) as limit_name, convert(e.cell_key using utf8mb4) as `key`,
    cast('1970-01-01' + interval e.at microsecond as datetime(6)) as at, e.granted as allowed,
    cast(e.cost / coalesce(nullif(c.unit, 0), 1000) as decimal(30, 6)) as cost, nullif(convert(e.id using utf8mb4), '') as id
from headgate_entries e left join headgate_cells c on c.limit_name = e.limit_name and c.cell_key = e.cell_key
//

-- headgate_attempts shows the last attempts of a key, newest first.
create procedure headgate_attempts(p_limit varchar(255) character set utf8mb4, p_key varchar(1024) character set utf8mb4, p_most int)
reads sql data sql security invoker comment 'The last attempts of a key, newest first, of a limit that keeps a history.'
begin
    declare l varbinary(255) default coalesce((select substring(l.rule, 14) from headgate_limits l
        where l.name = p_limit and l.rule like 'renamed from %'), p_limit);
    declare k varbinary(1024) default p_key;
    select e.number, cast('1970-01-01' + interval e.at microsecond as datetime(6)) as at, e.granted as allowed,
        cast(e.cost / coalesce(nullif(c.unit, 0), 1000) as decimal(30, 6)) as cost, nullif(convert(e.id using utf8mb4), '') as id
    from headgate_entries e left join headgate_cells c on c.limit_name = e.limit_name and c.cell_key = e.cell_key
    where e.limit_name = l and e.cell_key = k order by e.number desc limit p_most;
end
//

-- headgate_blocked_per_hour counts refused attempts for each limit and hour, UTC.
create or replace view headgate_blocked_per_hour as
select convert(limit_name using utf8mb4) as limit_name,
    cast('1970-01-01' + interval hours hour as datetime) as hour, count(*) as blocked, count(distinct cell_key) as `keys`
from (select limit_name, cell_key, at div 3600000000 as hours from headgate_entries where granted = 0) e group by limit_name, hours
//
