-- Limits that have as many keys as they may.
--
-- While a limit is sharing, a key without a cell is charged to the one that the limit's
-- new keys share. That is exact for each key because it is covered by one cell at a
-- time: its own cell goes only when nothing in it counts, none is made while the limit
-- shares, and the period of sharing ends when nothing in the shared cell counts.
--
-- So whether the limit shares must not change while a cell is being made. A transaction
-- locks the limit's room for key share before it makes a cell; many can at once. One
-- that begins or ends a period locks the room for update, which waits for all of them.
--
-- When a limit is flooded, cells are made without a gap, and the lock for update would
-- wait for ever. So closing is set first, and for a second or so transactions that make
-- cells take a lock that queues behind the one for update.
--
-- Rooms are locked before cells, in order of the limits. The lock for update waits no
-- longer than deadlocks take to be found.

-- headgate.make_room_N looks after cells that are missing while a limit has a maximum: it
-- returns 0 for each cell that may be made, for as long as the transaction lasts, or what headgate.apply_N
-- answers about it: the generation that its limit shares, -1 for a shared cell.
--
-- p_limits, p_keys, p_modes  as headgate.apply_N has them
-- p_missing                  which of them were missing
create or replace function headgate.make_room_N(p_limits text[], p_keys text[], p_modes smallint[], p_missing int[])
returns bigint[] language plpgsql volatile as $$
declare
    now constant bigint := (extract(epoch from clock_timestamp()) * 1000000)::bigint;
    answer bigint[] := array_fill(0::bigint, array[cardinality(p_limits)]);
    names text[] := array(select distinct p_limits[u.i] collate "C" from unnest(p_missing) u(i) where p_modes[u.i] = 2 order by 1);
    sharing text[] := '{}';
    name text; since bigint; i int; generation bigint;
begin
    foreach name in array names loop
        loop
            if (select r.closing from headgate.rooms r where r.limit_name = name) > now then
                perform headgate.stand_in_line_N(name);
            end if;
            select r.since into since from headgate.rooms r where r.limit_name = name for key share;
            exit when found or not headgate.open_room_N(name);
        end loop;
        if since > 0 then
            sharing := sharing || name;
        end if;
    end loop;

    -- A shared cell is missing when its period is over, or somebody has deleted it.
    if 5 = any (p_modes) then
        perform from unnest(p_missing) u(i) where p_modes[u.i] = 5
            and (select true from headgate.rooms r where r.limit_name = p_limits[u.i] and r.since > 0 for key share);
    end if;

    -- Now none of these limits begins or ends to share; what was missing may be there.
    for i, generation in
        select u.i, case when p_modes[u.i] >= 4 then case when headgate.is_shared_N(p_limits[u.i], p_keys[u.i]) then 0 else -1 end
            else (select r.generation from headgate.rooms r where r.limit_name = p_limits[u.i] and r.since > 0) end
        from unnest(p_missing) u(i)
        where (p_modes[u.i] <> 2 or p_limits[u.i] = any (sharing))
          and (select true from headgate.cells e where e.limit_name = p_limits[u.i] and e.key = p_keys[u.i]) is null
    loop
        answer[i] := coalesce(generation, 0);
    end loop;
    return answer;
end $$;

-- headgate.is_shared_N reports whether a key is that of the cell that a limit's new keys share.
create or replace function headgate.is_shared_N(p_limit text, p_key text) returns boolean language plpgsql volatile as $$
begin
    return (select r.since > 0 and p_key = 'headgate:shared:' || r.generation from headgate.rooms r where r.limit_name = p_limit) is true;
end $$;

-- headgate.stand_in_line_N waits behind a transaction that is about to begin or end a period,
-- but no longer than that one waits itself: the first in line may be one that stays open.
create or replace function headgate.stand_in_line_N(p_limit text) returns void language plpgsql volatile as $$
begin
    if current_setting('lock_timeout') <> '0' then -- the caller has said how long to wait
        perform from headgate.rooms r where r.limit_name = p_limit for no key update;
        return;
    end if;
    begin
        perform headgate.lock_room_N(p_limit);
    exception when lock_not_available then
        null;
    end;
end $$;

create or replace function headgate.lock_room_N(p_limit text) returns void
language plpgsql volatile set lock_timeout = '900ms' set search_path = pg_catalog, pg_temp as $$
begin
    perform from headgate.rooms r where r.limit_name = p_limit for no key update;
end $$;

