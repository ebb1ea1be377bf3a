-- The catalog. Whatever changes a row of it, a program or a person, triggers number the
-- versions and note what each has changed. Items are handed out as JSON, in the form of
-- Item of package store.

create or replace function headgate_internal.item_of_N(kind text, name text, key text) returns jsonb language sql immutable as $$
    select jsonb_build_object('kind', kind, 'name', name, 'key', key)
$$;

create or replace function headgate_internal.limit_item_N(l headgate.limits) returns jsonb language sql stable strict as $$
    select headgate_internal.item_of_N('limit', l.name, '') || jsonb_build_object('text', l.rule, 'note', l.description,
        'origin', l.origin, 'retired', l.retired)
$$;

create or replace function headgate_internal.catalog_item_N(c headgate.catalog) returns jsonb language sql stable strict as $$
    select headgate_internal.item_of_N(c.kind, c.name, c.key) || jsonb_build_object('text', c.text, 'note', c.note,
        'origin', c.origin, 'retired', c.retired, 'until', c.until)
$$;

-- headgate_internal.author_N is who changes the catalog: the user of the session, the role, and the
-- claims of a token where PostgREST checks one; before them, what a program says.
create or replace function headgate_internal.author_N() returns text language sql stable as $$
    select left(concat_ws(' ', nullif(current_setting('headgate.author', true), '') || ' as', session_user,
        'in role ' || nullif(nullif(current_setting('role', true), 'none'), session_user::text),
        'with claims ' || nullif(current_setting('request.jwt.claims', true), '')), 1000)
$$;

-- headgate_internal.note_change_N notes what became of one item; null is none. One with another name is another item.
-- All that one transaction changes is one version.
create or replace function headgate_internal.note_change_N(p_before jsonb, p_after jsonb) returns void language plpgsql as $$
declare
    i constant jsonb := coalesce(p_after, p_before);
    gone constant jsonb := headgate_internal.item_of_N(i->>'kind', i->>'name', i->>'key') || '{"removed": true}';
    said constant text[] := string_to_array(current_setting('headgate.version', true), ' in ');
    v bigint;
begin
    if p_before is not distinct from p_after then
        return;
    elsif (p_before->>'kind', p_before->>'name', p_before->>'key') <> (p_after->>'kind', p_after->>'name', p_after->>'key') then
        perform headgate_internal.note_change_N(p_before, null);
        perform headgate_internal.note_change_N(null, p_after);
        return;
    end if;
    if said[2] = txid_current()::text then -- and not what a session has set, or another transaction
        v := said[1];
    end if;
    if v is null then
        update headgate.catalog_version c set version = c.version + 1 returning c.version into v;
        insert into headgate.versions (version, at, author, reason) values (v, (extract(epoch from clock_timestamp()) * 1000000)::bigint,
            headgate_internal.author_N(), left(coalesce(current_setting('headgate.reason', true), ''), 1000));
        perform set_config('headgate.version', v || ' in ' || txid_current(), true);
    end if;
    insert into headgate.changes (version, kind, name, key, before, after)
    values (v, i->>'kind', i->>'name', i->>'key', coalesce(p_before, gone), coalesce(p_after, gone))
    on conflict (version, kind, name, key) do update set after = excluded.after;
end $$;

create or replace function headgate_internal.note_limit() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if pg_trigger_depth() < 2 then
        if tg_op <> 'INSERT' and old.origin = 'zone' or tg_op <> 'DELETE' and new.origin = 'zone' then
            perform headgate_internal.fail_N(format('limit: "%s" is a zone of check_velocity; change headgate.zones', coalesce(new.name, old.name)));
        elsif tg_op <> 'INSERT' and old.origin = 'bucket' or tg_op <> 'DELETE' and new.origin = 'bucket' then
            perform headgate_internal.fail_N(format('limit: "%s" is a bucket of request_token; change headgate.buckets', coalesce(new.name, old.name)));
        end if;
    end if;
    perform headgate_internal.note_change_N(headgate_internal.limit_item_N(old), headgate_internal.limit_item_N(new));
    return null;
