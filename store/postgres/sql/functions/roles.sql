-- Two roles. app asks by the names of limits: it may execute the functions below, which have the
-- rights of their owner, and nothing else. service is for servers, the command and the Go library: it may
-- do everything but migrate, since headgate_internal.apply_N can do anything to a key.

-- headgate_internal.caller_N returns the role of the caller. Inside a function that is SECURITY DEFINER, current_user is its owner.
create or replace function headgate_internal.caller_N() returns name language sql stable as $$
    select coalesce(nullif(current_setting('role'), 'none')::name, session_user)
$$;

-- headgate_internal.may_notate_N refuses notations of limits to callers who may ask by name only: the rate would be
-- theirs.
create or replace function headgate_internal.may_notate_N() returns void language plpgsql stable as $$
begin
    if not has_function_privilege(headgate_internal.caller_N(), 'headgate_internal.apply_N(text[],text[],smallint[],bigint[],text[])', 'execute') then
        raise exception 'limit: % may ask by the name of a limit only, not by a notation', headgate_internal.caller_N()
            using errcode = '42501', hint = 'Names are in headgate.limits. The role service may ask by notations: headgate migrate --role service.';
    end if;
end $$;

-- headgate_internal.functions_N are all functions of ours, with their schemas; for_apps says which of them app may
-- execute. What another owner has made in another schema is not ours, whatever its comment says.
create or replace function headgate_internal.functions_N(out f regprocedure, out place regnamespace, out for_apps boolean)
returns setof record language sql stable as $$
    select p.oid::regprocedure, n.oid::regnamespace, n.nspname <> 'headgate_internal' and p.proname in ('take', 'check', 'take_once', 'extend', 'settle',
        'cancel', 'debit', 'reserve', 'acquire', 'renew', 'release', 'take_all', 'take_all_once', 'take_first', 'take_first_once', 'extend_all', 'reserve_all', 'settle_all', 'take_up_to',
        'take_float', 'enforce', 'limit_of', 'check_velocity', 'request_token')
    from pg_proc p join pg_namespace n on n.oid = p.pronamespace
    where p.prokind = 'f' and (n.nspname in ('headgate', 'headgate_internal')
        or p.proname in ('rate_limiting_request', 'rate_limiting_token_bucket_request', 'check_velocity', 'request_token')
            and obj_description(p.oid, 'pg_proc') like 'made by headgate%'
            and p.proowner = (select o.proowner from pg_proc o where o.pronamespace = 'headgate'::regnamespace and o.proname = 'take'))
    order by 1
$$;

-- headgate_internal.give_rights_N gives a user the rights of a role, and returns a line about each.
create or replace function headgate_internal.give_rights_N(p_role text, p_user text) returns setof text language plpgsql volatile as $$
declare
    f regprocedure; r record; names text := ''; place regnamespace;
begin
    for place in select distinct a.place from headgate_internal.functions_N() a where a.for_apps or p_role = 'service' order by 1 loop
        continue when place not in (select s.oid from pg_namespace s where s.nspname in ('headgate', 'headgate_internal')) and has_schema_privilege(p_user, place, 'usage');
        execute format('grant usage on schema %s to %I', place, p_user);
        return next format('%s may use schema %s', p_user, place);
    end loop;
    if p_role = 'app' then
        for f in select a.f from headgate_internal.functions_N() a where a.for_apps loop
            execute format('grant execute on function %s to %I', f, p_user);
            names := names || ', ' || split_part(f::text, '(', 1);
        end loop;
        return next format('%s may execute %s, by the names of limits', p_user, substr(names, 3));
        return;
    end if;
    for f in select a.f from headgate_internal.functions_N() a loop
        execute format('grant execute on function %s to %I', f, p_user);
    end loop;
    return next format('%s may execute all functions', p_user);
    for r in select * from (values
        ('select', 'installed, schema_version, zones, buckets, history, levels, blocked_per_hour'),
        ('select, insert', 'notations'),
        ('select, update', 'catalog_version'),
        ('select, insert, update', 'versions, changes'),
        ('select, insert, delete', 'actions'),
        ('select, insert, update, delete', 'cells, entries, admissions, limits, catalog')) v(rights, tables)
    loop
        execute format('grant %s on headgate.%s to %I', r.rights, replace(r.tables, ', ', ', headgate.'), p_user);
        return next format('%s may %s %s', p_user, r.rights, r.tables);
    end loop;
end $$;

-- headgate.grant_role gives a user one of the roles: app or service. It returns a line about each thing that
-- it did. What the user may do already stays. Later migrations give the user what they add for the role, for as
-- long as the user may use schema headgate.
create or replace function headgate.grant_role(role text, to_user text) returns setof text language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
    if coalesce(grant_role.role, '') not in ('app', 'service') then
        perform headgate_internal.fail_N(format('role: %s is neither app nor service', coalesce('"' || grant_role.role || '"', 'null')));
    elsif not exists (select from pg_roles r where r.rolname = to_user) then
        perform headgate_internal.fail_N(format('user: %s is no user of this server', coalesce('"' || to_user || '"', 'null')));
    end if;
    perform from headgate.schema_version v where v.version = 0 for update; -- nobody else gives rights meanwhile
    insert into headgate.granted (role, name) values (grant_role.role, to_user) on conflict do nothing;
    return query select headgate_internal.give_rights_N(grant_role.role, to_user);
end $$;
