-- A grant may name a person, whatever accounts they have linked.
ALTER TABLE grants ADD COLUMN person TEXT;

-- Whatever changed who may do what: nothing in it is ever changed. Its last number says whether grants are still the same.
CREATE TABLE access_log (
  no @counter,
  at @int NOT NULL,
  by_whom TEXT NOT NULL,
  kind TEXT NOT NULL,
  identity TEXT,
  details TEXT NOT NULL DEFAULT '{}'
) @strict;
CREATE INDEX access_log_of_kind ON access_log (kind, by_whom, no);

-- One request per person: which message asked, and until when its code is good.
DROP TABLE pairings;
CREATE TABLE pairings (
  identity TEXT PRIMARY KEY,
  platform TEXT NOT NULL,
  code_hash TEXT NOT NULL,
  asked @int NOT NULL,
  expires @int NOT NULL,
  inbox_no @int NOT NULL,
  kept @int NOT NULL
) @strict;
