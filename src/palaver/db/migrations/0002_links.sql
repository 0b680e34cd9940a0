-- An identity returns to the person it was born as when it is linked with no other any more.
ALTER TABLE identities ADD COLUMN born TEXT;
UPDATE identities SET born = person;
INSERT INTO people (id, name, created)
  SELECT '0-' || p.identity, NULL, min(s.started) FROM participants p JOIN sessions s ON s.no = p.session_no
  WHERE NOT EXISTS (SELECT 1 FROM identities i WHERE i.identity = p.identity) GROUP BY p.identity;
INSERT INTO identities (identity, person, born, name, created)
  SELECT substr(id, 3), id, id, NULL, created FROM people WHERE substr(id, 1, 2) = '0-';

-- Two identities that are one person since then, and until when: nothing in it is ever overwritten.
CREATE TABLE links (
  no @counter,
  one TEXT NOT NULL,
  other TEXT NOT NULL,
  since @int NOT NULL,
  by_whom TEXT NOT NULL,
  until @int,
  until_by TEXT,
  CHECK (one <> other)
) @strict;
CREATE INDEX links_of_one ON links (one) WHERE until IS NULL;
CREATE INDEX links_of_other ON links (other) WHERE until IS NULL;

-- Somebody offers to be one person with whoever enters the code; both have to agree to the accounts that were named.
CREATE TABLE offers (
  identity TEXT PRIMARY KEY,
  address TEXT NOT NULL,
  code_hash TEXT UNIQUE,
  expires @int NOT NULL,
  guest TEXT UNIQUE,
  guest_address TEXT,
  stated TEXT,
  agreed TEXT,
  CHECK ((guest IS NULL) = (code_hash IS NOT NULL))
) @strict;
CREATE TABLE wrong_codes (
  no @counter,
  identity TEXT NOT NULL,
  at @int NOT NULL
) @strict;
CREATE INDEX wrong_codes_by_identity ON wrong_codes (identity, no);

-- Who took part once and may not read it any more: they were let in through a link that is gone.
ALTER TABLE participants ADD COLUMN left_at @int;
