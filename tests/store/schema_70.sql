-- The last schema before the one that Palaver has now.

CREATE TABLE meta (
  name TEXT PRIMARY KEY,
  value TEXT NOT NULL
) @strict;

CREATE TABLE people (
  id TEXT PRIMARY KEY,
  name TEXT,
  created @int NOT NULL
) @strict;

CREATE TABLE identities (
  identity TEXT PRIMARY KEY,
  person TEXT NOT NULL REFERENCES people (id),
  original_person TEXT,
  name TEXT,
  created @int NOT NULL
) @strict;
CREATE INDEX identities_by_person ON identities (person);

CREATE TABLE links (
  no @counter,
  one TEXT NOT NULL,
  other TEXT NOT NULL,
  since @int NOT NULL,
  actor TEXT NOT NULL,
  until @int,
  until_by TEXT,
  CHECK (one <> other)
) @strict;
CREATE INDEX links_of_one ON links (one) WHERE until IS NULL;
CREATE INDEX links_of_other ON links (other) WHERE until IS NULL;

CREATE TABLE link_offers (
  identity TEXT PRIMARY KEY,
  address TEXT NOT NULL,
  code_hash TEXT UNIQUE,
  expires @int NOT NULL,
  guest TEXT UNIQUE,
  guest_address TEXT,
  stated_accounts TEXT,
  agreed_by TEXT,
  CHECK ((guest IS NULL) = (code_hash IS NOT NULL))
) @strict;

CREATE TABLE wrong_codes (
  no @counter,
  identity TEXT NOT NULL,
  at @int NOT NULL
) @strict;
CREATE INDEX wrong_codes_by_identity ON wrong_codes (identity, no);

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
  kind TEXT,
  account TEXT,
  scope_id TEXT,
  chat_id TEXT,
  user_id TEXT,
  person TEXT,
  created @int NOT NULL,
  actor TEXT NOT NULL
) @strict;

CREATE TABLE access_log (
  no @counter,
  at @int NOT NULL,
  actor TEXT NOT NULL,
  kind TEXT NOT NULL,
  identity TEXT,
  details TEXT NOT NULL DEFAULT '{}'
) @strict;
CREATE INDEX access_log_of_kind ON access_log (kind, actor, no);

CREATE TABLE api_tokens (
  no @counter,
  digest TEXT NOT NULL UNIQUE,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  identity TEXT,
  rights TEXT NOT NULL,
  created @int NOT NULL,
  expires @int,
  last_used @int NOT NULL,
  profile TEXT
) @strict;

CREATE TABLE erasures (
  no @counter,
  subject TEXT,
  keeps_access @int NOT NULL DEFAULT 0,
  requested @int NOT NULL,
  actor TEXT NOT NULL,
  answer TEXT,
  ended @int
) @strict;
CREATE INDEX erasures_at_work ON erasures (no) WHERE ended IS NULL;

CREATE TABLE erased_digests (
  erasure @int NOT NULL,
  kind TEXT NOT NULL,
  digest TEXT NOT NULL,
  PRIMARY KEY (erasure, kind, digest)
) @strict @clustered;

CREATE TABLE accounts (
  platform TEXT NOT NULL,
  account TEXT NOT NULL,
  worker TEXT NOT NULL,
  fence @int NOT NULL,
  lease_until @int NOT NULL,
  position TEXT,
  connected_since @int,
  last_error TEXT,
  failed_at @int,
  refused @int NOT NULL DEFAULT 0,
  down_since @int,
  PRIMARY KEY (platform, account)
) @strict;

CREATE TABLE home_channels (
  profile TEXT NOT NULL,
  platform TEXT NOT NULL,
  address TEXT NOT NULL,
  set_at @int NOT NULL,
  actor TEXT NOT NULL,
  name TEXT,
  PRIMARY KEY (profile, platform)
) @strict;

CREATE TABLE gone_chats (
  account TEXT NOT NULL,
  server TEXT NOT NULL DEFAULT '',
  chat TEXT NOT NULL,
  since @int NOT NULL,
  error TEXT NOT NULL,
  PRIMARY KEY (account, chat, server)
) @strict;

CREATE TABLE chat_moves (
  account TEXT NOT NULL,
  server TEXT NOT NULL DEFAULT '',
  chat TEXT NOT NULL,
  new_chat TEXT NOT NULL,
  since @int NOT NULL,
  PRIMARY KEY (account, chat, server),
  CHECK (chat <> new_chat)
) @strict;

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

