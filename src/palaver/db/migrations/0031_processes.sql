-- Background processes. The table of the first schema was never written.
DROP TABLE processes;
CREATE TABLE processes (
  no @counter,
  id TEXT NOT NULL UNIQUE,
  session_no @int NOT NULL,
  turn_no @int,
  identity TEXT,
  place TEXT NOT NULL,
  origin @blob NOT NULL,
  backend TEXT NOT NULL,
  command TEXT NOT NULL,
  folder TEXT NOT NULL,
  terminal @int NOT NULL,
  home TEXT NOT NULL,
  host TEXT NOT NULL,
  worker TEXT NOT NULL,
  lease_until @int NOT NULL,
  started @int NOT NULL,
  pid @int,
  pid_started TEXT,
  exited @int,
  exit_code @int,
  ended @int,
  problem TEXT,
  output_bytes @int NOT NULL DEFAULT 0,
  stop_asked @int,
  stopped_by TEXT,
  exit_notice TEXT NOT NULL CHECK (exit_notice IN ('off', 'due', 'done')),
  exit_message @int,
  watch TEXT,
  watched_to @int NOT NULL DEFAULT 0,
  watch_notices @int NOT NULL DEFAULT 0,
  watch_notified @int,
  check_every @int,
  check_at @int,
  CHECK (ended IS NULL OR exited IS NOT NULL OR problem IS NOT NULL)
) @strict;
CREATE INDEX processes_live ON processes (session_no) WHERE ended IS NULL;
CREATE INDEX processes_by_session ON processes (session_no);
CREATE INDEX processes_by_turn ON processes (turn_no);
