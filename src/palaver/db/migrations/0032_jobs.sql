-- Nothing has ever written to these two tables.
DROP TABLE firings;
DROP TABLE schedules;

-- A prompt on a schedule. next_due is null once it has ended; requested asks for a run besides the schedule.
CREATE TABLE schedules (
  no @counter,
  owner TEXT NOT NULL,
  name TEXT NOT NULL,
  rule TEXT NOT NULL,
  prompt TEXT NOT NULL,
  target TEXT NOT NULL,
  origin TEXT NOT NULL,
  role TEXT,
  basis TEXT,
  model TEXT,
  workdir TEXT,
  script TEXT,
  uses_model @int NOT NULL DEFAULT 1,
  skips_silent @int NOT NULL DEFAULT 1,
  attached @int NOT NULL DEFAULT 0,
  mirrors @int NOT NULL DEFAULT 0,
  repeats @int,
  created @int NOT NULL,
  next_due @int,
  paused @int,
  requested @int
) @strict;
CREATE INDEX schedules_due ON schedules (next_due) WHERE paused IS NULL AND next_due IS NOT NULL;
CREATE INDEX schedules_requested ON schedules (requested) WHERE requested IS NOT NULL;
CREATE INDEX schedules_of_owner ON schedules (owner, no);

-- Each occurrence that was due: its message, or why it did not run.
CREATE TABLE firings (
  schedule_no @int NOT NULL,
  at @int NOT NULL,
  inbox_no @int,
  reason TEXT,
  PRIMARY KEY (schedule_no, at)
) @strict @clustered;
CREATE INDEX firings_of_message ON firings (inbox_no) WHERE inbox_no IS NOT NULL;

-- The job whose own conversation a session is.
ALTER TABLE sessions ADD COLUMN schedule_no @int;
