-- From now on whatever is taken away lets its files go in the same step: what was left from before goes here.
DELETE FROM attachments WHERE kind = 'entry' AND NOT EXISTS (SELECT 1 FROM entries e WHERE e.id = holder);
DELETE FROM attachments WHERE kind = 'in'
  AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.no = holder AND length(i.body) > 0);

-- Sends whose words are for the one who gets them, by the names they are owed under: once sent, the words go.
CREATE TABLE said_once (
  dedup TEXT PRIMARY KEY
) @strict @clustered;
