-- What a cell remembers of requests with an id that were admitted, so that they
-- are charged once and can be extended and settled. cost is what they were charged in
-- all; outcome what was answered first, as 15 numbers, and what the last extension made
-- of the cell, as four more; rule the parameters it was made under; settled is what it
-- cost in the end, -1 while that is not known, -2 if it was cancelled.
create table admissions (
    limit_name text not null,
    key        text not null,
    id         text not null,
    print      integer not null,
    rule       text not null,
    cost       integer not null,
    outcome    text not null,
    settled    integer not null,
    keep_until integer not null,
    primary key (limit_name, key, id)
) strict;
create index admissions_by_age on admissions (keep_until);
