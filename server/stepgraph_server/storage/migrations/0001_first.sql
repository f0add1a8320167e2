-- The first schema. A file here never changes once it was released: a later one follows it.
--
-- Times are microseconds since the epoch. Bytes are protobuf messages of stepgraph.v1, or contents; nothing here looks into them.

-- One row per run. What changes with every append stands in columns that no index mentions, so that an update
-- writes one page of this table and nothing else.
CREATE TABLE runs (
  run_key INTEGER PRIMARY KEY,
  namespace TEXT NOT NULL,
  run_id TEXT NOT NULL,
  status INTEGER NOT NULL,
  last_sequence INTEGER NOT NULL,
  iterations INTEGER NOT NULL,
  open_interrupts INTEGER NOT NULL,
  next_due INTEGER,
  input_tokens INTEGER NOT NULL,
  output_tokens INTEGER NOT NULL,
  cached_input_tokens INTEGER NOT NULL,
  reasoning_tokens INTEGER NOT NULL,
  quarantined INTEGER NOT NULL DEFAULT 0,
  create_time INTEGER NOT NULL,
  graph_digest TEXT NOT NULL,
  graph_name TEXT NOT NULL,
  graph_version INTEGER NOT NULL,
  parent_run_id TEXT NOT NULL,
  root_run_id TEXT NOT NULL,
  -- NULL while the run lives, then its last status.
  final_status INTEGER,
  end_time INTEGER,
  -- A JSON object, names sorted.
  labels TEXT NOT NULL,
  parent BLOB NOT NULL,
  origin BLOB NOT NULL,
  result BLOB,
  failure BLOB
) STRICT;

CREATE UNIQUE INDEX runs_by_id ON runs (namespace, run_id);
CREATE INDEX runs_by_time ON runs (namespace, create_time, run_id);
CREATE INDEX runs_by_root ON runs (namespace, root_run_id, create_time, run_id);
-- Child runs only: all others cost nothing here.
CREATE INDEX runs_by_parent ON runs (namespace, parent_run_id) WHERE parent_run_id <> '';
CREATE INDEX runs_by_graph ON runs (namespace, graph_digest, create_time, run_id);
CREATE INDEX runs_by_graph_name ON runs (namespace, graph_name, create_time, run_id) WHERE graph_name <> '';
-- Few runs live at a time: recovery, and lists of what is going on, must not read past all that ended.
CREATE INDEX runs_open ON runs (run_key) WHERE final_status IS NULL;
CREATE INDEX runs_ended ON runs (namespace, final_status, create_time, run_id) WHERE final_status IS NOT NULL;

-- The labels of runs again, to find runs by.
CREATE TABLE run_labels (
  namespace TEXT NOT NULL,
  name TEXT NOT NULL,
  value TEXT NOT NULL,
  create_time INTEGER NOT NULL,
  run_id TEXT NOT NULL,
  PRIMARY KEY (namespace, name, value, create_time, run_id)
) STRICT, WITHOUT ROWID;

-- One row per append, in the order of commits: rows are only ever added at the end of the table, which is more than
-- twice as fast as a table that is clustered by run. The index finds those of one run.
CREATE TABLE journal (
  position INTEGER PRIMARY KEY,
  run_key INTEGER NOT NULL,
  first_sequence INTEGER NOT NULL,
  last_sequence INTEGER NOT NULL,
  batch BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX journal_by_run ON journal (run_key, first_sequence);

-- What runs wait for, and what they were told.
CREATE TABLE questions (
  question_key INTEGER PRIMARY KEY,
  namespace TEXT NOT NULL,
  interrupt_id TEXT NOT NULL,
  run_id TEXT NOT NULL,
  root_run_id TEXT NOT NULL,
  status INTEGER NOT NULL,
  open_time INTEGER NOT NULL,
  external_token TEXT NOT NULL,
  question BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX questions_by_id ON questions (namespace, interrupt_id);
CREATE INDEX questions_by_status ON questions (namespace, status, open_time, interrupt_id);
CREATE INDEX questions_by_root ON questions (namespace, root_run_id, open_time, interrupt_id);
CREATE INDEX questions_by_run ON questions (namespace, run_id, open_time, interrupt_id);
CREATE INDEX questions_by_token ON questions (namespace, external_token) WHERE external_token <> '';

-- First responses to requests that change something.
CREATE TABLE requests (
  namespace TEXT NOT NULL,
  method TEXT NOT NULL,
  request_id TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  response BLOB NOT NULL,
  create_time INTEGER NOT NULL,
  PRIMARY KEY (namespace, method, request_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX requests_by_time ON requests (create_time);

-- Definitions of graphs, once each.
CREATE TABLE graphs (
  graph_key INTEGER PRIMARY KEY,
  namespace TEXT NOT NULL,
  digest TEXT NOT NULL,
  create_time INTEGER NOT NULL,
  definition BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX graphs_by_digest ON graphs (namespace, digest);

-- Versions of names.
CREATE TABLE graph_versions (
  namespace TEXT NOT NULL,
  name TEXT NOT NULL,
  version INTEGER NOT NULL,
  digest TEXT NOT NULL,
  create_time INTEGER NOT NULL,
  PRIMARY KEY (namespace, name, version)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX graph_versions_by_name_and_digest ON graph_versions (namespace, name, digest);
CREATE INDEX graph_versions_by_digest ON graph_versions (namespace, digest, create_time, name);

-- Large contents. One that is not complete is still being written, or was given up.
CREATE TABLE contents (
  content_key INTEGER PRIMARY KEY,
  namespace TEXT NOT NULL,
  digest TEXT NOT NULL,
  size_bytes INTEGER NOT NULL,
  media_type TEXT NOT NULL,
  form INTEGER NOT NULL,
  create_time INTEGER NOT NULL,
  complete INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX contents_by_digest ON contents (namespace, digest) WHERE complete = 1;
CREATE INDEX contents_incomplete ON contents (content_key) WHERE complete = 0;

CREATE TABLE content_chunks (
  chunk_key INTEGER PRIMARY KEY,
  content_key INTEGER NOT NULL,
  place INTEGER NOT NULL,
  bytes BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX content_chunks_by_place ON content_chunks (content_key, place);

-- One row, written to find out whether anything can be written.
CREATE TABLE probe (
  probe_key INTEGER PRIMARY KEY CHECK (probe_key = 1),
  count INTEGER NOT NULL
) STRICT;

INSERT INTO probe (probe_key, count) VALUES (1, 0);