CREATE TABLE sessions (
  no @counter,
  id TEXT@bytewise NOT NULL UNIQUE,
  key TEXT NOT NULL,
  profile TEXT NOT NULL,
  platform TEXT NOT NULL,
  owner TEXT NOT NULL,
  origin TEXT NOT NULL,
  title TEXT,
  title_seq @int,
  hidden_title TEXT,
  title_hidden_by @int,
  parent TEXT,
  parent_seq @int,
  version_root @int,
  schedule_no @int,
  started @int NOT NULL,
  ended @int,
  end_reason TEXT,
  last_human @int NOT NULL,
  last_active @int NOT NULL,
  next_seq @int NOT NULL DEFAULT 1,
  shown_from @int NOT NULL DEFAULT 0,
  turns @int NOT NULL DEFAULT 0,
  input_tokens @int NOT NULL DEFAULT 0,
  output_tokens @int NOT NULL DEFAULT 0,
  cached_tokens @int NOT NULL DEFAULT 0,
  unpriced_tokens @int NOT NULL DEFAULT 0,
  cost_micros @int NOT NULL DEFAULT 0,
  override TEXT,
  instructions TEXT,
  finalised @int,
  finalised_by TEXT,
  finalise_tries @int NOT NULL DEFAULT 0,
  CHECK ((ended IS NULL) = (end_reason IS NULL))
) @strict;
CREATE UNIQUE INDEX one_open_session_per_key ON sessions (key) WHERE ended IS NULL;
CREATE UNIQUE INDEX title_unique_per_owner ON sessions (owner, title) WHERE title IS NOT NULL;
CREATE INDEX sessions_by_activity ON sessions (last_active, no);
CREATE INDEX sessions_by_silence ON sessions (last_human, no) WHERE ended IS NULL;
CREATE INDEX sessions_by_key ON sessions (key);
CREATE INDEX sessions_to_finalise ON sessions (no) WHERE ended IS NOT NULL AND finalised IS NULL;
CREATE INDEX sessions_by_version ON sessions (version_root) WHERE version_root IS NOT NULL;

CREATE TABLE deleted_sessions (id TEXT PRIMARY KEY) @strict;

CREATE TABLE participants (
  identity TEXT NOT NULL,
  session_no @int NOT NULL,
  left_at @int,
  PRIMARY KEY (identity, session_no)
) @strict @clustered;
CREATE INDEX participants_by_session ON participants (session_no);

CREATE TABLE session_marks (
  identity TEXT NOT NULL,
  session_no @int NOT NULL,
  pinned @int,
  archived @int,
  seen_seq @int,
  PRIMARY KEY (identity, session_no)
) @strict @clustered;
CREATE INDEX session_marks_by_session ON session_marks (session_no);

CREATE TABLE routes (
  key TEXT PRIMARY KEY,
  session_no @int NOT NULL,
  address TEXT NOT NULL,
  settings TEXT NOT NULL DEFAULT '{}'
) @strict;
CREATE INDEX routes_by_session ON routes (session_no);

CREATE TABLE operations (
  no @counter,
  key TEXT NOT NULL,
  session_no @int NOT NULL,
  kind TEXT NOT NULL,
  at @int NOT NULL,
  actor TEXT NOT NULL,
  details TEXT NOT NULL DEFAULT '{}',
  undone_at @int,
  from_session TEXT,
  from_key TEXT,
  to_key TEXT
) @strict;
CREATE INDEX operations_by_key ON operations (key, at, no);
CREATE INDEX operations_by_session ON operations (session_no);

CREATE TABLE attached_chats (
  place TEXT PRIMARY KEY,
  key TEXT NOT NULL,
  since @int NOT NULL,
  operation @int NOT NULL,
  actor TEXT NOT NULL DEFAULT '',
  CHECK (place <> key)
) @strict;
CREATE INDEX attached_by_key ON attached_chats (key);

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
  answered @int NOT NULL DEFAULT 0,
  error TEXT,
  failure TEXT,
  retry_at @int,
  quota TEXT,
  halted @int,
  stopped_by TEXT,
  stopped_at @int,
  draft TEXT,
  draft_unclear @int NOT NULL DEFAULT 0,
  pending_call TEXT,
  approvals TEXT,
  withdrawn_by @int,
  identity TEXT,
  model TEXT,
  input_tokens @int NOT NULL DEFAULT 0,
  output_tokens @int NOT NULL DEFAULT 0,
  cached_tokens @int NOT NULL DEFAULT 0,
  unpriced_tokens @int NOT NULL DEFAULT 0,
  cost_micros @int NOT NULL DEFAULT 0,
  prompt_tokens @int NOT NULL DEFAULT 0
) @strict;
CREATE UNIQUE INDEX one_open_turn_per_key ON turns (key) WHERE state IN ('running', 'parked', 'interrupted');
CREATE INDEX turns_by_session ON turns (session_no);
CREATE INDEX withdrawn_turns ON turns (withdrawn_by) WHERE withdrawn_by IS NOT NULL;

