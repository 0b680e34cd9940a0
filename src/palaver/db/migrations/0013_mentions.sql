-- Which conversations a command was said in, or was answered with words of: it goes when one of them is removed.
CREATE TABLE mentions (
  inbox_no @int NOT NULL,
  session_no @int NOT NULL,
  PRIMARY KEY (inbox_no, session_no)
) @strict @clustered;
CREATE INDEX mentions_by_session ON mentions (session_no);
INSERT INTO mentions (inbox_no, session_no)
SELECT i.no, s.no FROM inbox i JOIN sessions s ON s.key = i.key AND s.started <= i.received
WHERE i.turn_no IS NULL AND coalesce(s.ended, i.received) >= i.received
  AND EXISTS (SELECT 1 FROM outbox o WHERE o.dedup = 'command:' || i.no || ':0');
