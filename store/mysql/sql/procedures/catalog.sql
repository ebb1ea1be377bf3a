-- What the triggers of the catalog call. The names of these have no number, since a
-- trigger stays as it is while procedures are replaced.

-- headgate_item_N writes an item in JSON, in the form of Item of package store; null for none.
-- JSON_OBJECT would write a boolean as a number.
create procedure headgate_item_N(in kind varbinary(32), in name varbinary(255), in item_key varbinary(512),
    in item_text varchar(255) character set utf8mb4, in note text character set utf8mb4, in origin varchar(255) character set utf8mb4,
    in item_until bigint, in retired int,
    out id text character set utf8mb4, out item text character set utf8mb4)
    deterministic contains sql sql security invoker
begin
    set id = concat('{"kind":', json_quote(convert(kind using utf8mb4)), ',"name":', json_quote(convert(name using utf8mb4)),
        ',"key":', json_quote(convert(item_key using utf8mb4)));
    set item = concat(id, ',"text":', json_quote(item_text), ',"note":', json_quote(note), ',"origin":', json_quote(origin),
        ',"until":', item_until, ',"retired":', if(retired, 'true', 'false'), '}');
end
//

-- headgate_row_changed makes a version of a row that somebody has changed: of what it was,
-- or null, and what it is, or null. A row that was given another name is two changes. @hg_reason says why, if anybody did.
create procedure headgate_row_changed(
    in old_kind varbinary(32), in old_name varbinary(255), in old_key varbinary(512),
    in old_text varchar(255) character set utf8mb4, in old_note text character set utf8mb4, in old_origin varchar(255) character set utf8mb4,
    in old_until bigint, in old_retired int,
    in new_kind varbinary(32), in new_name varbinary(255), in new_key varbinary(512),
    in new_text varchar(255) character set utf8mb4, in new_note text character set utf8mb4, in new_origin varchar(255) character set utf8mb4,
    in new_until bigint, in new_retired int)
    modifies sql data sql security invoker
begin
    declare old_id, new_id, old_item, new_item text character set utf8mb4 collate utf8mb4_bin;
    declare gone varchar(32) character set utf8mb4 collate utf8mb4_bin default ',"removed":true}';
    declare number bigint;
    call headgate_item_N(old_kind, old_name, old_key, old_text, old_note, old_origin, old_until, old_retired, old_id, old_item);
    call headgate_item_N(new_kind, new_name, new_key, new_text, new_note, new_origin, new_until, new_retired, new_id, new_item);
    if not (old_item <=> new_item) then
        -- This locks the number until the transaction ends.
        update headgate_catalog_version c set c.version = c.version + 1,
            c.kinds = c.kinds | case new_kind when 'override' then 1 when 'prefix-override' then 2 when 'assignment' then 4
                when 'prefix-assignment' then 8 else 0 end
        where c.only_one = 1;
        select c.version into number from headgate_catalog_version c where c.only_one = 1;
        insert into headgate_versions (version, at, author, reason) values (number, {{clock}}, user(), coalesce(@hg_reason, ''));
        if old_id is not null and not (old_id <=> new_id) then
            insert into headgate_changes (version, kind, name, item_key, before_item, after_item)
            values (number, old_kind, old_name, old_key, old_item, concat(old_id, gone));
            set old_item = null;
        end if;
        if new_id is not null then
            insert into headgate_changes (version, kind, name, item_key, before_item, after_item)
            values (number, new_kind, new_name, new_key, coalesce(old_item, concat(new_id, gone)), new_item);
        end if;
    end if;
end
//

-- headgate_check_limit refuses a limit that nobody could use, and returns what it means, as
-- headgate_compile_N does; nothing of another name of a limit.
create procedure headgate_check_limit(in name varchar(64) character set utf8mb4 collate utf8mb4_bin,
    in rule varchar(255) character set utf8mb4 collate utf8mb4_bin,
    out law int, out anchor int, out unit bigint, out capacity bigint, out step bigint, out drain bigint, out block bigint, out history bigint,
    out calendar varchar(8) character set utf8mb4, out zone varchar(64) character set utf8mb4)
    reads sql data sql security invoker
begin
    declare canonical varchar(255) character set utf8mb4;
    if name = '' or name regexp '[^a-z0-9_.-]' or left(name, 1) regexp '[^a-z]' then
        call headgate_fail_N(concat('name: "', name, '" is not a name such as login or api.v2: a-z first, then a-z, 0-9, _, . and -'));
    end if;
    if rule not regexp '^renamed from [a-z][a-z0-9_.-]*$' then
        call headgate_compile_N(rule, canonical, law, anchor, unit, capacity, step, drain, block, history, calendar, zone);
    end if;
end
//

-- headgate_check_item refuses a row of headgate_catalog that nobody could use. It puts the name of a limit's cells in the
-- place of another name of the limit.
create procedure headgate_check_item(in kind varbinary(32), inout name varbinary(255), inout item_key varbinary(512),
    in item_text varchar(255) character set utf8mb4 collate utf8mb4_bin)
    reads sql data sql security invoker
begin
    if coalesce(hex(convert(name using utf8mb4)), '') <> hex(name) or coalesce(hex(convert(item_key using utf8mb4)), '') <> hex(item_key) then
        call headgate_fail_N('name: is not UTF-8');
    elseif locate(x'00', name) > 0 or locate(x'00', item_key) > 0 then
        call headgate_fail_N('name: contains a NUL byte');
    -- A row that means nothing would be taken for one that does. That limits and plans are there is not asked: a
    -- transaction may write them afterwards.
    elseif kind in ('override', 'prefix-override', 'plan') and name = '' then
        call headgate_fail_N(concat('name: is missing in a row of kind ', convert(kind using utf8mb4)));
    elseif kind in ('assignment', 'prefix-assignment') and name <> '' then
        call headgate_fail_N(concat('name: is "', convert(name using utf8mb4), '"; it is empty in a row of kind ', convert(kind using utf8mb4),
            ': the plan is its text'));
    elseif kind = 'plan' and item_key = '' then
        call headgate_fail_N('item_key: is missing in a row of kind plan');
    elseif kind <> 'file' and item_text = '' then
        call headgate_fail_N(concat('text: is missing in a row of kind ', convert(kind using utf8mb4)));
    elseif kind in ('plan', 'override', 'prefix-override') then
        call headgate_compile_N(item_text, @hg_name, {{unused}});
        set @hg_name = convert(if(kind = 'plan', item_key, name) using utf8mb4);
        set @hg_name = coalesce((select substring(l.rule, 14) from headgate_limits l where l.name = @hg_name and l.rule like 'renamed from %'), @hg_name);
        set item_key = if(kind = 'plan', @hg_name, item_key), name = if(kind = 'plan', name, @hg_name);
    end if;
end
//
