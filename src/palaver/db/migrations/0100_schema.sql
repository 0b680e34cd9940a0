-- The schema, for both databases: `db/schema.py` explains the words with @.
-- Times are microseconds since 1970 in UTC. Ids from outside are percent-encoded text.

CREATE TABLE meta (
  name TEXT PRIMARY KEY,
  value TEXT NOT NULL
) @strict;


-- People

CREATE TABLE people (
  id TEXT PRIMARY KEY,
  name TEXT,
  created @int NOT NULL
) @strict;

-- An identity returns to the person it was first when it is no longer linked with any other.
CREATE TABLE identities (
  identity TEXT PRIMARY KEY,
  person TEXT NOT NULL REFERENCES people (id),
  original_person TEXT,
  name TEXT,
  created @int NOT NULL
) @strict;
CREATE INDEX identities_by_person ON identities (person);

-- Two identities that are one person since then, and until when: nothing in it is ever overwritten.
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

-- Somebody offers to be one person with the one who enters the code; both have to agree to the accounts that were named.
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
  -- In direct chats only, or in groups only.
  kind TEXT,
  account TEXT,
  scope_id TEXT,
  chat_id TEXT,
  user_id TEXT,
  -- A person with all their accounts.
  person TEXT,
  created @int NOT NULL,
  actor TEXT NOT NULL
) @strict;

-- Every change of who can do what. Its last number says whether grants are still the same.
CREATE TABLE access_log (
  no @counter,
  at @int NOT NULL,
  actor TEXT NOT NULL,
  kind TEXT NOT NULL,
  identity TEXT,
  details TEXT NOT NULL DEFAULT '{}'
) @strict;
CREATE INDEX access_log_of_kind ON access_log (kind, actor, no);

-- Tokens of programs, logins, and codes of login links. A secret is there as a digest only.
CREATE TABLE api_tokens (
  no @counter,
  digest TEXT NOT NULL UNIQUE,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  -- On whose behalf it opens; NULL for the owner's.
  identity TEXT,
  rights TEXT NOT NULL,
  created @int NOT NULL,
  expires @int,
  last_used @int NOT NULL,
  -- The profile that answers; NULL if the rules choose it. Of a relay, its tenant.
  profile TEXT
) @strict;

-- Erasures of people. Who it is stands in `subject` only until it is done.
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

-- What was erased, as keyed digests: written with the deletion itself, gone once the receipt is handed over.
CREATE TABLE erased_digests (
  erasure @int NOT NULL,
  kind TEXT NOT NULL,
  digest TEXT NOT NULL,
  PRIMARY KEY (erasure, kind, digest)
) @strict @clustered;


-- Accounts and chats

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
  -- The platform does not take us there, and somebody has to do something about it.
  refused @int NOT NULL DEFAULT 0,
  -- Since when it has no connection, however often it was tried again.
  down_since @int,
  PRIMARY KEY (platform, account)
) @strict;

-- Where a platform's own output goes when nothing else is said.
CREATE TABLE home_channels (
  profile TEXT NOT NULL,
  platform TEXT NOT NULL,
  address TEXT NOT NULL,
  set_at @int NOT NULL,
  actor TEXT NOT NULL,
  -- For the agent.
  name TEXT,
  PRIMARY KEY (profile, platform)
) @strict;

-- Chats that are gone, or where we cannot write any more; forgotten when a send succeeds.
CREATE TABLE gone_chats (
  account TEXT NOT NULL,
  server TEXT NOT NULL DEFAULT '',
  chat TEXT NOT NULL,
  since @int NOT NULL,
  error TEXT NOT NULL,
  PRIMARY KEY (account, chat, server)
) @strict;

-- Chats that have another id now. What is owed to the old one goes to the new one; it leads to no other old one.
CREATE TABLE chat_moves (
  account TEXT NOT NULL,
  server TEXT NOT NULL DEFAULT '',
  chat TEXT NOT NULL,
  new_chat TEXT NOT NULL,
  since @int NOT NULL,
  PRIMARY KEY (account, chat, server),
  CHECK (chat <> new_chat)
) @strict;


-- Jobs

-- A prompt on a schedule. next_due is NULL once it has ended; requested asks for a run besides the schedule.
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


-- Conversations

