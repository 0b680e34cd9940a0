-- The note that replaced this one, which then stays for its person: for good without a forgotten entry, else until that is undone.
ALTER TABLE memory_notes ADD COLUMN replaced_by @int;
CREATE INDEX memory_notes_replaced ON memory_notes (replaced_by) WHERE replaced_by IS NOT NULL;
