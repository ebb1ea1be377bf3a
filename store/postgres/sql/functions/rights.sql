-- Only the roles may execute the functions. Public keeps EXECUTE on the functions that the views call: one
-- reads no table, and the other one tells what headgate.take_all does.
-- Rights are taken only where they are there, since this changes the function's row, and with it what another
-- transaction may be reading.
do $$ declare f regprocedure; given record; begin
    for f in
        select p.oid from headgate_internal.functions_N() o join pg_proc p on p.oid = o.f
        where p.proname !~ '^(used|capacity)_at_' and exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a where a.grantee = 0)
    loop
        execute format('revoke all on function %s from public', f);
    end loop;
    for given in
        select g.role, g.name from headgate.granted g join pg_roles r on r.rolname = g.name
        where exists (select from pg_namespace n, aclexplode(n.nspacl) a where n.nspname = 'headgate' and a.grantee = r.oid)
    loop
        perform headgate_internal.give_rights_N(given.role, given.name);
    end loop;
end $$;
