-- Times are microseconds since 1970 in UTC. Ids from outside are percent-encoded text.

CREATE TABLE meta (
  name TEXT PRIMARY KEY,
  value TEXT NOT NULL
) @strict;

CREATE TABLE sessions (
  no @counter,
  id TEXT@bytewise NOT NULL UNIQUE,
  key TEXT NOT NULL,
  profile TEXT NOT NULL,
  platform TEXT NOT NULL,
  owner TEXT NOT NULL,
  origin TEXT NOT NULL,
  title TEXT,
  parent TEXT,
  parent_seq @int,
  started @int NOT NULL,
  ended @int,
  end_reason TEXT,
  last_human @int NOT NULL,
  last_active @int NOT NULL,
  next_seq @int NOT NULL DEFAULT 1,
  turns @int NOT NULL DEFAULT 0,
  input_tokens @int NOT NULL DEFAULT 0,
  output_tokens @int NOT NULL DEFAULT 0,
  cost_micros @int NOT NULL DEFAULT 0,
  override TEXT,
  finalised @int,
  finalise_tries @int NOT NULL DEFAULT 0,
  CHECK ((ended IS NULL) = (end_reason IS NULL))
) @strict;
CREATE UNIQUE INDEX one_open_session_per_key ON sessions (key) WHERE ended IS NULL;
CREATE UNIQUE INDEX title_unique_per_owner ON sessions (owner, title) WHERE title IS NOT NULL;
CREATE INDEX sessions_by_activity ON sessions (last_active, no);
CREATE INDEX sessions_by_silence ON sessions (last_human, no) WHERE ended IS NULL;
CREATE INDEX sessions_by_key ON sessions (key);
CREATE INDEX sessions_to_finalise ON sessions (no) WHERE ended IS NOT NULL AND finalised IS NULL;

-- Who took part in a session, and so may read it.
CREATE TABLE participants (
  identity TEXT NOT NULL,
  session_no @int NOT NULL,
  PRIMARY KEY (identity, session_no)
) @strict @clustered;
CREATE INDEX participants_by_session ON participants (session_no);

CREATE TABLE routes (
  key TEXT PRIMARY KEY,
  session_no @int NOT NULL,
  address TEXT NOT NULL,
  settings TEXT NOT NULL DEFAULT '{}'
) @strict;
CREATE INDEX routes_by_session ON routes (session_no);

-- id = session no * 2^24 + seq, so (session, seq) is unique and a transcript is one range of the table.
CREATE TABLE entries (
  id @int PRIMARY KEY,
  role TEXT NOT NULL,
  turn_no @int,
  hidden_by @int,
  observed @int NOT NULL DEFAULT 0,
  body @blob NOT NULL
) @strict;

-- What happened to transcripts, in order of commit: the search index and live views read along.
CREATE TABLE journal (
  pos @serial,
  session_no @int NOT NULL,
  kind TEXT NOT NULL,
  first_seq @int NOT NULL,
  last_seq @int NOT NULL@xid
) @strict;

-- A message in a turn shares the turn's fate; its own state says only how it got there.
CREATE TABLE inbox (
  no @serial,
  dedup TEXT UNIQUE,
  key TEXT NOT NULL,
  state TEXT NOT NULL,
  received @int NOT NULL,
  turn_no @int,
  reason TEXT,
  body @blob NOT NULL,
  CHECK ((state = 'in-turn') <= (turn_no IS NOT NULL))
) @strict;
CREATE INDEX inbox_waiting ON inbox (key, no) WHERE state = 'waiting';
CREATE INDEX inbox_of_turn ON inbox (turn_no) WHERE turn_no IS NOT NULL;

-- One row for each conversation in which messages wait: its place among those that wait for a turn.
CREATE TABLE lines (
  key TEXT PRIMARY KEY,
  place @int NOT NULL
) @strict @clustered;
CREATE INDEX lines_in_order ON lines (place, key);

CREATE TABLE turns (
  no @counter,
  key TEXT NOT NULL,
  session_no @int NOT NULL,
  state TEXT NOT NULL,
  attempt @int NOT NULL DEFAULT 1,
  fence @int NOT NULL DEFAULT 1,
  worker TEXT NOT NULL,
  lease_until @int NOT NULL,
  started @int NOT NULL,
  ended @int,
  error TEXT,
  halted @int,
  stop TEXT,
  draft TEXT,
  -- The call that a parked turn needs permission for, and what was said to the calls before it.
  asked TEXT,
  approvals TEXT,
  identity TEXT,
  model TEXT,
  input_tokens @int NOT NULL DEFAULT 0,
  output_tokens @int NOT NULL DEFAULT 0,
  cost_micros @int NOT NULL DEFAULT 0
) @strict;
CREATE UNIQUE INDEX one_open_turn_per_key ON turns (key) WHERE state IN ('running', 'parked', 'interrupted');

