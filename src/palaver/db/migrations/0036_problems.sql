-- Why the agent of a profile fails, until it answers again. What the provider said stands with the turn.
CREATE TABLE agent_problems (
  profile TEXT NOT NULL PRIMARY KEY,
  failure TEXT NOT NULL,
  model TEXT,
  since @int NOT NULL,
  last @int NOT NULL,
  turn_no @int NOT NULL
) @strict @clustered;

-- Since when an account has no connection, however often it was tried again.
ALTER TABLE accounts ADD COLUMN down_since @int;
