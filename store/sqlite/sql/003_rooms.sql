-- What the file itself says about its stores: max_keys, how many keys a limit may have.
create table settings (
    name  text primary key,
    value integer not null
) without rowid, strict;

-- How many keys limits have: of those that have been asked about while there was a
-- maximum. keys does not count the shared cell, which stands in cells under
-- headgate:shared:GENERATION exactly while since is not 0.
create table rooms (
    limit_name text primary key,
    keys       integer not null,
    max_keys   integer not null, -- as it was last asked for; 0: any number
    generation integer not null, -- of the last period in which new keys shared a cell
    since      integer not null  -- when the present one began; 0: none is under way
) without rowid, strict;

create trigger key_came after insert on cells when substr(new.key, 1, 16) <> 'headgate:shared:' begin
    update rooms set keys = keys + 1 where limit_name = new.limit_name;
end;

create trigger key_went after delete on cells when substr(old.key, 1, 16) <> 'headgate:shared:' begin
    update rooms set keys = keys - 1 where limit_name = old.limit_name;
end;
