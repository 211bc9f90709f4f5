-- Times are microseconds of the wall clock (`_at`, for people to read) or seconds of the machine's clocks since
-- it booted (`_due` on the boot-time clock, `renewed` on the monotonic one, both under meta.boot_id).
-- JSON is kept as the text that was sent. Step ids and hashes are lower-case hex.

CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE agents (
  id                TEXT PRIMARY KEY,
  webhook_url       TEXT NOT NULL DEFAULT '',    -- empty: only processes that host it claim
  secret            TEXT NOT NULL DEFAULT '',
  accepts_body_form INTEGER NOT NULL DEFAULT 0,  -- of signatures (protocol.md 1.4)
  lease_seconds     REAL NOT NULL DEFAULT 0,     -- 0: the kernel's default
  metadata          TEXT,
  registered_at     INTEGER NOT NULL,
  policy_bundle     TEXT NOT NULL DEFAULT ''   -- YAML; empty: everything is allowed
) WITHOUT ROWID;

-- Of a key only the hash of its token is kept.
CREATE TABLE api_keys (
  id         TEXT PRIMARY KEY,
  name       TEXT NOT NULL,
  scopes     TEXT NOT NULL,                -- sorted, with blanks between
  hash       BLOB NOT NULL,                -- SHA-256 of the token
  created_at INTEGER NOT NULL,
  revoked_at INTEGER
) WITHOUT ROWID;