end $$;

create or replace function headgate_internal.note_item() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform headgate_internal.note_change_N(headgate_internal.catalog_item_N(old), headgate_internal.catalog_item_N(new));
    if tg_op <> 'DELETE' then
        update headgate.limits l set varies = l.varies | i.bit
        from (select case new.kind when 'plan' then new.key else new.name end as name,
            case new.kind when 'override' then 1 when 'prefix-override' then 2 when 'plan' then 4 else 0 end as bit) i
        where l.name = i.name and l.varies & i.bit <> i.bit;
    end if;
    return null;
end $$;

-- headgate_internal.varies_N is what headgate.limits has in varies of a limit.
create or replace function headgate_internal.varies_N(p_limit text) returns int language sql stable as $$
    select exists (select from headgate.catalog c where c.kind = 'override' and c.name = p_limit)::int
        + exists (select from headgate.catalog c where c.kind = 'prefix-override' and c.name = p_limit)::int * 2
        + exists (select from headgate.catalog c where c.kind = 'plan' and c.key = p_limit)::int * 4
$$;

-- What is gone is looked for once for each statement. For each row, the search would go through all
-- rows that the statement has deleted before.
create or replace function headgate_internal.forget_items() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    update headgate.limits l set varies = headgate_internal.varies_N(l.name) where l.varies <> 0 and l.varies <> headgate_internal.varies_N(l.name);
    return null;
end $$;

-- Whatever changes a row locks the version before it, as headgate_internal.write_catalog_N does: so two
-- transactions cannot wait for each other.
create or replace function headgate_internal.lock_catalog() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform from headgate.catalog_version c for update;
    return null;
end $$;

-- TRUNCATE fires no triggers of rows, so this one notes what is removed, as DELETE would. Zones and
-- buckets are not truncated: their limits would stay.
create or replace function headgate_internal.note_truncate() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if tg_table_name in ('zones', 'buckets') then
        perform headgate_internal.fail_N(format('%s: its rows are limits too; use DELETE', tg_table_name));
    end if;
    perform from headgate.catalog_version c for update;
    if tg_relid = 'headgate.catalog'::regclass then
        perform headgate_internal.note_change_N(headgate_internal.catalog_item_N(c), null) from headgate.catalog c;
        update headgate.limits l set varies = 0 where l.varies <> 0;
    elsif exists (select from headgate.limits l where l.origin in ('zone', 'bucket')) then
        perform headgate_internal.fail_N('limit: zones of check_velocity and buckets of request_token are among them; empty headgate.zones and headgate.buckets first, by DELETE');
    else
        perform headgate_internal.note_change_N(headgate_internal.limit_item_N(l), null) from headgate.limits l;
    end if;
    return null;
end $$;

-- headgate.zone_limit keeps a limit for each zone of check_velocity: zone.ID. So its keys can be
-- inspected, reset and blocked as those of all others.
create or replace function headgate_internal.zone_limit() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op <> 'INSERT' and (tg_op = 'DELETE' or old.id <> new.id) then
        delete from headgate.limits l where l.name = 'zone.' || old.id;
    end if;
    if tg_op <> 'DELETE' then
        insert into headgate.limits (name, rule, description, origin)
        values ('zone.' || new.id, format('sliding-log %s/%ss', new.rate, new.window_seconds)
            || case when new.history_days > 0 then format(' history %sd', new.history_days) else '' end, new.description, 'zone')
        on conflict (name) do update set rule = excluded.rule, description = excluded.description, origin = excluded.origin, updated_at = now();
    end if;
    return null;
end $$;

