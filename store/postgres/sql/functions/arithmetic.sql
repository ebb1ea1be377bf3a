-- headgate_internal.add_steps_N, headgate_internal.after_N and headgate_internal.grain_N are the functions of these
-- names in package law.
create or replace function headgate_internal.add_steps_N(t bigint, steps bigint, step bigint) returns bigint
language sql immutable as $$
    select case when t >= 9007199254740991 or steps > (9007199254740991 - t) / step
        then 9007199254740991 else t + steps * step end
$$;

create or replace function headgate_internal.after_N(
    t bigint, credits bigint, anchor bigint, drain bigint, step bigint, b0 bigint, b1 bigint, b2 bigint, b3 bigint)
returns bigint language sql immutable as $$
    select case
        when anchor < 2 then headgate_internal.add_steps_N(case when anchor = 1 then t - t % step else t end,
            (credits + drain - 1) / drain, step)
        when b0 > t then b0 when b1 > t then b1 when b2 > t then b2 else b3 end
$$;

create or replace function headgate_internal.grain_N(step bigint) returns bigint language sql immutable as $$
    select case when step % ((step + 1048575) / 1048576) <> 0 and step % 1000000 = 0
        then step / 1000000 else (step + 1048575) / 1048576 end
$$;
