-- Article 003's procedure request_token, translated to PostgreSQL: the article publishes it for
-- MySQL. The same two statements; the answer, there the number of rows, is a boolean.
create table token_buckets (
  id varchar(36) primary key,
  available int,
  capacity int,
  refill_seconds int,
  last_refill_at timestamptz);

create function request_token(p_id varchar(36)) returns boolean as $$
begin
  update token_buckets tb set available = tb.capacity, last_refill_at = clock_timestamp()
    where tb.id = p_id and tb.last_refill_at + make_interval(secs => tb.refill_seconds) <= clock_timestamp();
  update token_buckets tb set available = tb.available - 1 where tb.id = p_id and tb.available > 0;
  return found;
end; $$ language plpgsql;