-- headgate_internal.bucket_name_N is the limit of a bucket of request_token: bucket.ID, or null where the id cannot be
-- part of a name.
create or replace function headgate_internal.bucket_name_N(id text) returns text language sql immutable as $$
    select case when id ~ '^[a-z0-9_.-]{1,57}$' then 'bucket.' || id end
$$;

-- headgate.bucket_limit keeps a limit for each bucket of request_token, as headgate.zone_limit does for zones. The
-- key is the id.
create or replace function headgate_internal.bucket_limit() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op <> 'INSERT' and (tg_op = 'DELETE' or old.id <> new.id) then
        delete from headgate.limits l where l.name = headgate_internal.bucket_name_N(old.id);
    end if;
    if tg_op <> 'DELETE' and headgate_internal.bucket_name_N(new.id) is not null then
        insert into headgate.limits (name, rule, origin)
        values (headgate_internal.bucket_name_N(new.id), case when new.capacity = 0 then '0'
            else format('fixed-window %s/%s from-first', new.capacity, headgate_internal.format_period_N((new.refill_seconds * 1000000)::bigint)) end, 'bucket')
        on conflict (name) do update set rule = excluded.rule, origin = excluded.origin, updated_at = now();
    end if;
    return null;
end $$;

-- The text of a plan or an override has to be a limit. It is compiled here, and not by each decision.
create or replace function headgate_internal.compile_item() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    -- A row that means nothing would be taken for one that does. That limits and plans are there is not asked: a
    -- transaction may write them afterwards.
    if new.kind in ('override', 'prefix-override', 'plan') and new.name = '' then
        perform headgate_internal.fail_N(format('name: is missing in a row of kind %s', new.kind));
    elsif new.kind in ('assignment', 'prefix-assignment') and new.name <> '' then
        perform headgate_internal.fail_N(format('name: is "%s"; it is empty in a row of kind %s: the plan is its text, and who has it its key', new.name, new.kind));
    elsif new.kind = 'plan' and new.key = '' then
        perform headgate_internal.fail_N(format('key: is missing in a row of kind %s', new.kind));
    elsif new.kind <> 'file' and new.text = '' then
        perform headgate_internal.fail_N(format('text: is missing in a row of kind %s', new.kind));
    end if;
    if new.kind = 'plan' then
        new.key := headgate_internal.cells_N(new.key);
    elsif new.kind in ('override', 'prefix-override') then
        new.name := headgate_internal.cells_N(new.name);
    end if;
    new.compiled := case when new.kind in ('plan', 'override', 'prefix-override') then headgate_internal.compile_N(new.text) end;
    return new;
end $$;

-- A trigger stays where there is one: to make it again would wait for all who read the table. It has the name of its
-- function.
do $$ declare t record; begin
    for t in select * from (values
        ('limits', 'lock_catalog', 'before insert or update or delete', 'statement'),
        ('limits', 'compile_limit', 'before insert or update of name, rule', 'row'),
        ('limits', 'note_limit', 'after insert or update or delete', 'row'),
        ('limits', 'note_truncate', 'before truncate', 'statement'),
        ('catalog', 'lock_catalog', 'before insert or update or delete', 'statement'),
        ('catalog', 'compile_item', 'before insert or update of kind, text, compiled', 'row'),
        ('catalog', 'note_item', 'after insert or update or delete', 'row'),
        ('catalog', 'forget_items', 'after update or delete', 'statement'),
        ('catalog', 'note_truncate', 'before truncate', 'statement'),
        ('zones', 'lock_catalog', 'before insert or update or delete', 'statement'),
        ('zones', 'zone_limit', 'after insert or update or delete', 'row'),
        ('zones', 'note_truncate', 'before truncate', 'statement'),
        ('buckets', 'lock_catalog', 'before insert or update or delete', 'statement'),
        ('buckets', 'bucket_limit', 'after insert or update or delete', 'row'),
        ('buckets', 'note_truncate', 'before truncate', 'statement'),
        ('notations', 'compile_notation', 'before insert or update', 'row')) v(place, name, event, each)
    loop
        if not exists (select from pg_trigger g where g.tgrelid = ('headgate.' || t.place)::regclass and g.tgname = t.name) then
            execute format('create trigger %1$s %2$s on headgate.%3$s for each %4$s execute function headgate_internal.%1$s()',
                t.name, t.event, t.place, t.each);
        end if;
    end loop;
