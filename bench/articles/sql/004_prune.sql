-- Article 004: what every call does after fillup. Runs untouched.
DELETE FROM leaky_buckets WHERE expires_at < clock_timestamp()