CREATE TABLE executions (
  n               INTEGER PRIMARY KEY,
  id              TEXT NOT NULL UNIQUE,
  agent_id        TEXT NOT NULL,
  status          TEXT NOT NULL,
  input           TEXT NOT NULL,
  output          TEXT,
  failure_reason  TEXT NOT NULL DEFAULT '',
  idempotency_key TEXT,
  created_at      INTEGER NOT NULL,
  updated_at      INTEGER NOT NULL,
  deadline_at     INTEGER,
  deadline_due    REAL,
  max_attempts    INTEGER NOT NULL,        -- of each of its dispatches
  session         TEXT,
  parent          TEXT,                    -- the id of the execution whose state it continues from
  spawner         TEXT,                    -- of a subagent: the execution that it was created from,
  spawner_step    TEXT,                    -- and the id of the step that it stands for
  on_behalf_of    TEXT,
  state           TEXT,                    -- what it left to the execution after it; JSON
  forked_from     TEXT,                    -- the id of the execution that it is a fork of
  fork_seq        INTEGER,                 -- the event of that one at which it was forked
  policy_bundle   TEXT                     -- of a fork, instead of its agent's
);
CREATE INDEX executions_by_session ON executions (session, status, id) WHERE session IS NOT NULL;
CREATE INDEX executions_by_session_age ON executions (session, updated_at) WHERE session IS NOT NULL;
CREATE INDEX executions_by_parent ON executions (parent) WHERE parent IS NOT NULL;
CREATE INDEX executions_by_source ON executions (forked_from) WHERE forked_from IS NOT NULL;
CREATE INDEX executions_by_spawner ON executions (spawner, spawner_step) WHERE spawner IS NOT NULL;
CREATE UNIQUE INDEX executions_by_key ON executions (agent_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX executions_by_agent ON executions (agent_id, id);
CREATE INDEX executions_by_status ON executions (status, id);
CREATE INDEX executions_ended ON executions (updated_at) WHERE status IN ('completed', 'failed', 'cancelled');
CREATE INDEX executions_by_deadline ON executions (deadline_due)
  WHERE deadline_due IS NOT NULL AND status IN ('pending', 'running', 'blocked');

-- What is left of an execution with a key that retention has removed.
CREATE TABLE tombstones (
  agent_id        TEXT NOT NULL,
  idempotency_key TEXT NOT NULL,
  execution_id    TEXT NOT NULL UNIQUE,
  input_hash      TEXT NOT NULL,           -- of its canonical form
  status          TEXT NOT NULL,
  output          TEXT,
  output_bytes    INTEGER NOT NULL,        -- more than output has: it was too large to keep
  failure_reason  TEXT NOT NULL,
  created_at      INTEGER NOT NULL,
  updated_at      INTEGER NOT NULL,
  PRIMARY KEY (agent_id, idempotency_key)
) WITHOUT ROWID;

CREATE TABLE steps (
  n            INTEGER PRIMARY KEY,
  execution    INTEGER NOT NULL REFERENCES executions (n),
  step_id      TEXT NOT NULL,
  kind         TEXT NOT NULL,
  target       TEXT NOT NULL,
  args_hash    TEXT NOT NULL,
  occurrence   INTEGER NOT NULL,
  status       TEXT NOT NULL,
  idempotency  TEXT NOT NULL,
  args         TEXT NOT NULL,
  result       TEXT,
  error        TEXT,
  rule_id      TEXT NOT NULL,
  parent       TEXT NOT NULL,              -- the id of the step in whose body it was called
  started_at   INTEGER,
  started_due  REAL,                       -- the same on the boot-time clock: what a sleep is counted from
  completed_at INTEGER,
  usage        TEXT,                       -- of a model call: its tokens, as JSON
  resources    TEXT,                       -- those that it changes: a JSON array of their keys
  tries        INTEGER NOT NULL DEFAULT 0, -- that failed, each followed by another (protocol.md 17)
  retry_at     INTEGER,                    -- when the next one may begin
  retry_due    REAL,
  UNIQUE (execution, step_id)
);
-- Rule 11 of protocol.md 7.2 looks for a failed twin of every new at_most_once step.
CREATE INDEX steps_indeterminate ON steps (execution, args_hash) WHERE status = 'failed';
-- Budgets sum up without reading what the calls answered.
CREATE INDEX steps_usage ON steps (execution, usage) WHERE usage IS NOT NULL;

-- Parts of long texts, each stored once (see store/texts.py). Such a column then holds a BLOB.
CREATE TABLE bodies (
  n      INTEGER PRIMARY KEY,
  hash   BLOB NOT NULL UNIQUE,
  text   TEXT NOT NULL,
  needed INTEGER NOT NULL                  -- by how many cells
);
CREATE TABLE cells (
  n      INTEGER PRIMARY KEY AUTOINCREMENT,  -- a reader may still hold the number of one that went
  prev   INTEGER NOT NULL,                 -- the cell before it; 0: it is the first
  body   INTEGER NOT NULL REFERENCES bodies (n),
  needed INTEGER NOT NULL,                 -- by how many cells and columns
  UNIQUE (prev, body)
);

-- Environments that steps change, as their agent has registered them (protocol.md 9.6).
CREATE TABLE resources (
  execution      INTEGER NOT NULL REFERENCES executions (n),
  key            TEXT NOT NULL,
  driver_id      TEXT NOT NULL,
  configuration  TEXT,
  coverage_reuse INTEGER NOT NULL,
  every_steps    INTEGER NOT NULL,           -- 0: it is not captured
  on_completion  INTEGER NOT NULL,
  registered_seq INTEGER NOT NULL,
  generation     INTEGER NOT NULL DEFAULT 0,
  changes        INTEGER NOT NULL DEFAULT 0, -- of settled steps that changed it
  binding        TEXT,
  checkpoint_ref TEXT,                       -- what a fork begins from
  PRIMARY KEY (execution, key)
) WITHOUT ROWID;

CREATE TABLE checkpoints (
  n               INTEGER PRIMARY KEY,
  execution       INTEGER NOT NULL REFERENCES executions (n),
  key             TEXT NOT NULL,
  generation      INTEGER NOT NULL,
  checkpoint_ref  TEXT NOT NULL,
  covered_seq     INTEGER NOT NULL,
  invalidated_seq INTEGER
);
CREATE INDEX checkpoints_of_execution ON checkpoints (execution, key);

-- What an event says about a step or an execution is read from their rows; `detail` holds the rest, as JSON.
CREATE TABLE events (
  execution   INTEGER NOT NULL REFERENCES executions (n),
  seq         INTEGER NOT NULL,
  type        TEXT NOT NULL,
  step        INTEGER,
  detail      TEXT,
  occurred_at INTEGER NOT NULL,
  PRIMARY KEY (execution, seq)
) WITHOUT ROWID;

CREATE TABLE dispatches (
  n             INTEGER PRIMARY KEY,
  id            TEXT NOT NULL UNIQUE,
  execution     INTEGER NOT NULL REFERENCES executions (n),
  agent_id      TEXT NOT NULL,
  status        TEXT NOT NULL,
  attempt       INTEGER NOT NULL,
  strikes       INTEGER NOT NULL,
  max_attempts  INTEGER NOT NULL,
  due_at        INTEGER NOT NULL,
  due           REAL NOT NULL,
  owner         TEXT,                      -- nonce of the process that holds the lease, or 'remote'
  lease_seconds REAL NOT NULL DEFAULT 0,
  renewed       REAL NOT NULL DEFAULT 0,
  failures      INTEGER NOT NULL DEFAULT 0,  -- deliveries that failed in a row
  wants_notice  INTEGER NOT NULL DEFAULT 0,  -- this attempt knows `cancel-notice` (protocol.md 17)
  runner        TEXT                       -- who has asked first under this attempt; NULL: nobody, '': nameless
);
CREATE INDEX dispatches_by_execution ON dispatches (execution);
CREATE INDEX dispatches_due ON dispatches (agent_id, due) WHERE status IN ('pending', 'failed');
CREATE INDEX dispatches_in_flight ON dispatches (agent_id) WHERE status = 'in_flight';

-- Of a lease held by an agent elsewhere, whose requests may reach any process: the next occurrence of
-- each call (protocol.md 6.3). Each claim of the dispatch clears both tables.
CREATE TABLE occurrences (
  dispatch INTEGER NOT NULL REFERENCES dispatches (n),
  call     BLOB NOT NULL,                  -- the step id of its occurrence 0
  next     INTEGER NOT NULL,
  PRIMARY KEY (dispatch, call)
) WITHOUT ROWID;

-- What was answered under a request id (protocol.md 17).
CREATE TABLE requests (
  dispatch   INTEGER NOT NULL REFERENCES dispatches (n),
  request_id BLOB NOT NULL,
  content    BLOB NOT NULL,                -- hash of what was asked
  answers    TEXT NOT NULL,
  PRIMARY KEY (dispatch, request_id)
) WITHOUT ROWID;

-- Leases that are over and whose agents are still to be told; taken by whoever delivers.
CREATE TABLE notices (
  n             INTEGER PRIMARY KEY,
  agent_id      TEXT NOT NULL,
  execution_id  TEXT NOT NULL,
  dispatch_id   TEXT NOT NULL,
  attempt       INTEGER NOT NULL,
  lease_seconds REAL NOT NULL
);

-- Pieces of streams on their way to listeners in other processes: the newest few hundred.
CREATE TABLE deltas (
  n            INTEGER PRIMARY KEY,
  kernel       TEXT NOT NULL,              -- whose it is
  execution_id TEXT NOT NULL,
  step_id      TEXT NOT NULL,
  seq          INTEGER NOT NULL,
  data         TEXT NOT NULL
);
CREATE TABLE listeners (
  execution_id TEXT NOT NULL,
  kernel       TEXT NOT NULL,
  until        REAL NOT NULL,              -- on the boot-time clock
  PRIMARY KEY (execution_id, kernel)
) WITHOUT ROWID;

CREATE TABLE approvals (
  n           INTEGER PRIMARY KEY,
  id          TEXT NOT NULL UNIQUE,
  execution   INTEGER NOT NULL REFERENCES executions (n),
  step        INTEGER NOT NULL REFERENCES steps (n),
  status      TEXT NOT NULL,
  approvers   TEXT NOT NULL,               -- JSON array of names; empty: anybody
  message     TEXT NOT NULL,
  decided_by  TEXT NOT NULL DEFAULT '',
  rationale   TEXT NOT NULL DEFAULT '',
  created_at  INTEGER NOT NULL,
  decided_at  INTEGER,
  timeout_at  INTEGER NOT NULL,
  timeout_due REAL NOT NULL
);
CREATE INDEX approvals_by_step ON approvals (step);
CREATE INDEX approvals_by_status ON approvals (status);
CREATE INDEX approvals_pending ON approvals (timeout_due) WHERE status = 'pending';
CREATE INDEX approvals_of_execution ON approvals (execution) WHERE status = 'pending';

-- Sleeps of parked executions, by the step that each is.
CREATE TABLE wakes (
  step      INTEGER PRIMARY KEY REFERENCES steps (n),
  execution INTEGER NOT NULL REFERENCES executions (n),
  due_at    INTEGER NOT NULL,
  due       REAL NOT NULL
);
CREATE INDEX wakes_due ON wakes (due);
CREATE INDEX wakes_of_execution ON wakes (execution);

-- Token buckets of rate limits (protocol.md 11.7).
CREATE TABLE rate_buckets (
  key       TEXT PRIMARY KEY,
  tokens    REAL NOT NULL,
  filled_at INTEGER NOT NULL,
  filled    REAL NOT NULL                  -- on the boot-time clock
) WITHOUT ROWID;

CREATE TABLE owners (
  nonce TEXT PRIMARY KEY,
  slot  INTEGER NOT NULL UNIQUE,
  pid   INTEGER NOT NULL,
  mark  TEXT NOT NULL                      -- tells the process from a later one with its pid
) WITHOUT ROWID;
