-- A program names its request: the results of its own tools, given to the turn of a message.
CREATE TABLE result_requests (
  identity TEXT NOT NULL,
  request_key TEXT NOT NULL,
  digest TEXT NOT NULL,
  inbox_no @int NOT NULL,
  PRIMARY KEY (identity, request_key)
) @strict @clustered;
CREATE INDEX result_requests_by_message ON result_requests (inbox_no);

-- When somebody read what a repair set aside: doctor no longer warns of it.
ALTER TABLE set_aside ADD COLUMN dismissed @int;
