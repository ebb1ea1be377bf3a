-- What was done to keys by hand: blocks, and resets. Times are microseconds since 1970.
create table actions (
    number integer primary key autoincrement,
    at     integer not null,
    verb   text not null,
    limit_name text not null,
    key    text not null,
    lasts  integer not null, -- of a block
    author text not null,
    reason text not null
) strict;
