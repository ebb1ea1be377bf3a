-- What an administrator calls: another limit for one key, and the plan of a key. Each change is a version of the
-- catalog, with the user and the reason, as if headgate override or headgate plan had made it. headgate_block with
-- 0 seconds ends a block.

-- headgate_change_item_N puts a row of the catalog in the place of one of the same kind, name and key, or removes
-- that one if item_text is null. One row: version, the number of the catalog's newest.
create procedure headgate_change_item_N(in kind varchar(32) character set utf8mb4, in name varchar(255) character set utf8mb4 collate utf8mb4_bin,
    in `key` varchar(1024) character set utf8mb4 collate utf8mb4_bin, in item_text varchar(255) character set utf8mb4 collate utf8mb4_bin,
    in seconds decimal(20, 6), in reason text character set utf8mb4)
modifies sql data sql security invoker
begin
    declare k varbinary(32) default kind;
    declare n varbinary(255) default name;
    declare i varbinary(1024) default `key`;
    declare ends bigint default 0;
    declare exit handler for sqlexception
    begin
        set @hg_reason = null;
        resignal;
    end;
    if seconds <= 0 or seconds > 3660 * 86400 then
        call headgate_fail_N('seconds: must be above 0 and at most 3660 days, or null for no end');
    elseif length(coalesce(reason, '')) > 1000 then
        call headgate_fail_N('reason: is longer than 1000 bytes');
    elseif seconds is not null then
        set ends = {{clock}} + seconds * 1000000;
    end if;
    set @hg_reason = coalesce(reason, '');
    if item_text is null then
        delete c from headgate_catalog c where c.kind = k and c.name = n and c.item_key = i;
        if row_count() = 0 then
            call headgate_fail_N(concat('key: there is no ', kind, ' for "', `key`, '"'));
        end if;
    else
        insert into headgate_catalog (kind, name, item_key, `text`, note, `until`) values (k, n, i, item_text, @hg_reason, ends)
        on duplicate key update `text` = item_text, note = @hg_reason, `until` = ends;
    end if;
    set @hg_reason = null;
    select c.version from headgate_catalog_version c where c.only_one = 1;
end
//

-- headgate_override gives one key another rule than that of the limit, for some seconds or, if they are null, until it
-- is removed: by a rule that is null. What the key has used stays. One row: version, of the catalog.
create procedure headgate_override(limit_name varchar(255) character set utf8mb4 collate utf8mb4_bin, `key` varchar(1024) character set utf8mb4 collate utf8mb4_bin,
    rule varchar(255) character set utf8mb4 collate utf8mb4_bin, seconds decimal(20, 6), reason text character set utf8mb4)
modifies sql data sql security invoker comment 'Gives one key another rule than that of the limit; a null rule removes it.'
begin
    declare base, own varchar(255) character set utf8mb4 collate utf8mb4_bin;
    call headgate_text_N('key', `key`, 512);
    select l.name, l.rule into limit_name, base from headgate_limits n
    join headgate_limits l on l.name = if(n.rule like 'renamed from %', substring(n.rule, 14), n.name)
    where n.name = limit_name and l.rule not like 'renamed from %';
    if base is null then
        call headgate_fail_N(concat('limit_name: "', limit_name, '" is not in headgate_limits'));
    elseif rule is not null then
        call headgate_compile_N(base, base, {{unused}});
        call headgate_compile_N(rule, own, {{unused}});
        if own like 'concurrency %' <> (base like 'concurrency %') then
            call headgate_fail_N(concat('rule: ', own, ' is taken or acquired as its limit is; it cannot stand in the place of ', base));
        end if;
    end if;
    call headgate_change_item_N('override', limit_name, `key`, own, seconds, reason);
end
//

-- headgate_set_plan gives a key a plan, for some seconds or, if they are null, until it is removed: by a plan that is
-- null. One row: version, of the catalog.
create procedure headgate_set_plan(`key` varchar(1024) character set utf8mb4 collate utf8mb4_bin, plan varchar(255) character set utf8mb4 collate utf8mb4_bin,
    seconds decimal(20, 6), reason text character set utf8mb4)
modifies sql data sql security invoker comment 'Gives a key a plan; a null plan removes it.'
begin
    declare p varbinary(1024) default plan;
    call headgate_text_N('key', `key`, 512);
    if plan is not null and not exists (select 1 from headgate_catalog c where c.kind = 'plan' and c.name = p) then
        call headgate_fail_N(concat('plan: "', plan, '" is not in headgate_catalog, which has ', coalesce(
            (select group_concat(distinct convert(c.name using utf8mb4) separator ', ') from headgate_catalog c where c.kind = 'plan'), 'none')));
    end if;
    call headgate_change_item_N('assignment', '', `key`, plan, seconds, reason);
end
//
