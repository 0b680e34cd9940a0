-- The fence under which the turn of this message asked the question that it answers. It is no message of that turn.
ALTER TABLE inbox ADD COLUMN answers @int;
