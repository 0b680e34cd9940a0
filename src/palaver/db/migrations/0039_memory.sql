-- Notes that agents keep across conversations: about a person, or, with a place, about a chat.
CREATE TABLE memory_notes (
  no @counter,
  profile TEXT NOT NULL,
  -- Whom it is about; in a chat, whose message led to it.
  identity TEXT,
  -- The key of the chat.
  place TEXT,
  text TEXT NOT NULL,
  created @int NOT NULL,
  -- When a person changed it.
  edited @int,
  -- The entry that it came from: while that is undone, the note is not shown.
  session_no @int,
  seq @int,
  -- The entry in which the agent forgot it: while that is undone, the note is shown again.
  forgotten_session_no @int,
  forgotten_seq @int,
  CHECK (identity IS NOT NULL OR place IS NOT NULL),
  CHECK ((session_no IS NULL) = (seq IS NULL)),
  CHECK ((forgotten_session_no IS NULL) = (forgotten_seq IS NULL))
) @strict;
CREATE INDEX memory_notes_of_person ON memory_notes (identity) WHERE place IS NULL;
CREATE INDEX memory_notes_of_chat ON memory_notes (place) WHERE place IS NOT NULL;
CREATE INDEX memory_notes_by_session ON memory_notes (session_no) WHERE session_no IS NOT NULL;
CREATE INDEX memory_notes_forgotten ON memory_notes (forgotten_session_no) WHERE forgotten_session_no IS NOT NULL;