-- id = turn no * 1024 + ordinal for replies, so a reply is owed once; below zero for what no turn owes.
-- What is owed to one chat is sent one after the other: account and chat say which.
CREATE TABLE outbox (
  id @int PRIMARY KEY,
  dedup TEXT,
  account TEXT NOT NULL,
  chat TEXT NOT NULL,
  state TEXT NOT NULL,
  attempts @int NOT NULL DEFAULT 0,
  due @int NOT NULL,
  worker TEXT,
  claim_until @int,
  may_be_duplicate @int NOT NULL DEFAULT 0,
  receipt TEXT,
  error TEXT,
  created @int NOT NULL,
  body @blob NOT NULL
) @strict;
CREATE INDEX outbox_due ON outbox (due) WHERE state = 'due';
CREATE INDEX outbox_in_order ON outbox (account, chat, created, id) WHERE state IN ('due', 'claimed');
CREATE UNIQUE INDEX outbox_owed_once ON outbox (dedup) WHERE dedup IS NOT NULL;

CREATE TABLE operations (
  no @counter,
  key TEXT NOT NULL,
  session_no @int NOT NULL,
  kind TEXT NOT NULL,
  at @int NOT NULL,
  by_whom TEXT NOT NULL,
  details TEXT NOT NULL DEFAULT '{}',
  undone_at @int
) @strict;
CREATE INDEX operations_by_key ON operations (key, at, no);
CREATE INDEX operations_by_session ON operations (session_no);

CREATE TABLE people (
  id TEXT PRIMARY KEY,
  name TEXT,
  created @int NOT NULL
) @strict;

CREATE TABLE identities (
  identity TEXT PRIMARY KEY,
  person TEXT NOT NULL REFERENCES people (id),
  name TEXT,
  created @int NOT NULL
) @strict;
CREATE INDEX identities_by_person ON identities (person);

CREATE TABLE aliases (
  platform TEXT NOT NULL,
  alias TEXT NOT NULL,
  canonical TEXT NOT NULL,
  PRIMARY KEY (platform, alias)
) @strict;

CREATE TABLE grants (
  no @counter,
  effect TEXT NOT NULL,
  role TEXT NOT NULL,
  basis TEXT NOT NULL,
  platform TEXT,
  account TEXT,
  scope_id TEXT,
  chat_id TEXT,
  user_id TEXT,
  created @int NOT NULL,
  by_whom TEXT NOT NULL
) @strict;

CREATE TABLE pairings (
  code_hash TEXT PRIMARY KEY,
  identity TEXT NOT NULL UNIQUE,
  platform TEXT NOT NULL,
  created @int NOT NULL,
  expires @int NOT NULL,
  failures @int NOT NULL DEFAULT 0
) @strict;

CREATE TABLE schedules (
  id TEXT PRIMARY KEY,
  rule TEXT NOT NULL,
  target TEXT NOT NULL,
  prompt TEXT NOT NULL,
  options TEXT NOT NULL DEFAULT '{}',
  owner TEXT NOT NULL,
  created @int NOT NULL,
  next_due @int,
  paused @int NOT NULL DEFAULT 0
) @strict;
CREATE INDEX schedules_due ON schedules (next_due) WHERE paused = 0;

CREATE TABLE firings (
  schedule TEXT NOT NULL,
  at @int NOT NULL,
  inbox_no @int,
  result TEXT,
  delivery TEXT,
  PRIMARY KEY (schedule, at)
) @strict;

CREATE TABLE processes (
  id TEXT PRIMARY KEY,
  session_no @int NOT NULL,
  backend TEXT NOT NULL,
  command TEXT NOT NULL,
  pid @int,
  pid_started TEXT,
  output TEXT NOT NULL,
  started @int NOT NULL,
  ended @int,
  exit_code @int
) @strict;
CREATE INDEX processes_live ON processes (session_no) WHERE ended IS NULL;

CREATE TABLE accounts (
  platform TEXT NOT NULL,
  account TEXT NOT NULL,
  worker TEXT NOT NULL,
  fence @int NOT NULL,
  lease_until @int NOT NULL,
  position TEXT,
  PRIMARY KEY (platform, account)
) @strict;

-- Where a platform's own output goes when nothing else is said.
CREATE TABLE homes (
  profile TEXT NOT NULL,
  platform TEXT NOT NULL,
  address TEXT NOT NULL,
  set_at @int NOT NULL,
  by_whom TEXT NOT NULL,
  PRIMARY KEY (profile, platform)
) @strict;

-- Chats that are gone, or where we may not write any more; forgotten when a send succeeds.
CREATE TABLE gone_chats (
  account TEXT NOT NULL,
  chat TEXT NOT NULL,
  since @int NOT NULL,
  error TEXT NOT NULL,
  PRIMARY KEY (account, chat)
) @strict;
