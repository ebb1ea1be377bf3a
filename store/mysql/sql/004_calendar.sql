-- Calendar windows. Times are UTC in DATETIME; no session's time zone matters.

-- The first instant at which the clocks of a zone show a local time or a later
-- one: where no change of the zone's offset is near, a subtraction, else the
-- minutes around are tried in turn.
drop procedure if exists headgate_starts_at
//
create procedure headgate_starts_at(shown datetime, zone varchar(64) character set utf8mb4, out instant datetime) no sql sql security invoker
begin
    declare near int default 26 * 60;
    declare guess, until_ datetime;
    set guess = convert_tz(shown, zone, '+00:00');
    if convert_tz(guess - interval near minute, '+00:00', zone) = shown - interval near minute
       and convert_tz(guess + interval near minute, '+00:00', zone) = shown + interval near minute then
        set instant = guess;
    else
        set instant = guess - interval near minute, until_ = guess + interval near minute;
        while instant <= until_ and convert_tz(instant, '+00:00', zone) < shown do
            set instant = instant + interval 1 minute;
        end while;
    end if;
end
//

-- Four ascending window boundaries with now, in microseconds, between the second
-- and the third.
drop procedure if exists headgate_bounds
//
create procedure headgate_bounds(calendar varchar(8) character set utf8mb4 collate utf8mb4_bin, zone varchar(64) character set utf8mb4 collate utf8mb4_bin, now_us bigint,
    out b0 bigint, out b1 bigint, out b2 bigint, out b3 bigint)
no sql sql security invoker
begin
    declare t, shown datetime(6) default '1970-01-01' + interval now_us microsecond;
    declare p, d0, d1, d2, d3, epoch datetime default '1970-01-01';
    declare i, offset_, before_, after_ int;
    if calendar is null or calendar not in ('hour', 'day', 'week', 'month') then
        call headgate_fail(concat('period: "', coalesce(calendar, 'null'), '" is not hour, day, week or month'));
    end if;
    call headgate_zone(zone);
    -- CONVERT_TZ leaves a time alone, without a word, that a TIMESTAMP cannot hold.
    if zone <> 'UTC' and convert_tz(t - interval 70 day, 'Asia/Kolkata', 'Asia/Kathmandu') = t - interval 70 day
       or zone <> 'UTC' and convert_tz(t + interval 70 day, 'Asia/Kolkata', 'Asia/Kathmandu') = t + interval 70 day then
        call headgate_fail('time zone: the server converts times from 1970 to 2038 only');
    end if;
    set zone = if(zone = 'UTC', '+00:00', zone);
    set shown = convert_tz(t, '+00:00', zone);
    if calendar = 'hour' then
        -- Hours are cut where the zone's clocks show a full one.
        set p = '1970-01-01' + interval (now_us div 60000000) minute, i = -240;
        while i <= 240 do
            if minute(convert_tz(p + interval i minute, '+00:00', zone)) = 0 then
                if p + interval i minute <= t then
                    set d0 = d1, d1 = p + interval i minute, d2 = null, d3 = null;
                elseif d2 is null then
                    set d2 = p + interval i minute;
                elseif d3 is null then
                    set d3 = p + interval i minute;
                end if;
            end if;
            set i = i + 1;
        end while;
    else
        set p = case calendar when 'day' then date(shown) + interval 1 day
            when 'week' then date(shown) + interval 7 - weekday(shown) day
            else date(shown) - interval day(shown) - 1 day + interval 1 month end;
        call headgate_starts_at(p, zone, d1);
        while d1 > t do
            set p = case calendar when 'day' then p - interval 1 day when 'week' then p - interval 7 day else p - interval 1 month end;
            call headgate_starts_at(p, zone, d1);
        end while;
        call headgate_starts_at(case calendar when 'day' then p - interval 1 day when 'week' then p - interval 7 day else p - interval 1 month end, zone, d0);
        call headgate_starts_at(case calendar when 'day' then p + interval 1 day when 'week' then p + interval 7 day else p + interval 1 month end, zone, d2);
        call headgate_starts_at(case calendar when 'day' then p + interval 2 day when 'week' then p + interval 14 day else p + interval 2 month end, zone, d3);
    end if;
    set b0 = timestampdiff(microsecond, epoch, d0), b1 = timestampdiff(microsecond, epoch, d1),
        b2 = timestampdiff(microsecond, epoch, d2), b3 = timestampdiff(microsecond, epoch, d3);
end
//
