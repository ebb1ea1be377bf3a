-- What was done to keys by hand: blocks, and resets. The newest 10,000 are kept.
create table if not exists headgate.actions (
    number bigint generated always as identity primary key,
    at     bigint not null,
    verb   text not null,
    limit_name text collate "C" not null,
    key    text collate "C" not null,
    lasts  bigint not null,
    author text not null,
    reason text not null
);
