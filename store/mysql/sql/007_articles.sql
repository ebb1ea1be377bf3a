-- The procedures of the articles, by their own names, but exact.

-- check_velocity asks whether a key of a zone may pass, and records the attempt,
-- allowed or blocked, under its transaction id. One row.
drop procedure if exists check_velocity
//
create procedure check_velocity(p_zone_id int, p_bucket_key varchar(1024) character set utf8mb4 collate utf8mb4_bin)
modifies sql data sql security invoker
begin
    declare v_rate int;
    declare v_window, v_history bigint;
    select z.rate, z.`window`, greatest(1, z.history_days * 86400000000) into v_rate, v_window, v_history from headgate_zones z where z.id = p_zone_id;
    if v_rate is null then
        call headgate_fail(concat('zone: ', coalesce(p_zone_id, 'null'), ' is not in headgate_zones'));
    elseif p_bucket_key is null then
        call headgate_fail('bucket_key: is null');
    elseif length(p_bucket_key) > 512 then
        call headgate_fail(concat('bucket_key: is ', length(p_bucket_key), ' bytes long, at most 512 are allowed'));
    elseif locate(char(0 using utf8mb4), p_bucket_key) > 0 then
        call headgate_fail('bucket_key: contains a NUL byte');
    end if;
    call headgate_ask(1, concat('zone.', p_zone_id), p_bucket_key, 3, 0, 1000, v_rate * 1000, v_window * 1000000, 0, 0, v_history, 1000, 0, '', 0, 0, 0, 0);
    select 1 - @hg_g as blocked, @hg_entry as transaction_id, p_zone_id as zone_id, p_bucket_key as `key`, v_rate as rate, v_window as `window`;
end
//

-- request_token takes a token from a bucket of headgate_buckets, which is full
-- again at the first request after its period. One row: granted, 1 or 0;
-- remaining; retry_after, seconds until there is one, null for never (a bucket of
-- capacity 0); at, UTC.
drop procedure if exists request_token
//
create procedure request_token(p_id varchar(1024) character set utf8mb4 collate utf8mb4_bin)
modifies sql data sql security invoker
begin
    declare v_capacity bigint;
    declare v_period decimal(16, 6);
    select b.capacity, b.period into v_capacity, v_period from headgate_buckets b where b.id = p_id;
    if v_capacity is null then
        call headgate_fail(concat('bucket: "', coalesce(left(p_id, 60), 'null'), '" is not in headgate_buckets'));
    end if;
    call headgate_ask(1, 'request_token', p_id, 1, 0, 1000, v_capacity * 1000, v_period * 1000000, 9007199254740991, 0, 0, 1000, 0, '', 0, 0, 0, 0);
    select @hg_g as granted, greatest(0, v_capacity * 1000 - @hg_x) div 1000 as remaining,
        case when @hg_g then 0 when @hg_retry < 9007199254740991 then cast(cast(greatest(0, @hg_retry - @hg_clk) as decimal(26, 6)) / 1000000 as decimal(20, 6)) end as retry_after,
        cast('1970-01-01' + interval @hg_clk microsecond as datetime(6)) as at;
end
//