CREATE TABLE feedback (
  turn_no @int NOT NULL,
  identity TEXT NOT NULL,
  rating @int NOT NULL CHECK (rating IN (-1, 0, 1)),
  at @int NOT NULL,
  PRIMARY KEY (turn_no, identity)
) @strict @clustered;

CREATE TABLE title_usage (
  turn_no @int PRIMARY KEY,
  at @int NOT NULL,
  model TEXT,
  input_tokens @int NOT NULL,
  output_tokens @int NOT NULL,
  cached_tokens @int NOT NULL,
  cost_micros @int NOT NULL,
  unpriced_tokens @int NOT NULL
) @strict;

CREATE TABLE usage (
  identity TEXT NOT NULL,
  slot @int NOT NULL,
  model TEXT NOT NULL,
  turns @int NOT NULL,
  input_tokens @int NOT NULL,
  output_tokens @int NOT NULL,
  cost_micros @int NOT NULL,
  cached_tokens @int NOT NULL DEFAULT 0,
  unpriced_tokens @int NOT NULL DEFAULT 0,
  PRIMARY KEY (identity, slot, model)
) @strict @clustered;
CREATE INDEX usage_by_slot ON usage (slot);

CREATE TABLE agent_problems (
  profile TEXT NOT NULL PRIMARY KEY,
  failure TEXT NOT NULL,
  model TEXT,
  since @int NOT NULL,
  last @int NOT NULL,
  turn_no @int NOT NULL
) @strict @clustered;

CREATE TABLE entries (
  id @int PRIMARY KEY,
  role TEXT NOT NULL,
  turn_no @int,
  hidden_by @int,
  observed @int NOT NULL DEFAULT 0,
  body @blob NOT NULL,
  checksum @int
) @strict;
CREATE INDEX entries_hidden ON entries (turn_no) WHERE hidden_by IS NOT NULL;
CREATE INDEX entries_observed ON entries (turn_no, id) WHERE observed = 1;

CREATE TABLE journal (
  pos @serial,
  session_no @int NOT NULL,
  kind TEXT NOT NULL,
  first_seq @int NOT NULL,
  last_seq @int NOT NULL,
  turn_no @int@xid
) @strict;
/*pg CREATE INDEX journal_unsummed ON journal (pos) WHERE turn_no IS NOT NULL */;

CREATE TABLE memory_notes (
  no @counter,
  profile TEXT NOT NULL,
  identity TEXT,
  place TEXT,
  text TEXT NOT NULL,
  created @int NOT NULL,
  edited @int,
  session_no @int,
  seq @int,
  forgotten_session_no @int,
  forgotten_seq @int,
  replaced_by @int,
  CHECK (identity IS NOT NULL OR place IS NOT NULL),
  CHECK ((session_no IS NULL) = (seq IS NULL)),
  CHECK ((forgotten_session_no IS NULL) = (forgotten_seq IS NULL))
) @strict;
CREATE INDEX memory_notes_of_person ON memory_notes (identity) WHERE place IS NULL;
CREATE INDEX memory_notes_of_chat ON memory_notes (place) WHERE place IS NOT NULL;
CREATE INDEX memory_notes_by_session ON memory_notes (session_no) WHERE session_no IS NOT NULL;
CREATE INDEX memory_notes_forgotten ON memory_notes (forgotten_session_no) WHERE forgotten_session_no IS NOT NULL;
CREATE INDEX memory_notes_replaced ON memory_notes (replaced_by) WHERE replaced_by IS NOT NULL;

CREATE TABLE inbox (
  no @serial,
  platform TEXT NOT NULL DEFAULT '',
  account TEXT NOT NULL DEFAULT '',
  server TEXT NOT NULL DEFAULT '',
  chat TEXT NOT NULL DEFAULT '',
  alt_chat TEXT NOT NULL DEFAULT '',
  chat_user TEXT NOT NULL DEFAULT '',
  message_id TEXT,
  version TEXT NOT NULL DEFAULT '',
  retried_in @int NOT NULL DEFAULT 0,
  key TEXT NOT NULL,
  place TEXT,
  state TEXT NOT NULL,
  received @int NOT NULL,
  identity TEXT,
  turn_no @int,
  reason TEXT,
  request_key TEXT,
  continues @int,
  answers @int,
  tenant TEXT,
  body @blob NOT NULL,
  checksum @int,
  CHECK ((state = 'in-turn') <= (turn_no IS NOT NULL))
) @strict;
CREATE UNIQUE INDEX inbox_received_once
  ON inbox (message_id, chat, alt_chat, chat_user, server, platform, account, version, retried_in);
