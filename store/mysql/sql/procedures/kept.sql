-- Limits of the catalog that other tables define, by their triggers: so the keys of check_velocity and
-- request_token can be inspected, reset and blocked by the name of a limit, as all others.

-- headgate_keep_N makes a limit of a name what another table says, and removes the one of its former
-- name; either name may be null. While it does, @hg_kept says so to the triggers of headgate_limits.
create procedure headgate_keep_N(in old_name varchar(64) character set utf8mb4 collate utf8mb4_bin,
    in new_name varchar(64) character set utf8mb4 collate utf8mb4_bin, in notation varchar(255) character set utf8mb4 collate utf8mb4_bin,
    in note text character set utf8mb4, in kept varchar(16) character set utf8mb4)
modifies sql data sql security invoker
begin
    declare exit handler for sqlexception begin
        set @hg_kept = null;
        resignal;
    end;
    set @hg_kept = 1;
    if not (old_name <=> new_name) then
        delete from headgate_limits where name = old_name and origin = kept;
    end if;
    if new_name is not null then
        insert into headgate_limits (name, rule, description, origin) values (new_name, notation, note, kept)
        on duplicate key update rule = notation, description = note, origin = kept;
    end if;
    set @hg_kept = null;
end
//

-- headgate_zone_changed keeps a limit for each zone of check_velocity: zone.ID.
create procedure headgate_zone_changed(in old_id int, in new_id int, in rate int, in window_seconds bigint, in history_days int,
    in note text character set utf8mb4)
modifies sql data sql security invoker
begin
    call headgate_keep_N(concat('zone.', old_id), concat('zone.', new_id), concat('sliding-log ', rate, '/', window_seconds, 's',
        if(history_days > 0, concat(' history ', history_days, 'd'), '')), note, 'zone');
end
//

-- headgate_bucket_name_N returns the name of the limit of a bucket of request_token: bucket.ID, or null
-- where the id cannot be a part of a name.
create procedure headgate_bucket_name_N(in id varchar(1024) character set utf8mb4 collate utf8mb4_bin,
    out name varchar(64) character set utf8mb4 collate utf8mb4_bin)
    deterministic contains sql sql security invoker
begin
    set name = if(id = '' or char_length(id) > 57 or id regexp '[^a-z0-9_.-]', null, concat('bucket.', id));
end
//

-- headgate_bucket_changed keeps a limit for each bucket of request_token.
create procedure headgate_bucket_changed(in old_id varchar(255) character set utf8mb4 collate utf8mb4_bin,
    in new_id varchar(255) character set utf8mb4 collate utf8mb4_bin, in capacity int unsigned, in refill_seconds decimal(16, 6))
modifies sql data sql security invoker
begin
    declare old_name, new_name varchar(64) character set utf8mb4 collate utf8mb4_bin;
    declare period varchar(32) character set utf8mb4 collate utf8mb4_bin;
    call headgate_bucket_name_N(old_id, old_name);
    call headgate_bucket_name_N(new_id, new_name);
    call headgate_format_period_N(refill_seconds * 1000000, period);
    call headgate_keep_N(old_name, new_name, if(capacity > 0, concat('fixed-window ', capacity, '/', period, ' from-first'), '0'), '', 'bucket');
end
//

-- headgate_check_kept refuses to change by hand a limit that another table defines: of a row that
-- changes, its name and what it was and is, as its origin.
create procedure headgate_check_kept(in name varchar(64) character set utf8mb4, in old_origin varchar(255) character set utf8mb4 collate utf8mb4_bin,
    in new_origin varchar(255) character set utf8mb4 collate utf8mb4_bin)
    deterministic contains sql sql security invoker
begin
    if @hg_kept is null then
        if 'zone' in (old_origin, new_origin) then
            call headgate_fail_N(concat('limit: "', name, '" is a zone of check_velocity; change headgate_zones'));
        elseif 'bucket' in (old_origin, new_origin) then
            call headgate_fail_N(concat('limit: "', name, '" is a bucket of request_token; change headgate_buckets'));
        end if;
    end if;
end
//
