-- Article 004, on leaky buckets, "Placing the bucket in a database": the table
-- runs untouched.
CREATE TABLE leaky_buckets (
  name VARCHAR(255) NOT NULL,
  level FLOAT DEFAULT 0.0,
  atime TIMESTAMP,
  expires_at TIMESTAMP
);
CREATE UNIQUE INDEX name_idx ON leaky_buckets (name);
CREATE INDEX exp_idx ON leaky_buckets (expires_at);
