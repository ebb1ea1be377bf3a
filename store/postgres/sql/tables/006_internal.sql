-- Functions that only other functions, triggers and the driver call are in a schema of their own, so that those
-- of schema headgate are the ones for people. Whoever owns a schema can replace what is in it.
do $$ declare f regprocedure; begin
    if to_regnamespace('headgate_internal') is null then
        if not has_database_privilege(current_database(), 'create') then
            raise exception 'schema headgate_internal is missing, and % may not create it', current_user using errcode = '42501',
                hint = format('create schema headgate_internal authorization %I, as the owner of database %I', current_user, current_database());
        end if;
        create schema headgate_internal;
    end if;
    if exists (select from pg_namespace n join pg_roles r on r.oid = n.nspowner, pg_namespace h
        where n.nspname = 'headgate_internal' and h.nspname = 'headgate' and n.nspowner <> h.nspowner and r.rolname <> current_user and not r.rolsuper)
    then
        raise exception 'schema headgate_internal belongs to another user than schema headgate' using errcode = '42501';
    end if;
    drop function if exists headgate.take_plain_1, headgate.once_plain_1, headgate.charge_one_1, headgate.articles_obstacle_1, headgate.functions_1;
    for f in
        select p.oid from pg_proc p
        where p.pronamespace = 'headgate'::regnamespace and p.prokind = 'f' and (p.proname ~ '_1$' or p.prorettype = 'trigger'::regtype)
    loop
        execute format('alter function %s set schema headgate_internal', f);
    end loop;
end $$;
