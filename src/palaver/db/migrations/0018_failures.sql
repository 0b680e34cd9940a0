-- The kind of failure that ended a turn, so that clients learn whether a retry can help.
ALTER TABLE turns ADD COLUMN failure TEXT;
