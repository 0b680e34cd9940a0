-- Places that are attached to a conversation which is at home elsewhere: what is said there is said to it.
-- A place leads to one conversation, and a conversation leads nowhere: so there is no chain and no circle to follow.
CREATE TABLE attached (
  place TEXT PRIMARY KEY,
  key TEXT NOT NULL,
  since @int NOT NULL,
  operation @int NOT NULL,
  CHECK (place <> key)
) @strict;
CREATE INDEX attached_by_key ON attached (key);

-- Where a message was said, if that is not where its conversation is at home.
ALTER TABLE inbox ADD COLUMN place TEXT;
