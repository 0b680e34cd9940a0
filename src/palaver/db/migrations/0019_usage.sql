-- Input tokens from the provider's cache, and tokens whose price is unknown: their cost is not zero, so they count apart.
ALTER TABLE turns ADD COLUMN cached_tokens @int NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN unpriced_tokens @int NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN cached_tokens @int NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN unpriced_tokens @int NOT NULL DEFAULT 0;
ALTER TABLE usage ADD COLUMN cached_tokens @int NOT NULL DEFAULT 0;
ALTER TABLE usage ADD COLUMN unpriced_tokens @int NOT NULL DEFAULT 0;
-- The size of the last prompt that the provider reported in a turn.
ALTER TABLE turns ADD COLUMN prompt_tokens @int NOT NULL DEFAULT 0;
