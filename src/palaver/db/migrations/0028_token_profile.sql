-- The profile that answers what a token sends; null if the rules choose it.
ALTER TABLE api_tokens ADD COLUMN profile TEXT;
