-- Instructions that hold for one conversation.
ALTER TABLE sessions ADD COLUMN instructions TEXT;

-- The first of several versions of a conversation: /retry and edits in the web chat make another one.
ALTER TABLE sessions ADD COLUMN version_root @int;
CREATE INDEX sessions_by_version ON sessions (version_root) WHERE version_root IS NOT NULL;

-- How a person keeps a conversation in the list of the web chat.
CREATE TABLE session_marks (
  identity TEXT NOT NULL,
  session_no @int NOT NULL,
  pinned @int,
  archived @int,
  -- The last entry that they have seen there.
  seen_seq @int,
  PRIMARY KEY (identity, session_no)
) @strict @clustered;
CREATE INDEX session_marks_by_session ON session_marks (session_no);