CREATE TABLE sessions (
  no @counter,
  id TEXT@bytewise NOT NULL UNIQUE,
  key TEXT NOT NULL,
  profile TEXT NOT NULL,
  platform TEXT NOT NULL,
  owner TEXT NOT NULL,
  origin TEXT NOT NULL,
  title TEXT,
  -- Up to which entry a title was made from what was said; NULL if somebody gave it.
  title_seq @int,
  -- A title that was hidden with what it was made from, and by which operation: undoing that brings it back.
  hidden_title TEXT,
  title_hidden_by @int,
  parent TEXT,
  parent_seq @int,
  -- The first of several versions of a conversation: /retry and edits in the web chat make another one.
  version_root @int,
  -- The job whose own conversation it is.
  schedule_no @int,
  started @int NOT NULL,
  ended @int,
  end_reason TEXT,
  last_human @int NOT NULL,
  last_active @int NOT NULL,
  next_seq @int NOT NULL DEFAULT 1,
  -- Nothing is shown before this seq: what was summarised long ago is not read again for every turn.
  shown_from @int NOT NULL DEFAULT 0,
  turns @int NOT NULL DEFAULT 0,
  input_tokens @int NOT NULL DEFAULT 0,
  output_tokens @int NOT NULL DEFAULT 0,
  -- Input tokens from the provider's cache, and tokens whose price is unknown: their cost is not zero, so they count apart.
  cached_tokens @int NOT NULL DEFAULT 0,
  unpriced_tokens @int NOT NULL DEFAULT 0,
  cost_micros @int NOT NULL DEFAULT 0,
  override TEXT,
  instructions TEXT,
  finalised @int,
  -- The hooks that know of its end.
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

-- Deleted sessions whose usage stays in the sums: one that comes back from an archive is not counted again.
CREATE TABLE deleted_sessions (id TEXT PRIMARY KEY) @strict;

-- Who took part in a session, and so can read it. With left_at, they no longer can: the link that let them in is gone.
CREATE TABLE participants (
  identity TEXT NOT NULL,
  session_no @int NOT NULL,
  left_at @int,
  PRIMARY KEY (identity, session_no)
) @strict @clustered;
CREATE INDEX participants_by_session ON participants (session_no);

-- How a person keeps a conversation in the list of the web chat, and the last entry they have seen there.
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
  -- The session before it, the key its session had, and the key it has since.
  from_session TEXT,
  from_key TEXT,
  to_key TEXT
) @strict;
CREATE INDEX operations_by_key ON operations (key, at, no);
CREATE INDEX operations_by_session ON operations (session_no);

-- Places that are attached to a conversation which is at home elsewhere: what is said there is said to it.
-- A place leads to one conversation, and a conversation leads nowhere: so there is no chain and no circle to follow.
-- The operation says how to undo it; it goes with its session.
CREATE TABLE attached_chats (
  place TEXT PRIMARY KEY,
  key TEXT NOT NULL,
  since @int NOT NULL,
  operation @int NOT NULL,
  actor TEXT NOT NULL DEFAULT '',
  CHECK (place <> key)
) @strict;
CREATE INDEX attached_by_key ON attached_chats (key);


-- Turns

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
  -- Whether it ended with an answer: only those count as turns.
  answered @int NOT NULL DEFAULT 0,
  error TEXT,
  -- The kind of failure, when the provider takes requests again, and the quota that it was over.
  failure TEXT,
  retry_at @int,
  quota TEXT,
  halted @int,
  stopped_by TEXT,
  stopped_at @int,
  draft TEXT,
  -- Whether the first request for the draft of a growing answer has left, and its receipt is not known.
  draft_unclear @int NOT NULL DEFAULT 0,
  -- The call that a parked turn needs permission for, and what was said to the calls before it.
  pending_call TEXT,
  approvals TEXT,
  -- The message that withdrew its question: it came instead of an answer.
  withdrawn_by @int,
  identity TEXT,
  model TEXT,
  input_tokens @int NOT NULL DEFAULT 0,
  output_tokens @int NOT NULL DEFAULT 0,
  cached_tokens @int NOT NULL DEFAULT 0,
  unpriced_tokens @int NOT NULL DEFAULT 0,
  cost_micros @int NOT NULL DEFAULT 0,
  -- The size of the last prompt that the provider reported.
  prompt_tokens @int NOT NULL DEFAULT 0
) @strict;
CREATE UNIQUE INDEX one_open_turn_per_key ON turns (key) WHERE state IN ('running', 'parked', 'interrupted');
CREATE INDEX turns_by_session ON turns (session_no);
CREATE INDEX withdrawn_turns ON turns (withdrawn_by) WHERE withdrawn_by IS NOT NULL;

-- What people think of the answer of a turn: 1 for thumbs up, -1 for thumbs down, 0 once it is taken back.
CREATE TABLE feedback (
  turn_no @int NOT NULL,
  identity TEXT NOT NULL,
  rating @int NOT NULL CHECK (rating IN (-1, 0, 1)),
  at @int NOT NULL,
  PRIMARY KEY (turn_no, identity)
) @strict @clustered;

