-- What a cell remembers of requests with an id that were admitted, so that they
-- are charged once and can be settled. outcome is what was answered, as 15
-- numbers; rule the parameters that it was made under; settled is what it cost in
-- the end, -1 while that is not known, -2 if it was cancelled. It may be forgotten from keep_until on.
create table if not exists headgate_admissions (
    limit_name varbinary(255) not null,
    cell_key   varbinary(512) not null,
    id         varbinary(255) not null,
    print      bigint not null,
    rule       varbinary(255) not null,
    cost       bigint not null,
    outcome    varbinary(255) not null,
    settled    bigint not null,
    keep_until bigint not null,
    primary key (limit_name, cell_key, id),
    key by_age (keep_until)
) engine = InnoDB
//
