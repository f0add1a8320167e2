-- Every statement that is always the same text. `-- name:` begins one; queries.py reads this file.
-- Statements that are run for many rows at once use ?, the others name their parameters.

-- name: find_run
SELECT run_key, last_sequence, root_run_id FROM runs WHERE namespace = ? AND run_id = ?;

-- name: counters
SELECT (SELECT coalesce(max(position), 0) FROM journal), (SELECT coalesce(max(run_key), 0) FROM runs);

-- name: insert_run
INSERT INTO runs (
  run_key, namespace, run_id,
  status, last_sequence, iterations, open_interrupts, next_due,
  input_tokens, output_tokens, cached_input_tokens, reasoning_tokens,
  create_time, graph_digest, graph_name, graph_version, parent_run_id, root_run_id, labels, parent, origin
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_label
INSERT INTO run_labels (namespace, name, value, create_time, run_id) VALUES (?, ?, ?, ?, ?);

-- name: insert_batch
INSERT INTO journal (position, run_key, first_sequence, last_sequence, batch) VALUES (?, ?, ?, ?, ?);

-- name: copy_batches
INSERT INTO journal (position, run_key, first_sequence, last_sequence, batch)
SELECT ?2 + first_sequence, ?1, first_sequence, last_sequence, batch
FROM journal WHERE run_key = ?3 AND last_sequence <= ?4 ORDER BY first_sequence;

-- name: last_of_run
SELECT max(last_sequence) FROM journal WHERE run_key = ?;

-- name: update_progress
UPDATE runs SET
  status = v.column1, last_sequence = v.column2, iterations = v.column3, open_interrupts = v.column4,
  next_due = v.column5, input_tokens = v.column6, output_tokens = v.column7,
  cached_input_tokens = v.column8, reasoning_tokens = v.column9
FROM (VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)) v WHERE runs.run_key = v.column10;

-- name: update_ending
UPDATE runs SET final_status = ?, end_time = ?, result = ?, failure = ? WHERE run_key = ?;

-- name: upsert_question
INSERT INTO questions (namespace, interrupt_id, run_id, root_run_id, status, open_time, external_token, question)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (namespace, interrupt_id) DO UPDATE SET
  run_id = excluded.run_id, root_run_id = excluded.root_run_id, status = excluded.status,
  open_time = excluded.open_time, external_token = excluded.external_token, question = excluded.question;

-- name: insert_request
INSERT INTO requests (namespace, method, request_id, fingerprint, response, create_time) VALUES (?, ?, ?, ?, ?, ?);

-- name: find_request
SELECT method, request_id, fingerprint, response, create_time
FROM requests WHERE namespace = ? AND method = ? AND request_id = ?;

-- name: forget_requests
DELETE FROM requests WHERE (namespace, method, request_id) IN (
  SELECT namespace, method, request_id FROM requests
  WHERE create_time < :created_before ORDER BY create_time LIMIT :limit
);

-- name: is_stored
SELECT 1 FROM journal WHERE position = ?;

-- name: probe
UPDATE probe SET count = count + 1;

-- The batch that holds the next event may begin before it.
-- name: read_run
SELECT j.first_sequence, j.last_sequence, j.position, j.batch
FROM runs r CROSS JOIN journal j ON j.run_key = r.run_key
WHERE r.namespace = :namespace AND r.run_id = :run_id AND j.last_sequence > :after_sequence
  AND j.first_sequence >= coalesce((
    SELECT max(first_sequence) FROM journal WHERE run_key = r.run_key AND first_sequence <= :after_sequence + 1
  ), 1)
ORDER BY j.first_sequence;

-- CROSS JOIN keeps this order of loops: from the cursor on through the journal, and no further than is asked for.
-- name: read_positions
SELECT r.run_id, j.first_sequence, j.last_sequence, j.position, j.batch
FROM journal j CROSS JOIN runs r ON r.run_key = j.run_key
WHERE j.position > :after_position AND r.namespace = :namespace
ORDER BY j.position;

-- name: open_runs
SELECT run_key, namespace, run_id, status, next_due,
  EXISTS (
    SELECT 1 FROM runs child
    WHERE child.namespace = runs.namespace AND child.parent_run_id = runs.run_id
      AND child.parent_run_id <> '' AND child.final_status IS NOT NULL
  )
