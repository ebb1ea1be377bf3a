-- Limits by name, for callers from SQL. `headgate migrate --config` writes them;
-- a row may be edited by hand too. The columns after rule_compiled are what the
-- rule means, filled in when it is first used: only then is it an error if a rule
-- cannot be read. What does not look like one is refused at once.
create table if not exists headgate_limits (
    name          varchar(64) character set utf8mb4 collate utf8mb4_bin not null primary key,
    rule          varchar(255) character set utf8mb4 collate utf8mb4_bin not null,
    description   text character set utf8mb4 not null default (''),
    updated_at    timestamp not null default current_timestamp on update current_timestamp,
    rule_compiled varchar(255) character set utf8mb4 collate utf8mb4_bin,
    law int, anchor int, unit bigint, capacity bigint, step bigint, drain bigint, block bigint, history bigint,
    calendar varchar(8) character set utf8mb4, zone varchar(64) character set utf8mb4,
    constraint headgate_rule_is_a_limit check (rule regexp concat('^[[:blank:]]*(token-bucket|leaky-bucket|gcra|interval|fixed-window|sliding-window|sliding-log|concurrency)',
        '[[:blank:]]+[0-9]+([.][0-9]+)?(/[0-9a-z]+)?([[:blank:]]+[A-Za-z0-9][A-Za-z0-9./_+%-]*)*[[:blank:]]*$'))
) engine = InnoDB
//

-- Use cases with a rate for a moving window, for check_velocity.
create table if not exists headgate_zones (
    id             int not null primary key,
    description    text character set utf8mb4 not null default (''),
    rate           int not null,
    window_seconds bigint not null,
    history_days   int not null default 30,
    check (rate > 0), check (window_seconds > 0 and window_seconds <= 316224000), check (history_days >= 0 and history_days <= 3660)
) engine = InnoDB
//

-- Buckets that are filled to capacity once per refill_seconds, for request_token.
create table if not exists headgate_buckets (
    id             varchar(255) character set utf8mb4 collate utf8mb4_bin not null primary key,
    capacity       int unsigned not null,
    refill_seconds decimal(16, 6) not null,
    created_at     timestamp not null default current_timestamp,
    check (refill_seconds > 0 and refill_seconds <= 316224000)
) engine = InnoDB
//
