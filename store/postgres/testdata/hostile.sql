-- What somebody hostile puts into the schema EVIL, for a session whose search_path
-- leads there: operators, functions, types and casts. Each counts that it was called,
-- by a sequence since an error rolls back everything else, and raises an error.
set search_path = pg_catalog, pg_temp;
create schema if not exists EVIL;
create schema if not exists seen;
create sequence if not exists seen.calls;
grant usage on schema EVIL, seen to public;
grant usage on sequence seen.calls to public;

create function EVIL.note(what pg_catalog.text) returns pg_catalog.bool language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    perform nextval('seen.calls');
    raise exception 'hostile: % was called by %', what, current_user using errcode = 'HG666';
end $$;

do $do$
declare
    made int := 0;
    -- The types that stand in our statements, by themselves and in pairs.
    single text[] := '{int2,int4,int8,numeric,float8,text,bool,interval,timestamptz,timestamp,int2[],int4[],int8[],numeric[],text[],bool[]}';
    wide text[] := single || '{float4,varchar,bpchar,name,oid,tid,bytea,date,"\"char\"",regtype,bit,timestamptz[]}'::text[];
    pairs text[] := '{+,-,*,/,%,^,||,=,<>,<,>,<=,>=,~,!~,~~,!~~,@>,&&}';
    names text[]; name text; op record; f record; l text; r text; result text;
begin
    -- The operators that there are, alike: for a path that comes to EVIL first.
    for op in select o.oid, o.oprname, format_type(o.oprleft, null) l, format_type(o.oprright, null) r, format_type(o.oprresult, null) result, o.oprleft
        from pg_operator o where o.oprnamespace = 'pg_catalog'::regnamespace
    loop
        begin
            execute format($f$create function EVIL.same_%s(%s %s) returns %s language plpgsql as $b$begin perform EVIL.note('operator %s(%s,%s)'); return null; end$b$$f$,
                op.oid, case when op.oprleft <> 0 then op.l || ',' else '' end, op.r, op.result, replace(op.oprname, '%', '%%'), op.l, op.r);
            execute format($f$create operator EVIL.%s (%s rightarg = %s, function = EVIL.same_%s)$f$,
                op.oprname, case when op.oprleft <> 0 then 'leftarg = ' || op.l || ',' else '' end, op.r, op.oid);
            made := made + 1;
        exception when others then null; -- of internal types
        end;
    end loop;

    -- The operators that there are not, for other types: these match best wherever EVIL
    -- stands in the path.
    foreach l in array wide loop
        foreach r in array wide loop
            continue when not (l = any (single) or r = any (single));
            foreach result in array '{bool,left}'::text[] loop
                execute format($f$create function EVIL.best_%s(%s, %s) returns %s language plpgsql as $b$begin perform EVIL.note('a function of an operator(%s,%s)'); return null; end$b$$f$,
                    result, l, r, case result when 'bool' then 'bool' else l end, l, r);
            end loop;
            foreach name in array pairs loop
                begin
                    execute format('create operator EVIL.%s (leftarg = %s, rightarg = %s, function = EVIL.best_%s)',
                        name, l, r, case when name in ('+', '-', '*', '/', '%', '^', '||') then 'left' else 'bool' end);
                    made := made + 1;
                exception when duplicate_function then null;
                end;
            end loop;
        end loop;
    end loop;

    -- The functions and aggregates that there are, alike.
    for f in select p.oid, p.proname, pg_get_function_identity_arguments(p.oid) args, pg_get_function_result(p.oid) result
        from pg_proc p where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind <> 'p'
    loop
        begin
            execute format($f$create function EVIL.%I(%s) returns %s language plpgsql as $b$begin perform EVIL.note('function %s(%s)'); return%s; end$b$$f$,
                f.proname, f.args, f.result, f.proname, f.args, case when f.result like 'SETOF%' or f.result like 'TABLE%' or f.result = 'void' then '' else ' null' end);
            made := made + 1;
        exception when others then null; -- of internal types
        end;
    end loop;

    -- Functions for other types, by the names that our schema calls.
    names := array(select distinct p.proname from pg_proc p where p.pronamespace = 'pg_catalog'::regnamespace and p.proname = any ('NAMES'::text[]));
    foreach name in array names loop
        foreach l in array wide loop
            begin
                execute format($f$create function EVIL.%I(%s) returns text language plpgsql as $b$begin perform EVIL.note('function %s(%s)'); return null; end$b$$f$, name, l, name, l);
                made := made + 1;
            exception when duplicate_function then null;
            end;
            foreach r in array single loop
                begin
                    execute format($f$create function EVIL.%I(%s, %s) returns text language plpgsql as $b$begin perform EVIL.note('function %s(%s,%s)'); return null; end$b$$f$, name, l, r, name, l, r);
                    made := made + 1;
                exception when duplicate_function then null;
                end;
            end loop;
        end loop;
    end loop;

    -- Types by the names of ours, and casts to a type of EVIL's own, with its operators.
    foreach name in array array['text', 'timestamptz', 'timestamp', 'name', 'oid', 'tid', 'int2', 'int4', 'int8', 'bool', 'numeric', 'interval',
        'regclass', 'regtype', 'regnamespace', 'float8', 'bigint', 'integer', 'smallint', 'boolean'] loop
        execute format('create domain EVIL.%I as pg_catalog.text check (EVIL.note(''type %s''))', name, name);
    end loop;
    execute 'create type EVIL.mine as enum (''a'')';
    foreach l in array '{int4,int8,numeric,text,bool,interval}'::text[] loop
        execute format($f$create function EVIL.to_mine(%s) returns EVIL.mine language plpgsql as $b$begin perform EVIL.note('cast of %s'); return null; end$b$$f$, l, l);
        execute format('create cast (%s as EVIL.mine) with function EVIL.to_mine(%s) as implicit', l, l);
    end loop;
    execute $f$create function EVIL.of_mine(EVIL.mine, EVIL.mine) returns bool language plpgsql as $b$begin perform EVIL.note('operator of mine'); return null; end$b$$f$;
    foreach name in array pairs loop
        execute format('create operator EVIL.%s (leftarg = EVIL.mine, rightarg = EVIL.mine, function = EVIL.of_mine)', name);
    end loop;
    raise notice '% operators and functions', made;
end $do$;
