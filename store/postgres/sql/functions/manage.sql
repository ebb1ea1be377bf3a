-- What an administrator calls: another limit for one key, the plan of a key, and the end of a block. Each change is a
-- version of the catalog, with the user and the reason, as if headgate override or headgate plan had made it.

-- headgate_internal.ends_at_N is when something ends that begins now, in microseconds; 0 for no interval, without an end.
create or replace function headgate_internal.ends_at_N(for_interval interval) returns bigint language plpgsql volatile as $$
begin
    if for_interval is null then
        return 0;
    elsif for_interval <= '0' then
        perform headgate_internal.fail_N(format('for_interval: %s is not above 0; leave it out for no end', for_interval));
    end if;
    return (extract(epoch from clock_timestamp()) * 1000000)::bigint + headgate_internal.micros_N('for_interval', for_interval);
end $$;

-- headgate_internal.change_item_N puts a row of the catalog in the place of one of the same kind, name and key, or removes
-- that one if p_text is null, and returns the version that there is then.
create or replace function headgate_internal.change_item_N(p_kind text, p_name text, p_key text, p_text text, p_until bigint, p_reason text)
returns bigint language plpgsql volatile as $$
declare
    v bigint;
begin
    if octet_length(coalesce(p_reason, '')) > 1000 then
        perform headgate_internal.fail_N('reason: is longer than 1000 bytes');
    end if;
    perform set_config('headgate.reason', coalesce(p_reason, ''), true);
    if p_text is null then
        delete from headgate.catalog c where c.kind = p_kind and c.name = p_name and c.key = p_key;
        if not found then
            perform headgate_internal.fail_N(format('key: there is no %s for "%s"', p_kind, p_key));
        end if;
    else
        insert into headgate.catalog (kind, name, key, text, note, until)
        values (p_kind, p_name, p_key, p_text, coalesce(p_reason, ''), p_until)
        on conflict (kind, name, key) do update set text = excluded.text, note = excluded.note, until = excluded.until;
    end if;
    perform set_config('headgate.reason', '', true);
    select c.version into v from headgate.catalog_version c;
    return v;
end $$;

-- headgate.override gives one key another rule than that of the limit, for some time or, without for_interval, until
-- it is removed: by a rule that is null. What the key has used stays. It returns the version of the catalog.
create or replace function headgate.override(limit_name text, key text, rule text, for_interval interval default null, reason text default '')
returns bigint language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    base headgate.compiled; c headgate.compiled;
begin
    perform headgate_internal.checked_key_N('key', override.key);
    limit_name := headgate_internal.cells_N(limit_name);
    select (l.compiled).* into base from headgate.limits l where l.name = limit_name;
    if not found then
        perform headgate_internal.fail_N(format('limit_name: "%s" is not in headgate.limits', limit_name));
    end if;
    if override.rule is not null then
        c := headgate_internal.compile_N(override.rule);
        if (c.canonical like 'concurrency %') <> (base.canonical like 'concurrency %') then
            perform headgate_internal.fail_N(format('rule: %s is taken or acquired as its limit is; it cannot stand in the place of %s', c.canonical, base.canonical));
        end if;
    end if;
    return headgate_internal.change_item_N('override', limit_name, override.key, c.canonical, headgate_internal.ends_at_N(for_interval), reason);
end $$;

-- headgate.set_plan gives a key a plan, for some time or, without for_interval, until it is removed: by a plan that is
-- null. It returns the version of the catalog.
create or replace function headgate.set_plan(key text, plan text, for_interval interval default null, reason text default '')
returns bigint language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    perform headgate_internal.checked_key_N('key', set_plan.key);
    if set_plan.plan is not null and not exists (select from headgate.catalog c where c.kind = 'plan' and c.name = set_plan.plan) then
        perform headgate_internal.fail_N(format('plan: "%s" is not in headgate.catalog, which has %s', set_plan.plan,
            coalesce((select string_agg(distinct c.name, ', ') from headgate.catalog c where c.kind = 'plan'), 'none')));
    end if;
    return headgate_internal.change_item_N('assignment', '', set_plan.key, set_plan.plan, headgate_internal.ends_at_N(for_interval), reason);
end $$;

-- headgate.unblock ends the block of a key, and returns whether it was blocked.
create or replace function headgate.unblock(rule text, key text, out was_blocked boolean)
language plpgsql volatile set enable_seqscan = off set search_path = pg_catalog, pg_temp as $$
declare
    f record;
begin
    f := headgate_internal.find_N(rule, key);
    select coalesce(bool_or(c.blocked_until > extract(epoch from clock_timestamp()) * 1000000), false) into was_blocked
    from headgate.cells c where c.limit_name = f.name and c.key = unblock.key;
    perform headgate_internal.ask_N(5, f.name, f.c, unblock.key, 1, 0, '');
    perform headgate_internal.record_action_N('unblock', f.name, unblock.key, 0, headgate_internal.author_N(), '');
end $$;
