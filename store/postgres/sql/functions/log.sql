-- headgate_internal.log_one_N decides one charge of a limit with a log, as people make it from SQL, without an id. Its
-- callers set how statements are planned: see headgate_internal.take_one_N. It locks the cell, sums up what has
-- expired, and writes the cell and one entry. It returns null, and has written nothing,
-- if the cell is not there, is of another law or unit, is blocked or to be healed, if the
-- refusal blocks it, or if the cost never passes: headgate_internal.apply_N decides then.
create or replace function headgate_internal.log_one_N(p_limit text, p_key text, params bigint[], p_cost bigint)
returns bigint[] language plpgsql volatile as $$
declare
    unit constant bigint := params[{limit.unit}];
    ceiling constant bigint := params[{limit.capacity}];
    step constant bigint := params[{limit.step}];
    history constant bigint := coalesce(params[{limit.history}], 0);
    need constant bigint := p_cost;
    clear constant boolean := false; carry constant bigint := 0; nolog constant boolean := false;
    b_law bigint; b_level bigint; b_prev bigint; b_at bigint; b_unit bigint; b_step bigint; b_empty bigint; b_block bigint;
    clock bigint; now bigint; x bigint; admitted boolean; retry bigint := 0; entry bigint := 0;
begin
    select e.law, e.level, e.prev, e.at, e.unit, e.step, e.empty_at, e.blocked_until
    into b_law, b_level, b_prev, b_at, b_unit, b_step, b_empty, b_block
    from headgate.cells e where e.limit_name = p_limit and e.key = p_key for no key update;
    clock := (extract(epoch from clock_timestamp()) * 1000000)::bigint;
    now := greatest(clock, b_at);
    if b_law is distinct from 3 or b_unit <> unit or b_block > now or b_at - clock > 2000000 or need > ceiling then
        return null;
    end if;

    {{template "use log" (as "limit" "p_limit" "key" "p_key")}}
    admitted := x <= ceiling - need;
    if admitted then
        x := x + need;
        b_prev := case when now >= b_empty then 0 else b_prev end;
        b_level := x; b_at := now; b_step := step; b_empty := greatest(b_empty, now + step);
        update headgate.cells e set level = x, prev = b_prev, at = now, step = b_step, empty_at = b_empty
        where e.limit_name = p_limit and e.key = p_key;
        if x > ceiling - least(unit, ceiling) then
            {{template "retry log" (as "limit" "p_limit" "key" "p_key" "over" "x - (ceiling - least(unit, ceiling))")}}
        end if;
    elsif params[{limit.block}] > 0 then
        return null;
    else
        {{template "retry log" (as "limit" "p_limit" "key" "p_key" "over" "x - (ceiling - need)")}}
        retry := greatest({{template "no longer" (as "whole" "false" "retry" "retry" "empty" "b_empty")}}, b_block);
    end if;
    if admitted or history > 0 then
        {{template "record" (as "limit" "p_limit" "key" "p_key" "id" "''" "step" "step" "history" "history" "cost" "need")}}
    end if;
    return array[{out: granted => admitted::int, law => 3, level => b_level, prev => b_prev, at => b_at, unit => unit,
        empty_at => b_empty, blocked_until => b_block, used => x, clock => clock, retry_at => retry, entry => entry,
        status => 0, start_at => 0, step => b_step}];
end $$;
