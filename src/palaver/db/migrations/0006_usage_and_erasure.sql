-- What was used: running sums, so that a cap costs the same however long the history is.
-- A slot is a quarter of an hour, counted from 1970 in UTC: days of every zone are made of whole ones.
CREATE TABLE used (
  identity TEXT NOT NULL,
  slot @int NOT NULL,
  model TEXT NOT NULL,
  turns @int NOT NULL,
  input_tokens @int NOT NULL,
  output_tokens @int NOT NULL,
  cost_micros @int NOT NULL,
  PRIMARY KEY (identity, slot, model)
) @strict @clustered;
CREATE INDEX used_by_slot ON used (slot);

INSERT INTO used (identity, slot, model, turns, input_tokens, output_tokens, cost_micros)
SELECT coalesce(identity, ''), ended / 900000000, coalesce(model, ''),
  count(*), sum(input_tokens), sum(output_tokens), sum(cost_micros)
FROM turns WHERE ended IS NOT NULL GROUP BY 1, 2, 3;

-- Erasures of people. Who it is stands in `who` only until it is done.
CREATE TABLE erasures (
  no @counter,
  who TEXT,
  keeps_access @int NOT NULL DEFAULT 0,
  asked @int NOT NULL,
  by_whom TEXT NOT NULL,
  answer TEXT,
  ended @int
) @strict;
CREATE INDEX erasures_at_work ON erasures (no) WHERE ended IS NULL;

-- What was erased, as keyed digests: written with the deletion itself, gone once the receipt is handed over.
CREATE TABLE erased (
  erasure @int NOT NULL,
  kind TEXT NOT NULL,
  digest TEXT NOT NULL,
  PRIMARY KEY (erasure, kind, digest)
) @strict @clustered;
