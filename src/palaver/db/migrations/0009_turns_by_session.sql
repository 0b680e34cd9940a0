-- A session that is removed takes its turns along, also those that left no entry.
CREATE INDEX turns_by_session ON turns (session_no);
