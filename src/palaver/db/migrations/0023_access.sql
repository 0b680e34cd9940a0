-- A grant can hold in direct chats only, or in groups only.
ALTER TABLE grants ADD COLUMN kind TEXT;

-- A stranger asks at one of our accounts, and can wait at several.
ALTER TABLE pairings RENAME TO old_pairings;
CREATE TABLE pairings (
  identity TEXT NOT NULL,
  account TEXT NOT NULL,
  code_hash TEXT NOT NULL,
  first_requested @int NOT NULL,
  requested @int NOT NULL,
  expires @int NOT NULL,
  inbox_no @int NOT NULL,
  kept @int NOT NULL,
  PRIMARY KEY (identity, account)
) @strict;
INSERT INTO pairings (identity, account, code_hash, first_requested, requested, expires, inbox_no, kept)
  SELECT p.identity, i.platform || ':' || i.account, p.code_hash, p.requested, p.requested, p.expires, p.inbox_no, p.kept
  FROM old_pairings p JOIN inbox i ON i.no = p.inbox_no;
DROP TABLE old_pairings;
CREATE INDEX pairings_at_account ON pairings (account);