end $$;

-- headgate_internal.read_catalog_N returns what versions after p_since have written, as it stands now,
-- or all items but those of single keys. Without any it is one row, with a null kind. at and since_at are when the newest
-- version and that of before were written, or 0.
create or replace function headgate_internal.read_catalog_N(p_since bigint)
returns table (version bigint, at bigint, since_at bigint, clock bigint, kind text, name text, key text, item jsonb)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    newest bigint; before bigint;
begin
    -- Not in the statement below, which would be compiled for its estimated costs, in 0.3 s.
    select o.at into newest from headgate.catalog_version v join headgate.versions o on o.version = v.version;
    select o.at into before from headgate.versions o where o.version = p_since;
    return query
    select v.version, coalesce(newest, 0), coalesce(before, 0), (extract(epoch from clock_timestamp()) * 1000000)::bigint, w.kind, w.name, w.key, w.item
    from headgate.catalog_version v left join (
        select 'limit' as kind, l.name as name, '' as key, headgate_internal.limit_item_N(l) as item from headgate.limits l where p_since = 0
        union all
        select c.kind, c.name, c.key, headgate_internal.catalog_item_N(c) from headgate.catalog c
        where p_since = 0 and c.kind not in ('override', 'assignment')
        union all
        select h.kind, h.name, h.key, coalesce(headgate_internal.limit_item_N(l), headgate_internal.catalog_item_N(c))
        from (select distinct e.kind, e.name, e.key from headgate.changes e where p_since > 0 and e.version > p_since) h
        left join headgate.limits l on h.kind = 'limit' and l.name = h.name
        left join headgate.catalog c on c.kind = h.kind and c.name = h.name and c.key = h.key
    ) w on true;
end $$;

-- headgate_internal.items_N returns those of the items that are there, and the version that they are of.
-- Without any it is one row.
create or replace function headgate_internal.items_N(p_kinds text[], p_names text[], p_keys text[]) returns table (version bigint, item jsonb)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
    return query
    select v.version, w.item from headgate.catalog_version v left join (
        select headgate_internal.limit_item_N(l) as item from unnest(p_kinds, p_names) u(kind, name) join headgate.limits l on l.name = u.name
        where u.kind = 'limit'
        union all
        select headgate_internal.catalog_item_N(c) from unnest(p_kinds, p_names, p_keys) u(kind, name, key)
        join headgate.catalog c on c.kind = u.kind and c.name = u.name and c.key = u.key
    ) w on true;
end $$;

-- headgate_internal.items_after_N returns the first items of a kind after another one, in order.
create or replace function headgate_internal.items_after_N(p_kind text, p_name text, p_key text, p_most int) returns setof jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    if p_kind = 'limit' then
        return query
        select headgate_internal.limit_item_N(l) from headgate.limits l where l.name > p_name collate "C" order by l.name limit p_most;
    else
        return query
        select headgate_internal.catalog_item_N(c) from headgate.catalog c
        where c.kind = p_kind and (c.name, c.key) > (p_name collate "C", p_key collate "C") order by c.name, c.key limit p_most;
    end if;
end $$;