CREATE INDEX inbox_waiting ON inbox (key, no) WHERE state = 'waiting';
CREATE INDEX inbox_of_turn ON inbox (turn_no) WHERE turn_no IS NOT NULL;
CREATE INDEX inbox_of_sender ON inbox (identity, no);
CREATE INDEX inbox_of_web ON inbox (coalesce(place, key), no) WHERE substr(platform, 1, 4) = 'web';
CREATE UNIQUE INDEX inbox_one_request ON inbox (identity, request_key) WHERE request_key IS NOT NULL;
CREATE UNIQUE INDEX inbox_one_continuation ON inbox (continues) WHERE continues IS NOT NULL;
CREATE INDEX inbox_to_relay ON inbox (tenant, platform, account, no) WHERE state = 'relay';
CREATE INDEX inbox_relayed_chats ON inbox (tenant, chat) WHERE tenant IS NOT NULL;

CREATE TABLE ready_queue (
  key TEXT PRIMARY KEY,
  position @int NOT NULL
) @strict @clustered;
CREATE INDEX ready_queue_in_order ON ready_queue (position, key);

CREATE TABLE mentions (
  inbox_no @int NOT NULL,
  session_no @int NOT NULL,
  position @int,
  PRIMARY KEY (inbox_no, session_no)
) @strict @clustered;
CREATE INDEX mentions_by_session ON mentions (session_no);

CREATE TABLE pairings (
  identity TEXT NOT NULL,
  account TEXT NOT NULL,
  code_hash TEXT NOT NULL,
  first_requested @int NOT NULL,
  requested @int NOT NULL,
  expires @int NOT NULL,
  inbox_no @int NOT NULL,
  kept @int NOT NULL,
  PRIMARY KEY (identity, account)
) @strict;
CREATE INDEX pairings_at_account ON pairings (account);

CREATE TABLE result_requests (
  identity TEXT NOT NULL,
  request_key TEXT NOT NULL,
  digest TEXT NOT NULL,
  inbox_no @int NOT NULL,
  PRIMARY KEY (identity, request_key)
) @strict @clustered;
CREATE INDEX result_requests_by_message ON result_requests (inbox_no);

CREATE TABLE firings (
  schedule_no @int NOT NULL,
  at @int NOT NULL,
  inbox_no @int,
  reason TEXT,
  PRIMARY KEY (schedule_no, at)
) @strict @clustered;
CREATE INDEX firings_of_message ON firings (inbox_no) WHERE inbox_no IS NOT NULL;

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

CREATE TABLE outbox (
  id @int PRIMARY KEY,
  account TEXT NOT NULL,
  chat TEXT NOT NULL,
  server TEXT NOT NULL DEFAULT '',
  cause_kind TEXT,
  cause_id TEXT,
  cause_detail TEXT,
  part @int,
  state TEXT NOT NULL,
  attempts @int NOT NULL DEFAULT 0,
  due @int NOT NULL,
  rate_limited @int NOT NULL DEFAULT 0,
  worker TEXT,
  claim_until @int,
  times_unclear @int NOT NULL DEFAULT 0,
  receipt TEXT,
  error TEXT,
  created @int NOT NULL,
  body @blob NOT NULL,
  checksum @int
) @strict;
CREATE INDEX outbox_due ON outbox (account, due) WHERE state = 'due';
CREATE INDEX outbox_in_order ON outbox (account, chat, server, created, id)
  WHERE state IN ('due', 'claimed', 'sending');
CREATE UNIQUE INDEX outbox_sent_once ON outbox (cause_kind, cause_id, cause_detail, part) WHERE cause_kind IS NOT NULL;
CREATE INDEX outbox_of_receipt ON outbox (chat, receipt) WHERE receipt IS NOT NULL AND id > 0;
CREATE INDEX outbox_of_web ON outbox (chat, created, id) WHERE substr(account, 1, 5) = 'web:' AND state = 'delivered';

CREATE TABLE wiped_after_send (
  cause_kind TEXT NOT NULL,
  cause_id TEXT NOT NULL,
  PRIMARY KEY (cause_kind, cause_id)
) @strict @clustered;

CREATE TABLE attachments (
  sha256 TEXT@bytewise NOT NULL,
  kind TEXT NOT NULL,
  holder @int NOT NULL,
  PRIMARY KEY (kind, holder, sha256)
) @strict @clustered;
CREATE INDEX attachments_by_file ON attachments (sha256);

CREATE TABLE retention_skipped (
  source TEXT NOT NULL,
  number @int NOT NULL,
  PRIMARY KEY (source, number)
) @strict @clustered;

CREATE TABLE set_aside (
  no @counter,
  at @int NOT NULL,
  from_table TEXT NOT NULL,
  row_name TEXT NOT NULL,
  reason TEXT NOT NULL,
  content TEXT NOT NULL,
  session_no @int,
  identity TEXT,
  dismissed @int
) @strict;
CREATE INDEX set_aside_by_session ON set_aside (session_no);