-- headgate.open_room_N makes the room of a limit, and returns true if it is there now. It is
-- not if a transaction that has made it stays open: nobody can see it before that ends.
-- Then it has locked the settings, and as long as it holds that lock no limit begins to
-- share.
create or replace function headgate.open_room_N(p_limit text) returns boolean language plpgsql volatile as $$
begin
    if current_setting('lock_timeout') <> '0' then -- the caller has said how long to wait
        insert into headgate.rooms (limit_name) values (p_limit) on conflict do nothing;
        return true;
    end if;
    for i in 1 .. 2 loop
        begin
            perform headgate.add_room_N(p_limit);
            return true;
        exception when lock_not_available then
            null;
        end;
        perform from headgate.settings s for key share; -- and once more: it may have been there by then
    end loop;
    return false;
end $$;

create or replace function headgate.add_room_N(p_limit text) returns void
language plpgsql volatile set lock_timeout = '50ms' set search_path = pg_catalog, pg_temp as $$
begin
    insert into headgate.rooms (limit_name) values (p_limit) on conflict do nothing;
end $$;

-- headgate.set_max_keys_N sets how many keys each limit may have that says nothing of its
-- own: below 0 for any number. It returns what was set before, null for nothing.
create or replace function headgate.set_max_keys_N(p_max bigint) returns bigint
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    was bigint;
begin
    if p_max is null or p_max = 0 then
        perform headgate.fail_N(format('p_max: is %s; it must be above 0, or below 0 for any number of keys', coalesce(p_max::text, 'null')));
    end if;
    select s.max_keys into was from headgate.settings s for no key update;
    if p_max > 0 then
        insert into headgate.settings (max_keys) values (p_max)
        on conflict (only_one) do update set max_keys = excluded.max_keys where settings.max_keys <> excluded.max_keys;
    elsif was > 0 then -- the row goes at a count, when no limit is sharing any more
        update headgate.settings set max_keys = 0;
    end if;
    return was;
end $$;

-- headgate.set_own_max_keys_N does that for single limits. It fails with 55P03 if a
-- transaction that has made the room of one of them, or stood in line for it, stays open.
create or replace function headgate.set_own_max_keys_N(p_limits text[], p_max bigint[]) returns void
language plpgsql volatile set lock_timeout = '900ms' set search_path = pg_catalog, pg_temp as $$
begin
    loop
        perform from headgate.settings s for key share;
        exit when found;
        insert into headgate.settings (max_keys) values (0) on conflict do nothing;
    end loop;
    insert into headgate.rooms (limit_name, max_keys)
    select u.l, u.m from unnest(p_limits, p_max) u(l, m) order by u.l collate "C"
    on conflict (limit_name) do update set max_keys = excluded.max_keys where rooms.max_keys <> excluded.max_keys;
end $$;

-- headgate.maxima_N returns what headgate.set_max_keys_N has set, 0 for any number, and the
-- smallest maximum that a limit has; null if there is none.
create or replace function headgate.maxima_N(out max_keys bigint, out smallest bigint)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    select s.max_keys into maxima_N.max_keys from headgate.settings s;
    smallest := least(nullif(maxima_N.max_keys, 0), (select min(r.max_keys) from headgate.rooms r where r.max_keys > 0));
end $$;

-- headgate.all_aware_N reports whether every transaction that is open has begun since the
-- settings were written, or has ended: one that has not seen them makes cells without
-- asking.
create or replace function headgate.all_aware_N() returns boolean language plpgsql volatile as $$
declare
    setting headgate.settings; open_ text[];
begin
    if (select s.unaware from headgate.settings s) = '{}' then
        return true;
    end if;
    select * into setting from headgate.settings for no key update;
    if not found or setting.written_at = transaction_timestamp() then -- it was this one
        return false;
    end if;
    open_ := array(select distinct l.virtualtransaction from pg_locks l
        where l.granted and (l.pid is null -- it was prepared
            or l.pid <> pg_backend_pid() and l.pid in (select a.pid from pg_stat_activity a join pg_database d on d.oid = a.datid where d.datname = current_database())));
    if setting.unaware is not null then
        open_ := array(select u from unnest(setting.unaware) u where u = any (open_));
    end if;
    update headgate.settings set unaware = open_ where unaware is distinct from open_;
    return open_ = '{}';
end $$;

-- headgate.count_keys_N counts the keys of each limit that has a maximum, but not those of
-- which the last count took long and was made not long ago. A count of few keys never took
-- long: if it did, the machine was busy, and that is when a flood must not be missed. action is 1 for a limit
-- that is to begin to share, -1 for one that may end it, else 0. It returns no row
-- if there is no maximum.
create or replace function headgate.count_keys_N(out limit_name text, out keys bigint, out max_keys bigint, out action int)
returns setof record language plpgsql volatile
set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    aware boolean; most bigint; r record; begun bigint; n bigint;
    unused text[] := '{}';
    cheap constant bigint := 50000; -- of time, in microseconds
    slow constant bigint := 3; -- for a key
    took bigint;
