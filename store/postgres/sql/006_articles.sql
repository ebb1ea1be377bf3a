-- The functions of the articles, by their own names, but exact: fractions are
-- kept, a refusal costs nothing, the first use is as safe as the hundredth, at
-- any isolation level. They are made in schema public only where no function of
-- somebody else's has these names.

-- Use cases with a rate for a moving window, for check_velocity.
create table if not exists headgate.zones (
    id             int primary key,
    description    text not null default '',
    rate           int not null check (rate > 0),
    window_seconds bigint not null check (window_seconds > 0 and window_seconds <= 316224000),
    history        interval not null default '30 days' check (history >= '0' and history <= '3660 days')
);

-- rate_limiting_request takes one token: refill_per_sec of them come each
-- second, the bucket holds window_seconds' worth. It returns what is left, or
-- -1 when refused.
create or replace function public.rate_limiting_request(rate_id text, refill_per_sec int default 2, window_seconds int default 60)
returns int language plpgsql volatile set plan_cache_mode = 'force_generic_plan' as $$
declare
    res bigint[]; rate bigint[]; c headgate.compiled;
begin
    if refill_per_sec is null or refill_per_sec <= 0 then
        perform headgate.fail(format('refill_per_sec: is %s; it must be above 0', coalesce(refill_per_sec::text, 'null')));
    elsif window_seconds is null or window_seconds <= 0 then
        perform headgate.fail(format('window_seconds: is %s; it must be above 0', coalesce(window_seconds::text, 'null')));
    elsif rate_id is null then
        perform headgate.fail('rate_id: is null');
    end if;
    rate := headgate.compile_rate(refill_per_sec, 1000000, refill_per_sec::numeric * window_seconds);
    c.params := array[1, 0]::bigint[] || rate || array[0, 0]::bigint[];
    res := headgate.ask(1, 'rate_limiting_request', c, rate_id, rate[1], 0, '');
    if res[1] = 0 then
        return -1;
    end if;
    return least((rate[2] - res[9]) / rate[1], 2147483647);
end $$;
comment on function public.rate_limiting_request(text, int, int) is 'made by headgate';

create or replace function public.rate_limiting_token_bucket_request(rate_id text, refill_per_sec int default 2, window_seconds int default 60)
returns int language sql volatile as $$ select public.rate_limiting_request(rate_id, refill_per_sec, window_seconds) $$;
comment on function public.rate_limiting_token_bucket_request(text, int, int) is 'made by headgate';

-- check_velocity asks whether a key of a zone may pass, and records the
-- attempt, allowed or blocked, under its transaction id.
create or replace function public.check_velocity(zone int, bucket_key text)
returns table (blocked int, transaction_id bigint, zone_id int, key text, rate int, "window" bigint)
language plpgsql volatile set plan_cache_mode = 'force_generic_plan' as $$
#variable_conflict use_column
declare
    z headgate.zones; c headgate.compiled; res bigint[];
begin
    select * into z from headgate.zones where id = zone;
    if not found then
        perform headgate.fail(format('zone: %s is not in headgate.zones', coalesce(zone::text, 'null')));
    elsif bucket_key is null then
        perform headgate.fail('bucket_key: is null');
    end if;
    c.params := array[3, 0, 1000, z.rate::bigint * 1000, z.window_seconds * 1000000, 0, 0,
        greatest(1, extract(epoch from z.history) * 1000000)::bigint];
    res := headgate.ask(1, 'zone.' || z.id, c, bucket_key, 1000, 0, '');
    return query select 1 - res[1]::int, res[12], z.id, bucket_key, z.rate, z.window_seconds;
end $$;
comment on function public.check_velocity(int, text) is 'made by headgate';