-- headgate_internal.write_catalog_N makes an edit, and returns the version that there is now; below 0
-- if it was not made, since the version is not p_base but another one, v: -1 - v.
create or replace function headgate_internal.write_catalog_N(p_base bigint, p_author text, p_reason text, p_items jsonb) returns bigint
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    v bigint; i jsonb;
begin
    select c.version into v from headgate.catalog_version c for update;
    if v <> p_base then
        return -1 - v;
    end if;
    perform set_config('headgate.author', p_author, true), set_config('headgate.reason', p_reason, true);
    delete from headgate.limits l using jsonb_array_elements(p_items) u(i)
    where u.i->>'kind' = 'limit' and (u.i->>'removed')::boolean and l.name = u.i->>'name';
    delete from headgate.catalog c using jsonb_array_elements(p_items) u(i)
    where (u.i->>'removed')::boolean and c.kind = u.i->>'kind' and c.name = u.i->>'name' and c.key = u.i->>'key';
    for i in select u.i from jsonb_array_elements(p_items) u(i) where (u.i->>'removed')::boolean is not true and u.i->>'kind' in ('limit', 'plan', 'override') loop
        begin
            if i->>'kind' = 'limit' then
                insert into headgate.limits (name, rule, description, origin, retired)
                values (i->>'name', i->>'text', coalesce(i->>'note', ''), coalesce(i->>'origin', ''),
                    coalesce((i->>'retired')::boolean, false))
                on conflict (name) do update set rule = excluded.rule, description = excluded.description,
                    origin = excluded.origin, retired = excluded.retired, updated_at = now();
            else
                perform headgate_internal.compile_N(i->>'text');
            end if;
        exception when sqlstate '22023' then
            perform headgate_internal.fail_N(format('%s %s: %s', i->>'kind', i->>'name', sqlerrm));
        end;
    end loop;
    insert into headgate.catalog (kind, name, key, text, note, origin, until, retired)
    select u.i->>'kind', u.i->>'name', u.i->>'key', u.i->>'text', coalesce(u.i->>'note', ''), coalesce(u.i->>'origin', ''),
        coalesce((u.i->>'until')::bigint, 0), coalesce((u.i->>'retired')::boolean, false)
    from jsonb_array_elements(p_items) u(i)
    where (u.i->>'removed')::boolean is not true and u.i->>'kind' <> 'limit'
    on conflict (kind, name, key) do update set text = excluded.text, note = excluded.note, origin = excluded.origin,
        until = excluded.until, retired = excluded.retired;
    select c.version into v from headgate.catalog_version c;
    -- What else this transaction changes is another version, of another author.
    perform set_config('headgate.version', '', true), set_config('headgate.author', '', true), set_config('headgate.reason', '', true);
    return v;
end $$;

-- headgate_internal.record_action_N keeps what somebody did to a key, and as many others as are kept.
create or replace function headgate_internal.record_action_N(p_verb text, p_limit text, p_key text, p_lasts bigint, p_author text, p_reason text) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    insert into headgate.actions (at, verb, limit_name, key, lasts, author, reason)
    values ((extract(epoch from clock_timestamp()) * 1000000)::bigint, p_verb, p_limit, p_key, p_lasts, p_author, p_reason);
    delete from headgate.actions a where a.number <= (select o.number from headgate.actions o order by o.number desc offset 10000 limit 1);
end $$;

-- headgate_internal.actions_N returns the newest actions below p_before, or of all if that is 0, newest first.
create or replace function headgate_internal.actions_N(p_before bigint, p_most int) returns setof headgate.actions
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    return query select * from headgate.actions a where p_before = 0 or a.number < p_before order by a.number desc limit p_most;
end $$;

-- headgate_internal.versions_N returns the newest versions below p_before, or of all if that is 0,
-- with their changes, newest first.
create or replace function headgate_internal.versions_N(p_before bigint, p_most int)
returns table (version bigint, at bigint, author text, reason text, before jsonb, after jsonb)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
    return query
    select v.version, v.at, v.author, v.reason, c.before, c.after
    from (select * from headgate.versions o where p_before = 0 or o.version < p_before order by o.version desc limit p_most) v
    join headgate.changes c on c.version = v.version
    order by v.version desc, c.kind, c.name, c.key;
end $$;
