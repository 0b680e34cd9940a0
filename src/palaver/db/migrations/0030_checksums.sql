-- A checksum of the body, written with it: bodies change only where the code writes a new one. NULL for older rows.
ALTER TABLE entries ADD COLUMN checksum @int;
ALTER TABLE inbox ADD COLUMN checksum @int;
ALTER TABLE outbox ADD COLUMN checksum @int;

-- Rows that a repair took out of their table because they cannot be read or belong to nothing. Nothing reads them.
CREATE TABLE set_aside (
  no @counter,
  at @int NOT NULL,
  from_table TEXT NOT NULL,
  row_name TEXT NOT NULL,
  reason TEXT NOT NULL,
  -- All columns as JSON, bytes as hex digits.
  content TEXT NOT NULL,
  -- Whose it is, as far as the row says: it is erased with them.
  session_no @int,
  identity TEXT
) @strict;
CREATE INDEX set_aside_by_session ON set_aside (session_no);
