-- Requests with an id can be extended. cost is then what they have charged in all, and
-- after the numbers of the first answer, outcome has four of the last extension: what it
-- charged, and the level, at and prev that it made. The rule is zeros after an extension
-- by another one.
alter table headgate_admissions
    modify cost bigint not null comment 'Credits charged to this key, with all extensions.',
    modify outcome varbinary(512) not null comment 'Numbers of the first answer, then those of the last extension, if there is one.'
//
