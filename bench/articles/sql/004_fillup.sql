-- Article 004: fillup, with $1 name, $2 capa, $3 fillup, $4 leak_rate and $5
-- delete_after_s. Mended in the three places where it does not run:
--   ON CONFLICT (key): the column is called name;
--   EXCLUDED.may_be_deleted_after: the column is called expires_at;
--   ':delete_after_s second'::interval has a placeholder within a literal.
INSERT INTO leaky_buckets AS t
  (name, atime, expires_at, level)
VALUES
  (
    $1,
    clock_timestamp(),
    clock_timestamp() + make_interval(secs => $5),
    LEAST($2::float, $3::float)
  )
ON CONFLICT (name) DO UPDATE SET
  atime = EXCLUDED.atime,
  expires_at = EXCLUDED.expires_at,
  level = GREATEST(
      0.0, LEAST(
        $2::float,
        t.level + $3::float - (EXTRACT(EPOCH FROM (EXCLUDED.atime - t.atime)) * $4::float)
      )
    )
RETURNING level
