-- The message that a row changes, by the name that makes a redelivery the same.
ALTER TABLE inbox ADD COLUMN revises TEXT;
CREATE INDEX inbox_revisions ON inbox (revises, no) WHERE revises IS NOT NULL;

-- Which entry, inbox row or outbox row has which file; what nobody has is removed after a while.
CREATE TABLE attachments (
  sha256 TEXT@bytewise NOT NULL,
  kind TEXT NOT NULL,
  holder @int NOT NULL,
  PRIMARY KEY (kind, holder, sha256)
) @strict @clustered;
CREATE INDEX attachments_by_file ON attachments (sha256);