-- What the title of a conversation used, which was found after a turn: not part of what its answer used.
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

-- What was used: running sums, so that a cap costs the same however long the history is.
-- A slot is a quarter of an hour, counted from 1970 in UTC: days of every zone are made of whole ones.
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

-- Why the agent of a profile fails, until it answers again. What the provider said stands with the turn.
CREATE TABLE agent_problems (
  profile TEXT NOT NULL PRIMARY KEY,
  failure TEXT NOT NULL,
  model TEXT,
  since @int NOT NULL,
  last @int NOT NULL,
  turn_no @int NOT NULL
) @strict @clustered;


-- Transcripts

-- id = session no * 2^24 + seq, so (session, seq) is unique and a transcript is one range of the table.
CREATE TABLE entries (
  id @int PRIMARY KEY,
  role TEXT NOT NULL,
  turn_no @int,
  hidden_by @int,
  observed @int NOT NULL DEFAULT 0,
  body @blob NOT NULL,
  checksum @int
) @strict;
-- Of those that are hidden only, so that what is said costs nothing more.
CREATE INDEX entries_hidden ON entries (turn_no) WHERE hidden_by IS NOT NULL;
-- Overheard entries in the order of their turns: retention deletes the oldest first.
CREATE INDEX entries_observed ON entries (turn_no, id) WHERE observed = 1;

-- What happened to transcripts, in order of commit: the search index and live views read along.
-- turn_no is the turn that was settled with a row, until it is in the sums of `usage`: to settle costs nothing more.
CREATE TABLE journal (
  pos @serial,
  session_no @int NOT NULL,
  kind TEXT NOT NULL,
  first_seq @int NOT NULL,
  last_seq @int NOT NULL,
  turn_no @int@xid
) @strict;
-- SQLite gives positions in the order of commits, so there a mark tells where to look; elsewhere an index does.
/*pg CREATE INDEX journal_unsummed ON journal (pos) WHERE turn_no IS NOT NULL */;

