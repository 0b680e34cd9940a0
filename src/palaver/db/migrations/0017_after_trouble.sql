-- Under which number the answer to a command listed a conversation.
ALTER TABLE mentions ADD COLUMN position @int;
