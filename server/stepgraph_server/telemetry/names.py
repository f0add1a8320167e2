"""The actions of log events, as constants: what operators search for and alert on.

Rules: an action is for ever, `<noun>.<what happened>`; the message beside it may change. There is one event when something
long begins and one when it ends, and none per frame, event or request that went well.
"""

from __future__ import annotations

from typing import Final

SERVER_READY: Final = "server.ready"
"""Calls are taken. Fields: address, data, version, pid."""

SERVER_STOPPING: Final = "server.stopping"
"""No more calls are taken; what is under way is ended."""

SERVER_STOPPED: Final = "server.stopped"
"""Everything is closed. Fields: seconds."""

SERVER_FAILED: Final = "server.failed"
"""A fault ended the server; with a traceback."""

SERVER_CUT: Final = "server.cut"
"""Calls had to be ended that did not end by themselves in time. Fields: count."""

SERVER_INSECURE: Final = "server.insecure"
"""The server can be reached beyond this machine without encryption or authentication. Fields: address."""

DATA_EPHEMERAL: Final = "data.ephemeral"
"""Everything is kept in memory only, or in a file on a file system that goes with the container or the machine's power. Fields, of
a file: data, file_system."""

DATA_REMOTE: Final = "data.remote"
"""The data file is on a file system of the network, where SQLite is not safe. Fields: data, file_system."""

READINESS_LOST: Final = "readiness.lost"
"""Nothing can be written; probes are told. Fields: cause."""

READINESS_REGAINED: Final = "readiness.regained"
"""Writing works again."""

CALL_FAULT: Final = "call.fault"
"""A call ended with INTERNAL: a fault of the server. Fields: method, incident_id; with a traceback."""

CALL_REFUSED: Final = "call.refused"
"""A call was refused; at level debug. Fields: method, reason."""

JOURNAL_FAILED: Final = "journal.failed"
"""Appends could not be written; said once until one could again. Fields: cause, with SQLite's words and the path."""

JOURNAL_FAULT: Final = "journal.fault"
"""A fault of ours while something was written; with a traceback. Whoever waits for it is told that it was not written."""

RUN_REREAD: Final = "run.reread"
"""An append of a run failed, so the run is read again; at level debug if that is to be expected. Fields: namespace, run_id, trace_id, error, cause."""

RUN_QUARANTINED: Final = "run.quarantined"
"""A run can't be read or decided: nothing acts on it any more. Fields: namespace, run_id, trace_id; with a traceback."""

LOOP_LAGGED: Final = "loop.lagged"
"""One turn of the loop took more than 250 ms; said at most every 5 s. Fields: milliseconds, of the longest."""

SPANS_LOST: Final = "spans.lost"
"""Spans are missing in traces; said at most every minute. Fields, since the start: unsent_spans, dropped_events."""

SPANS_FAULT: Final = "spans.fault"
"""A fault of ours while spans were made; with a traceback."""

COLLECTOR_LOST: Final = "collector.lost"
"""What should be recorded can't be sent; said once until it can be again. Fields: signal."""

COLLECTOR_REGAINED: Final = "collector.regained"
"""It can be sent again. Fields: signal."""

TELEMETRY_STARTED: Final = "telemetry.started"
"""Something is recorded. Fields: traces, metrics, sampled_ratio, metrics_address."""

TELEMETRY_IGNORED: Final = "telemetry.ignored"
"""A variable of OpenTelemetry's can't be used and is ignored. Fields: variable, expected."""

SETTING_UNKNOWN: Final = "setting.unknown"
"""A variable of the environment looks like a setting and is none. Fields: variable, closest."""

REQUESTS_FORGOTTEN: Final = "requests.forgotten"
"""Records of old request ids were deleted; at level debug. Fields: count."""

RUNS_RECOVERING: Final = "runs.recovering"
"""Runs that were under way when the server stopped are being taken up; said every 2 s. Calls are answered. Fields: done, count."""

RUNS_RECOVERED: Final = "runs.recovered"
"""All runs that were under way were taken up. Fields: count, seconds."""

SESSION_OPENED: Final = "session.opened"
"""An executor has connected. Fields: namespace, executor_id, session_id, client, held, unacknowledged."""

SESSION_ENDED: Final = "session.ended"
"""An executor's session is over. Fields: namespace, executor_id, reason, seconds."""