begin
    select s.max_keys into most from headgate.settings s;
    if not found then
        return;
    end if;
    aware := headgate.all_aware_N();
    for r in
        select o.limit_name, o.generation, o.since, coalesce(nullif(o.max_keys, 0), most) as most, k.keys, k.counted_at, k.took
        from headgate.rooms o left join headgate.key_counts k on k.limit_name = o.limit_name order by o.limit_name
    loop
        begun := (extract(epoch from clock_timestamp()) * 1000000)::bigint;
        took := least(r.took, r.keys * slow);
        continue when r.most = 0 and r.since = 0
            or took > cheap and begun - r.counted_at < took * case when r.keys < r.most / 2 then 20 else 5 end;
        n := greatest(0, (select count(*) from (select from headgate.cells c where c.limit_name = r.limit_name limit coalesce(nullif(r.most, 0), 0) + 1) x)
            - case when r.since > 0 then 1 else 0 end);
        if n = 0 and r.generation = 0 then -- names of limits may come from outside
            unused := unused || r.limit_name;
        end if;
        insert into headgate.key_counts (limit_name, keys, counted_at, took)
        values (r.limit_name, n, begun, (extract(epoch from clock_timestamp()) * 1000000)::bigint - begun)
        on conflict (limit_name) do update set keys = excluded.keys, counted_at = excluded.counted_at, took = excluded.took;
        limit_name := r.limit_name; keys := n; max_keys := r.most;
        action := case when r.since = 0 and aware and n >= r.most then 1
            when r.since > 0 and (r.most = 0 or n < r.most - r.most / 20) and headgate.shared_is_empty_N(r.limit_name, r.generation) then -1
            else 0 end;
        return next;
    end loop;
    -- Last of all, since from here on their new keys wait for the end of this transaction.
    delete from headgate.rooms o where o.limit_name = any (array(
        select l.limit_name from headgate.rooms l where l.limit_name = any (unused) and l.generation = 0
          and (select true from headgate.cells c where c.limit_name = l.limit_name limit 1) is null
        for update skip locked));
    delete from headgate.key_counts k where k.keys = 0 and (select true from headgate.rooms o where o.limit_name = k.limit_name) is null;
    perform from headgate.settings s where s.max_keys = 0 for update skip locked;
    if found then -- locked, so no limit begins to share
        delete from headgate.settings s where s.max_keys = 0
            and not exists (select from headgate.rooms o where o.since > 0 or o.max_keys > 0);
    end if;
end $$;

-- headgate.shared_is_empty_N reports whether nothing in a shared cell counts any more.
create or replace function headgate.shared_is_empty_N(p_limit text, p_generation bigint) returns boolean language plpgsql volatile as $$
declare
    now constant bigint := (extract(epoch from clock_timestamp()) * 1000000)::bigint;
begin
    return (select c.empty_at <= now and c.blocked_until <= now and c.at <= now from headgate.cells c
        where c.limit_name = p_limit and c.key = 'headgate:shared:' || p_generation) is not false;
end $$;

-- headgate.close_room_N makes transactions that make cells of a limit queue for a while.
-- It has to be committed before headgate.begin_sharing_N or headgate.end_sharing_N. As these do,
-- it fails with 55P03 if a lock is not to be had soon.
create or replace function headgate.close_room_N(p_limit text) returns void
language plpgsql volatile set lock_timeout = '900ms' set search_path = pg_catalog, pg_temp as $$
begin
    update headgate.rooms set closing = (extract(epoch from clock_timestamp()) * 1000000)::bigint + 1500000 where limit_name = p_limit;
end $$;

-- headgate.hold_room_N locks the room of a limit for update, and the settings if p_settings says so. It fails with 55P03
-- if that takes longer than 900 ms in total. lock_timeout is not enough: it bounds the wait for one holder, and other
-- transactions may lock the row for key share meanwhile, so SELECT FOR UPDATE could wait for one holder after another
-- without end. Therefore the function takes the lock behind which headgate.stand_in_line_N queues, and polls the rest.
--
-- The function must not use an exception clause. A row that is locked in a subtransaction and updated in its parent is not
-- marked as a change of the key. A transaction with an older snapshot could then lock the old version for key share, and
-- make a key while the limit shares.
create or replace function headgate.hold_room_N(p_limit text, p_settings boolean) returns void language plpgsql volatile as $$
declare
    last constant timestamptz := clock_timestamp() + interval '900 milliseconds';
    alone boolean;
