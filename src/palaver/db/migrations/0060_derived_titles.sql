-- Up to which entry a title was made from what was said; NULL if somebody gave it.
ALTER TABLE sessions ADD COLUMN title_seq @int;
-- A title that was hidden with what it was made from, and by which operation: undoing that brings it back.
ALTER TABLE sessions ADD COLUMN hidden_title TEXT;
ALTER TABLE sessions ADD COLUMN title_hidden_by @int;
