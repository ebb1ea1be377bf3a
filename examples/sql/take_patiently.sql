-- Takes from a limit and repeats what conflicts: call it outside a transaction.
-- call take_patiently('order-4712', 'fixed-window 100/1h', 'acme', 2);
create procedure take_patiently(id text, rule text, key text, cost numeric default 1, inout allowed boolean default null)
language plpgsql as $$
begin
  for attempt in 1..20 loop
    rollback;                                       -- only a new transaction sees what the others have done
    set transaction isolation level read committed; -- at SERIALIZABLE its commit can fail, which nothing here could catch
    begin
      allowed := t.allowed from headgate.take_once(id, rule, key, cost) t;
      return;
    exception when serialization_failure or deadlock_detected then
      perform pg_sleep(random() * least(0.5, 0.005 * 2 ^ attempt));
    end;
  end loop;
  raise serialization_failure using message = 'conflicts without end';
end $$;
