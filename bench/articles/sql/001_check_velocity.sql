-- Article 001, "Rate Limiting in Distributed System Using Mysql for high
-- cardinality". Mended where it does not run:
--   window is a reserved word, and is quoted here,
--   zone_txn.id is NULL as published, though LAST_INSERT_ID() is used. It gets
--   AUTO_INCREMENT, and so has to be a key.
-- Added, as it would stand still without: one index for the count.
CREATE TABLE zone_master (
  `id` int PRIMARY KEY,
  `description` text,
  `rate` int,
  `window` bigint
);

CREATE TABLE zone_bucket_lock (
  bucket_key varchar(255) PRIMARY KEY
);

CREATE TABLE zone_txn (
  id bigint(20) AUTO_INCREMENT PRIMARY KEY,
  zone_id int(11),
  bucket_key varchar(255),
  blocked tinyint(1),
  created_at timestamp DEFAULT CURRENT_TIMESTAMP,
  INDEX (bucket_key, zone_id, blocked, created_at)
);

INSERT INTO zone_master VALUES (1, 'login', 5, 60), (2, 'to be counted', 100, 60);

-- procedure
CREATE PROCEDURE check_velocity (IN p_zone_id int(11), IN p_bucket_key varchar(255))
BEGIN
# variables
DECLARE v_rate INT;
DECLARE v_window BIGINT;
DECLARE v_blocked TINYINT;
DECLARE v_zone_txn_id BIGINT;

# get rate limit, window from zone master
SELECT `rate`, `window` INTO v_rate, v_window from `zone_master` where `id` = p_zone_id;
# insert fresh bucket Key if not already there
INSERT ignore INTO zone_bucket_lock(bucket_key) VALUES(p_bucket_key);
START TRANSACTION;
# lock
SELECT * FROM zone_bucket_lock WHERE `bucket_key` = p_bucket_key for update;
# Check zone rate limit  put it in v_blocked
SELECT IF(count(*) >= v_rate, 1,0) INTO v_blocked from `zone_txn` WHERE `bucket_key` = p_bucket_key and `zone_id` = p_zone_id and `blocked` = 0 and `created_at` >= NOW() - INTERVAL v_window SECOND;
# insert into zone_txn
INSERT INTO `zone_txn`(`zone_id`, `bucket_key`, `blocked`) VALUES(p_zone_id, p_bucket_key, v_blocked);
# return Blocked, allowed Txn Id , in case required for reference number
SET v_zone_txn_id = LAST_INSERT_ID();
COMMIT;
select v_blocked, v_zone_txn_id, p_zone_id, p_bucket_key, v_rate, v_window;
END
