-- The message that a row changes, by the name that makes a redelivery the same.
ALTER TABLE inbox ADD COLUMN revises TEXT;
CREATE INDEX inbox_revisions ON inbox (revises, no) WHERE revises IS NOT NULL;