begin
    perform from headgate.rooms o where o.limit_name = p_limit for no key update;
    if not found then
        return;
    end if;
    loop
        alone := true;
        if p_settings then
            perform from headgate.settings s for update skip locked;
            alone := found or not exists (select from headgate.settings);
        end if;
        if alone then
            perform from headgate.rooms o where o.limit_name = p_limit for update skip locked;
            exit when found;
        end if;
        if clock_timestamp() > last then
            raise exception using errcode = '55P03', message = format('transactions that make keys of %s are open', p_limit);
        end if;
        perform pg_sleep(0.005);
    end loop;
end $$;

-- headgate.begin_sharing_N lets new keys of a limit share a cell, which it makes. It fails
-- with 55P03 if transactions that make cells of the limit do not end soon.
create or replace function headgate.begin_sharing_N(p_limit text) returns boolean
language plpgsql volatile set lock_timeout = '900ms' set search_path = pg_catalog, pg_temp as $$
declare
    r headgate.rooms; most bigint;
begin
    perform headgate.hold_room_N(p_limit, true); -- the settings too: see headgate.open_room_N
    select s.max_keys into most from headgate.settings s where s.unaware = '{}';
    select * into r from headgate.rooms o where o.limit_name = p_limit;
    if r.since is distinct from 0 or most is null or coalesce(nullif(r.max_keys, 0), most) = 0 then
        return false; -- another one was first
    end if;
    update headgate.rooms o
    set generation = o.generation + 1, since = (extract(epoch from clock_timestamp()) * 1000000)::bigint, closing = 0
    where o.limit_name = p_limit;
    insert into headgate.cells (limit_name, key) values (p_limit, 'headgate:shared:' || r.generation + 1);
    return true;
end $$;

-- headgate.end_sharing_N ends it, if nothing in the shared cell counts any more. That there
-- is room has been counted by the caller.
create or replace function headgate.end_sharing_N(p_limit text) returns boolean
language plpgsql volatile set lock_timeout = '900ms' set search_path = pg_catalog, pg_temp as $$
declare
    r headgate.rooms; own text;
begin
    perform headgate.hold_room_N(p_limit, false);
    select * into r from headgate.rooms o where o.limit_name = p_limit;
    own := 'headgate:shared:' || r.generation;
    perform from headgate.cells c where c.limit_name = p_limit and c.key = own for update skip locked;
    if not found and exists (select from headgate.cells c where c.limit_name = p_limit and c.key = own) -- somebody holds it
        or coalesce(r.since, 0) = 0 or not headgate.shared_is_empty_N(p_limit, r.generation) then
        return false;
    end if;
    delete from headgate.cells c where c.limit_name = p_limit and c.key = own;
    update headgate.rooms o set since = 0, closing = 0 where o.limit_name = p_limit;
    return true;
end $$;

-- headgate.count_all_N is what a sweep by hand does about full limits.
create or replace function headgate.count_all_N() returns void language plpgsql volatile as $$
declare
    r record;
begin
    for r in select * from headgate.count_keys_N() k where k.action <> 0 loop
        if r.action = 1 then
            perform headgate.begin_sharing_N(r.limit_name);
        else
            perform headgate.end_sharing_N(r.limit_name);
        end if;
    end loop;
exception when lock_not_available then
    null; -- the next sweep tries again
end $$;

-- headgate.fullness_N shows how full the limits are that have a maximum: what was counted
-- last. Those with less than a hundredth of their keys are left out.
create or replace function headgate.fullness_N()
returns table (limit_name text, keys bigint, counted_at timestamptz, max_keys bigint, sharing boolean, generation bigint, sharing_since timestamptz)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
    return query
    select r.limit_name, coalesce(k.keys, 0), headgate.instant_N(coalesce(k.counted_at, r.since)), coalesce(nullif(r.max_keys, 0), s.max_keys),
        r.since > 0, r.generation, case when r.since > 0 then headgate.instant_N(r.since) end
    from headgate.settings s, headgate.rooms r left join headgate.key_counts k on k.limit_name = r.limit_name
    where r.since > 0 or k.keys > 0 and k.keys >= coalesce(nullif(r.max_keys, 0), s.max_keys) / 100
    order by r.limit_name;
end $$;

-- headgate.set_max_keys is headgate.set_max_keys_N for people.
create or replace function headgate.set_max_keys(p_max bigint) returns bigint
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    return headgate.set_max_keys_N(p_max);
end $$;

-- headgate.fullness is headgate.fullness_N for people.
create or replace function headgate.fullness()
returns table (limit_name text, keys bigint, counted_at timestamptz, max_keys bigint, sharing boolean, generation bigint, sharing_since timestamptz)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    return query select f.* from headgate.fullness_N() f;
end $$;
