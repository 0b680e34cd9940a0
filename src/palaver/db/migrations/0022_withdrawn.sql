-- The message that withdrew the question of a turn: it came instead of an answer.
ALTER TABLE turns ADD COLUMN withdrawn_by @int;
CREATE INDEX withdrawn_turns ON turns (withdrawn_by) WHERE withdrawn_by IS NOT NULL;
