-- Rows of the catalog may be changed by hand: the triggers check a row before it is
-- written, and make a version of what has become of it. The driver does both itself, and
-- says so by @hg_catalog. What headgate_limits keeps of a rule that it has compiled, and
-- updated_at, are no change.
--
-- A trigger runs when the row is locked already, and then locks the number of the newest
-- version, which the driver locks first. So the two may wait for each other: the server
-- ends one of them with a deadlock (1213), after which that is to be repeated. The driver does it by itself.

create trigger headgate_limits_before_insert before insert on headgate_limits for each row
if @hg_catalog is null then
    call headgate_check_kept(new.name, '', new.origin);
    call headgate_check_limit(new.name, new.rule, new.law, new.anchor, new.unit, new.capacity, new.step, new.drain, new.block,
        new.history, new.calendar, new.zone);
    set new.rule_compiled = new.rule;
end if
//

create trigger headgate_limits_before_update before update on headgate_limits for each row
if @hg_catalog is null and (hex(old.name) <> hex(new.name) or hex(old.rule) <> hex(new.rule) or hex(old.origin) <> hex(new.origin)) then
    call headgate_check_kept(old.name, old.origin, new.origin);
    call headgate_check_limit(new.name, new.rule, new.law, new.anchor, new.unit, new.capacity, new.step, new.drain, new.block,
        new.history, new.calendar, new.zone);
    set new.rule_compiled = new.rule;
end if
//

create trigger headgate_limits_after_insert after insert on headgate_limits for each row
if @hg_catalog is null then
    call headgate_row_changed(null, null, null, null, null, null, null, null,
        'limit', new.name, '', new.rule, new.description, new.origin, 0, new.retired);
end if
//

create trigger headgate_limits_after_update after update on headgate_limits for each row
if @hg_catalog is null then
    call headgate_row_changed('limit', old.name, '', old.rule, old.description, old.origin, 0, old.retired,
        'limit', new.name, '', new.rule, new.description, new.origin, 0, new.retired);
end if
//

create trigger headgate_limits_after_delete after delete on headgate_limits for each row
if @hg_catalog is null then
    call headgate_check_kept(old.name, old.origin, '');
    call headgate_row_changed('limit', old.name, '', old.rule, old.description, old.origin, 0, old.retired,
        null, null, null, null, null, null, null, null);
end if
//

create trigger headgate_catalog_before_insert before insert on headgate_catalog for each row
if @hg_catalog is null then
    call headgate_check_item(new.kind, new.name, new.item_key, new.`text`);
end if
//

create trigger headgate_catalog_before_update before update on headgate_catalog for each row
if @hg_catalog is null and (old.kind <> new.kind or old.name <> new.name or old.item_key <> new.item_key or hex(old.`text`) <> hex(new.`text`)) then
    call headgate_check_item(new.kind, new.name, new.item_key, new.`text`);
end if
//

create trigger headgate_catalog_after_insert after insert on headgate_catalog for each row
if @hg_catalog is null then
    call headgate_row_changed(null, null, null, null, null, null, null, null,
        new.kind, new.name, new.item_key, new.`text`, new.note, new.origin, new.`until`, new.retired);
end if
//

create trigger headgate_catalog_after_update after update on headgate_catalog for each row
if @hg_catalog is null then
    call headgate_row_changed(old.kind, old.name, old.item_key, old.`text`, old.note, old.origin, old.`until`, old.retired,
        new.kind, new.name, new.item_key, new.`text`, new.note, new.origin, new.`until`, new.retired);
end if
//

create trigger headgate_catalog_after_delete after delete on headgate_catalog for each row
if @hg_catalog is null then
    call headgate_row_changed(old.kind, old.name, old.item_key, old.`text`, old.note, old.origin, old.`until`, old.retired,
        null, null, null, null, null, null, null, null);
end if
//
