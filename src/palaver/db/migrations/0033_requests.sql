-- A program names its request: one message for each name, in whichever conversation.
ALTER TABLE inbox ADD COLUMN request_key TEXT;
CREATE UNIQUE INDEX inbox_one_request ON inbox (identity, request_key) WHERE request_key IS NOT NULL;

-- A client that sends its history continues a conversation after this entry: only one message does.
ALTER TABLE inbox ADD COLUMN continues @int;
CREATE UNIQUE INDEX inbox_one_continuation ON inbox (continues) WHERE continues IS NOT NULL;
