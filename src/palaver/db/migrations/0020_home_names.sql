-- The name of a home channel, for the agent.
ALTER TABLE home_channels ADD COLUMN name TEXT;