FROM runs
WHERE final_status IS NULL AND run_key > :after_rowid AND quarantined = 0
ORDER BY run_key LIMIT :limit;

-- name: count_tree
SELECT count(*) FROM runs WHERE namespace = :namespace AND root_run_id = :run_id;

-- name: set_quarantined
UPDATE runs SET quarantined = 1 WHERE namespace = :namespace AND run_id = :run_id;

-- name: graph_by_name_and_digest
SELECT name, version, digest, create_time FROM graph_versions
WHERE namespace = :namespace AND name = :name AND digest = :digest;

-- name: latest_version
SELECT coalesce(max(version), 0) FROM graph_versions WHERE namespace = :namespace AND name = :name;

-- name: insert_graph
INSERT INTO graphs (namespace, digest, create_time, definition)
VALUES (:namespace, :digest, :create_time, :definition) ON CONFLICT DO NOTHING;

-- name: unnamed_graph
SELECT '', 0, digest, create_time FROM graphs WHERE namespace = :namespace AND digest = :digest;

-- name: insert_graph_version
INSERT INTO graph_versions (namespace, name, version, digest, create_time)
VALUES (:namespace, :name, :version, :digest, :create_time);

-- name: graph_by_version
SELECT v.name, v.version, v.digest, v.create_time, g.definition
FROM graph_versions v JOIN graphs g ON g.namespace = v.namespace AND g.digest = v.digest
WHERE v.namespace = :namespace AND v.name = :name AND (v.version = :version OR :version = 0)
ORDER BY v.version DESC LIMIT 1;

-- name: graph_by_digest
SELECT coalesce(v.name, ''), coalesce(v.version, 0), g.digest, coalesce(v.create_time, g.create_time), g.definition
FROM graphs g LEFT JOIN graph_versions v ON v.namespace = g.namespace AND v.digest = g.digest
WHERE g.namespace = :namespace AND g.digest = :digest
ORDER BY v.create_time, v.name LIMIT 1;

-- With max() the other columns are those of the row that has it.
-- name: list_names
SELECT name, max(version), digest, create_time FROM graph_versions
WHERE namespace = :namespace AND name > :after_name GROUP BY name ORDER BY name LIMIT :limit;

-- name: list_versions
SELECT name, version, digest, create_time FROM graph_versions
WHERE namespace = :namespace AND name = :name AND version < :before_version
ORDER BY version DESC LIMIT :limit;

-- name: begin_content
INSERT INTO contents (namespace, digest, size_bytes, media_type, form, create_time, complete)
VALUES (:namespace, '', :size_bytes, :media_type, :form, :create_time, 0) RETURNING content_key;

-- name: insert_chunk
INSERT INTO content_chunks (content_key, place, bytes) VALUES (:content_key, :place, :bytes);

-- name: find_content
SELECT content_key, digest, size_bytes, media_type, form FROM contents
WHERE namespace = :namespace AND digest = :digest AND complete = 1;

-- name: complete_content
UPDATE contents SET digest = :digest, complete = 1 WHERE content_key = :content_key;

-- name: incomplete_contents
SELECT content_key FROM contents WHERE complete = 0;

-- name: discard_chunks
DELETE FROM content_chunks WHERE chunk_key IN (
  SELECT chunk_key FROM content_chunks WHERE content_key = :content_key AND NOT EXISTS (
    SELECT 1 FROM contents c WHERE c.content_key = :content_key AND c.complete = 1
  ) LIMIT :limit
);

-- name: discard_content
DELETE FROM contents WHERE content_key = :content_key AND complete = 0;

-- name: read_chunk
SELECT substr(k.bytes, :skip + 1, :max_bytes) FROM contents c
LEFT JOIN content_chunks k ON k.content_key = c.content_key AND k.place = :place
WHERE c.namespace = :namespace AND c.digest = :digest AND c.complete = 1;

-- name: question_by_id
SELECT interrupt_id, status, open_time, external_token, question, namespace, run_id FROM questions
WHERE namespace = :namespace AND interrupt_id = :interrupt_id;

-- name: question_by_token
SELECT interrupt_id, status, open_time, external_token, question, namespace, run_id FROM questions
WHERE namespace = :namespace AND external_token = :external_token AND external_token <> ''
ORDER BY (status = :open_status) DESC, open_time DESC, interrupt_id DESC LIMIT 1;
