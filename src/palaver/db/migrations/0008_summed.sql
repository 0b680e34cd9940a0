-- The turn that was settled with a row, until it is in the sums of `used`: to settle costs nothing more.
ALTER TABLE journal ADD COLUMN turn_no @int;
-- SQLite gives positions in the order of commits, so there a mark tells where to look; elsewhere an index does.
INSERT INTO meta (name, value) SELECT 'summed', CAST(coalesce(max(pos), 0) AS TEXT) FROM journal;
/*pg CREATE INDEX journal_unsummed ON journal (pos) WHERE turn_no IS NOT NULL */;

-- What open turns have used is in the sums only when they have ended.
INSERT INTO used (identity, slot, model, turns, input_tokens, output_tokens, cost_micros)
SELECT coalesce(identity, ''), halted / 900000000, coalesce(model, ''),
  0, -sum(input_tokens), -sum(output_tokens), -sum(cost_micros)
FROM turns WHERE ended IS NULL AND halted IS NOT NULL AND input_tokens + output_tokens + cost_micros > 0
GROUP BY 1, 2, 3
ON CONFLICT (identity, slot, model) DO UPDATE SET input_tokens = used.input_tokens + excluded.input_tokens,
  output_tokens = used.output_tokens + excluded.output_tokens, cost_micros = used.cost_micros + excluded.cost_micros;
