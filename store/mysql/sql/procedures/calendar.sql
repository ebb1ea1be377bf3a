-- The windows of a calendar in a time zone: calendar.go, statement by
-- statement. Local times are written down as seconds, the local date and time
-- read as if it were UTC. CONVERT_TZ is given both zones, so that the session's
-- time_zone has no say; FROM_UNIXTIME and UNIX_TIMESTAMP would let it.

-- headgate_starts_at_N returns the first instant, in seconds, at which the clocks
-- of a zone show a local time or a later one. The offset is the one before the change that
-- is near, if there is one, or the one after it; offsets change at whole minutes.
create procedure headgate_starts_at_N(in shown bigint, in zone varchar(64) character set utf8mb4, out instant bigint)
    reads sql data sql security invoker
begin
    declare epoch datetime default '1970-01-01 00:00:00';
    declare low, high, middle, before_, after_ bigint;
    -- No zone is further from UTC, no change of one is larger.
    declare near int default 93600;
    set low = 2 * shown - timestampdiff(second, epoch, convert_tz(timestampadd(second, shown, epoch), '+00:00', zone)) - near, high = low + 2 * near;
    set before_ = timestampdiff(second, epoch, convert_tz(timestampadd(second, low, epoch), '+00:00', zone)) - low,
        after_ = timestampdiff(second, epoch, convert_tz(timestampadd(second, high, epoch), '+00:00', zone)) - high;
    while before_ <> after_ and high - low > 60 do -- high is where the offset has changed
        set middle = (low + high) div 120 * 60;
        if timestampdiff(second, epoch, convert_tz(timestampadd(second, middle, epoch), '+00:00', zone)) - middle = before_ then
            set low = middle;
        else
            set high = middle;
        end if;
    end while;
    set instant = if(before_ = after_ or shown - before_ < high, shown - before_, greatest(high, shown - after_));
end
//

-- headgate_full_hour_N returns the instant next to u, both in seconds, at or
-- before it (dir -1) or at or after it (dir 1), at which the clocks of a zone
-- show a full hour. Offsets are whole minutes.
create procedure headgate_full_hour_N(in u bigint, in dir int, in zone varchar(64) character set utf8mb4, out instant bigint)
    reads sql data sql security invoker
begin
    declare epoch datetime default '1970-01-01 00:00:00';
    declare shown, away bigint;
    set u = if(dir < 0, u - u mod 60, u + 59 - (u + 59) mod 60);
    set shown = timestampdiff(second, epoch, convert_tz(timestampadd(second, u, epoch), '+00:00', zone));
    set away = if(dir < 0, -(shown mod 3600), 3600 - shown mod 3600) mod 3600;
    -- A subtraction, unless the offset changes in between.
    if timestampdiff(second, epoch, convert_tz(timestampadd(second, u + away, epoch), '+00:00', zone)) = shown + away then
        set u = u + away;
    else
        while shown mod 3600 <> 0 do
            set u = u + 60 * dir;
            set shown = timestampdiff(second, epoch, convert_tz(timestampadd(second, u, epoch), '+00:00', zone));
        end while;
    end if;
    set instant = u;
end
//

-- headgate_bounds_N returns four ascending window boundaries with now_us between
-- the second and the third, all in microseconds since 1970.
create procedure headgate_bounds_N(
    in calendar varchar(8) character set utf8mb4 collate utf8mb4_bin,
    in zone varchar(64) character set utf8mb4 collate utf8mb4_bin,
    in now_us bigint, out b0 bigint, out b1 bigint, out b2 bigint, out b3 bigint)
    reads sql data sql security invoker
begin
    declare epoch datetime default '1970-01-01 00:00:00';
    declare now_s bigint default now_us div 1000000;
    declare far, shown datetime;
    declare i, k int;
    if calendar is null or calendar not in ('hour', 'day', 'week', 'month') then
        call headgate_fail_N(concat('period: "', coalesce(calendar, 'null'), '" is no unit of the calendar: hour, day, week, month'));
    elseif zone is null or now_us is null then
        call headgate_fail_N('zone and time: neither may be null');
    end if;
    if zone = 'UTC' then
        set zone = '+00:00'; -- needs no tables
    elseif zone <> '+00:00' then
        call headgate_check_zone_N(zone);
        -- Outside the range of a TIMESTAMP, CONVERT_TZ returns what it is
        -- given: before 1970, and after 2038 on most servers.
        set far = timestampadd(day, 95, timestampadd(second, now_s, epoch));
        if now_s < 86400 * 65 or convert_tz(far, '+00:00', '+01:00') = far then
            call headgate_fail_N(concat('time zone: this server cannot convert times near ', timestampadd(second, now_s, epoch), ' to ', zone));
        end if;
    end if;
    if calendar = 'hour' then
        call headgate_full_hour_N(now_s, -1, zone, b1);
        call headgate_full_hour_N(b1 - 1, -1, zone, b0);
        call headgate_full_hour_N(now_s + 1, 1, zone, b2);
        call headgate_full_hour_N(b2 + 1, 1, zone, b3);
    else
        -- Start a unit too late and step back until the second is not after
        -- now: a clock put back at 00:01 shows the old day again.
        set shown = convert_tz(timestampadd(second, now_s, epoch), '+00:00', zone);
        set i = case calendar
            when 'day' then timestampdiff(day, epoch, shown)
            when 'week' then (timestampdiff(day, epoch, shown) + 3) div 7 -- the epoch was a Thursday
            else timestampdiff(month, epoch, shown) end;
        set k = i + 4;
        repeat
            set k = k - 1;
            set b3 = b2;
            set b2 = b1;
            set b1 = b0;
            call headgate_starts_at_N(timestampdiff(second, epoch, case calendar
                when 'day' then timestampadd(day, k, epoch)
                when 'week' then timestampadd(day, k * 7 - 3, epoch)
                else timestampadd(month, k, epoch) end), zone, b0);
        until b3 is not null and b1 <= now_s end repeat;
    end if;
    set b0 = b0 * 1000000, b1 = b1 * 1000000, b2 = b2 * 1000000, b3 = b3 * 1000000;
end
//
