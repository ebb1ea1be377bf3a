-- What was done to keys by hand: blocks, and resets. About the newest 10,000 are kept: of a cluster, whose numbers have gaps, fewer.
create table if not exists headgate_actions (
    number     bigint not null auto_increment primary key,
    at         bigint not null comment 'In microseconds since 1970.',
    verb       varchar(16) character set utf8mb4 collate utf8mb4_bin not null comment 'block, unblock or reset.',
    limit_name varbinary(255) not null,
    cell_key   varbinary(512) not null,
    lasts      bigint not null comment 'Microseconds of a block.',
    author     text character set utf8mb4 collate utf8mb4_bin not null,
    reason     text character set utf8mb4 collate utf8mb4_bin not null
) engine = InnoDB comment 'What was done to keys by hand.'
//
