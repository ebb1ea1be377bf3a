-- headgate.take_one_N: one plain charge, in one round trip. One update grants it, if the
-- cell is there, is of the bucket law in the same unit and step, has had nothing returned,
-- is neither blocked nor ahead of the clock, and has room. Else one select says that the
-- cell of this kind has no room; else one insert makes the cell; all others are decided by
-- headgate.apply_N, in the same call.
--
-- The clock is read before the row is locked. If a charge that is granted had to wait for
-- its row, that clock is behind, which drains less: greatest(clock, at), for which it is
-- decided then, is after what the cell has. If the clock was set back meanwhile, the charge is
-- undone and made again. For a refusal the clock is read again.
--
-- The row is reached by the primary key, with a plan that is made once: a plan made while
-- the table was small would read all of it.
--
-- p_now    a test's time; 0: the server's clock
-- returns  of a charge that is granted clock, level, at, empty_at and blocked_until; else
--          the numbers of the outcome: see law.Numbers
create or replace function headgate.take_one_N(
    p_limit text, p_key text, p_anchor bigint, p_unit bigint, p_capacity bigint, p_step bigint, p_drain bigint,
    p_block bigint, p_cost bigint, p_now bigint)
returns bigint[] language plpgsql volatile
set plan_cache_mode = 'force_generic_plan' set enable_seqscan = off
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    clock bigint := case when p_now > 0 then p_now else (extract(epoch from clock_timestamp()) * 1000000)::bigint end;
    res bigint[];
begin
    {{template "take one" (as "granted" "array[case when p_now > 0 then clock else greatest(clock, c.at) end, c.level, c.at, c.empty_at, c.blocked_until]")}}
end $$;
