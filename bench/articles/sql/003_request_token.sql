-- Article 003, "Distributed rate limiting in Go": runs untouched.
CREATE TABLE token_buckets (
id CHAR(36) PRIMARY KEY,
available INT UNSIGNED,
capacity INT UNSIGNED,
refill_seconds INT UNSIGNED,
last_refill_at TIMESTAMP(3)
);

-- procedure
CREATE PROCEDURE request_token (IN id CHAR(36))
BEGIN
-- First try to refill the bucket. The WHERE clause should select only
-- a bucket that can be refilled.
UPDATE token_buckets tb
SET
tb.available = tb.capacity,
tb.last_refill_at = NOW()
WHERE
tb.id = id
AND TIMESTAMPADD(SECOND, tb.refill_seconds, tb.last_refill_at) <= NOW();
-- Then if there are available tokens remove one.
UPDATE token_buckets tb
SET
tb.available = tb.available - 1
WHERE
tb.id = id
AND tb.available > 0;
END