-- Notes that agents keep across conversations: about a person, or, with a place, about a chat.
CREATE TABLE memory_notes (
  no @counter,
  profile TEXT NOT NULL,
  -- Whom it is about; in a chat, whose message led to it.
  identity TEXT,
  -- The key of the chat.
  place TEXT,
  text TEXT NOT NULL,
  created @int NOT NULL,
  -- When a person changed it.
  edited @int,
  -- The entry that it came from: while that is undone, the note is not shown.
  session_no @int,
  seq @int,
  -- The entry in which the agent forgot it: while that is undone, the note is shown again.
  forgotten_session_no @int,
  forgotten_seq @int,
  -- The note that replaced this one, which then stays for its person: for good without a forgotten entry, else until that
  -- is undone.
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


-- Messages in

-- What identifies a message are columns, and all that distinguishes two chats is among them. An edit has a version, and
-- a message that /retry sends once more the session that it made.
-- A message in a turn shares the turn's state; its own says only how it got there.
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
  -- Where it was said, if that is not where its conversation is at home.
  place TEXT,
  state TEXT NOT NULL,
  received @int NOT NULL,
  identity TEXT,
  turn_no @int,
  reason TEXT,
  -- A program names its request: one message for each name, in whichever conversation.
  request_key TEXT,
  -- A client that sends its history continues a conversation after this entry: only one message does.
  continues @int,
  -- The fence under which the turn of this message asked the question that it answers. It is no message of that turn.
  answers @int,
  -- The gateway that a connector hands this message to; its state is 'relay' until that gateway has stored it.
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
-- The web chat keeps no messages of its own: what was said there and what was sent there is the chat.
-- Not platform = 'web': SQLite would then plan every statement that says platform = ? anew whenever it is used.
CREATE INDEX inbox_of_web ON inbox (coalesce(place, key), no) WHERE substr(platform, 1, 4) = 'web';
CREATE UNIQUE INDEX inbox_one_request ON inbox (identity, request_key) WHERE request_key IS NOT NULL;
CREATE UNIQUE INDEX inbox_one_continuation ON inbox (continues) WHERE continues IS NOT NULL;
CREATE INDEX inbox_to_relay ON inbox (tenant, platform, account, no) WHERE state = 'relay';
CREATE INDEX inbox_relayed_chats ON inbox (tenant, chat) WHERE tenant IS NOT NULL;

-- One row for each conversation in which messages wait: its place among those that wait for a turn.
CREATE TABLE ready_queue (
  key TEXT PRIMARY KEY,
  position @int NOT NULL
) @strict @clustered;
CREATE INDEX ready_queue_in_order ON ready_queue (position, key);

-- Which conversations a command was said in, or was answered with words of, and under which number the answer listed it:
-- it goes when one of them is removed.
CREATE TABLE mentions (
  inbox_no @int NOT NULL,
  session_no @int NOT NULL,
  position @int,
  PRIMARY KEY (inbox_no, session_no)
) @strict @clustered;
CREATE INDEX mentions_by_session ON mentions (session_no);

-- A stranger asks at one of our accounts, and can wait at several: which message asked, and until when its code holds.
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

-- A program names its request: the results of its own tools, given to the turn of a message.
CREATE TABLE result_requests (
  identity TEXT NOT NULL,
  request_key TEXT NOT NULL,
  digest TEXT NOT NULL,
  inbox_no @int NOT NULL,
  PRIMARY KEY (identity, request_key)
) @strict @clustered;
CREATE INDEX result_requests_by_message ON result_requests (inbox_no);

-- Each occurrence of a job that was due: its message, or why it did not run.
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


-- Messages out

-- id = turn no * 1024 + ordinal for replies, so a reply is owed once; below zero for what no turn owes.
-- What is owed to one chat is sent one after the other: account, chat and server say which.
CREATE TABLE outbox (
  id @int PRIMARY KEY,
  account TEXT NOT NULL,
  chat TEXT NOT NULL,
  server TEXT NOT NULL DEFAULT '',
  -- Why a message that is no reply of a turn is sent; NULL for replies.
  cause_kind TEXT,
  cause_id TEXT,
  cause_detail TEXT,
  part @int,
  state TEXT NOT NULL,
  attempts @int NOT NULL DEFAULT 0,
  due @int NOT NULL,
  -- The platform itself asked to send this later: a new connection does not end that pause.
  rate_limited @int NOT NULL DEFAULT 0,
  worker TEXT,
  claim_until @int,
  -- How often nobody knew whether it had arrived: from the first time on it is marked as a possible duplicate.
  times_unclear @int NOT NULL DEFAULT 0,
  receipt TEXT,
  error TEXT,
  created @int NOT NULL,
  body @blob NOT NULL,
  checksum @int
) @strict;
-- Those who send look at what is due in the accounts they serve, and at no other.
CREATE INDEX outbox_due ON outbox (account, due) WHERE state = 'due';
CREATE INDEX outbox_in_order ON outbox (account, chat, server, created, id)
  WHERE state IN ('due', 'claimed', 'sending');
CREATE UNIQUE INDEX outbox_sent_once ON outbox (cause_kind, cause_id, cause_detail, part) WHERE cause_kind IS NOT NULL;
-- Find the answer that somebody replies or reacts to, by the id that the platform gave it.
CREATE INDEX outbox_of_receipt ON outbox (chat, receipt) WHERE receipt IS NOT NULL AND id > 0;
-- Not account = 'web:': SQLite would then plan every statement that says account = ? anew whenever it is used.
CREATE INDEX outbox_of_web ON outbox (chat, created, id) WHERE substr(account, 1, 5) = 'web:' AND state = 'delivered';

-- Causes whose text is wiped once it was sent, because it holds a code.
CREATE TABLE wiped_after_send (
  cause_kind TEXT NOT NULL,
  cause_id TEXT NOT NULL,
  PRIMARY KEY (cause_kind, cause_id)
) @strict @clustered;


-- Upkeep

-- Which entry, message or send has which file; what nobody has is removed after a while.
CREATE TABLE attachments (
  sha256 TEXT@bytewise NOT NULL,
  kind TEXT NOT NULL,
  holder @int NOT NULL,
  PRIMARY KEY (kind, holder, sha256)
) @strict @clustered;
CREATE INDEX attachments_by_file ON attachments (sha256);

-- Rows of `inbox` and `outbox` that retention has passed before they were settled. It looks at them again.
CREATE TABLE retention_skipped (
  source TEXT NOT NULL,
  number @int NOT NULL,
  PRIMARY KEY (source, number)
) @strict @clustered;

-- Rows that a repair took out of their table because they cannot be read or belong to nothing. Nothing reads them.
CREATE TABLE set_aside (
  no @counter,
  at @int NOT NULL,
  from_table TEXT NOT NULL,
  row_name TEXT NOT NULL,
  reason TEXT NOT NULL,
  -- All columns as JSON, bytes as hex digits.
  content TEXT NOT NULL,
  -- Whose it is, as far as the row says: it is erased with them.
  session_no @int,
  identity TEXT,
  -- When somebody read it: doctor no longer warns of it.
  dismissed @int
) @strict;
CREATE INDEX set_aside_by_session ON set_aside (session_no);

INSERT INTO meta (name, value) VALUES ('summed', '0');
