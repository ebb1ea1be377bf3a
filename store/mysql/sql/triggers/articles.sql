-- Each zone of check_velocity and each bucket of request_token is a limit of the catalog: see
-- headgate_zone_changed and headgate_bucket_changed.

create trigger headgate_zones_after_insert after insert on headgate_zones for each row
call headgate_zone_changed(null, new.id, new.rate, new.window_seconds, new.history_days, new.description)
//

create trigger headgate_zones_after_update after update on headgate_zones for each row
call headgate_zone_changed(old.id, new.id, new.rate, new.window_seconds, new.history_days, new.description)
//

create trigger headgate_zones_after_delete after delete on headgate_zones for each row
call headgate_zone_changed(old.id, null, null, null, null, null)
//

create trigger headgate_buckets_after_insert after insert on headgate_buckets for each row
call headgate_bucket_changed(null, new.id, new.capacity, new.refill_seconds)
//

create trigger headgate_buckets_after_update after update on headgate_buckets for each row
call headgate_bucket_changed(old.id, new.id, new.capacity, new.refill_seconds)
//

create trigger headgate_buckets_after_delete after delete on headgate_buckets for each row
call headgate_bucket_changed(old.id, null, null, null)
//
