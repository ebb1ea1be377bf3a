-- Article 001's procedure check_velocity, translated to PostgreSQL: the article publishes it for
-- MySQL. The same statements in the same order; the lock's row is not returned.
create table zone_master (id int primary key, description text, rate int, "window" bigint);

create table zone_bucket_lock (bucket_key varchar(255) primary key);

create table zone_txn (
  id bigint generated always as identity primary key,
  zone_id int,
  bucket_key varchar(255),
  blocked smallint,
  created_at timestamptz default clock_timestamp());
create index on zone_txn (bucket_key, zone_id, blocked, created_at);

insert into zone_master values (1, 'login', 5, 60), (2, 'to be counted', 100, 60);

create function check_velocity(p_zone_id int, p_bucket_key varchar(255)) returns int as $$
declare
  v_rate int; v_window bigint; v_blocked int;
begin
  select rate, "window" into v_rate, v_window from zone_master where id = p_zone_id;
  insert into zone_bucket_lock (bucket_key) values (p_bucket_key) on conflict do nothing;
  perform * from zone_bucket_lock where bucket_key = p_bucket_key for update;
  select case when count(*) >= v_rate then 1 else 0 end into v_blocked from zone_txn
    where bucket_key = p_bucket_key and zone_id = p_zone_id and blocked = 0
      and created_at >= clock_timestamp() - make_interval(secs => v_window);
  insert into zone_txn (zone_id, bucket_key, blocked) values (p_zone_id, p_bucket_key, v_blocked);
  return v_blocked;
end; $$ language plpgsql;
