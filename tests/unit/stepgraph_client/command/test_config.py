from __future__ import annotations


def test_each_setting_is_shown_with_where_it_is_from(run, server, tmp_path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('[client]\ntimeout = "9s"\n')
    out = run("--config", str(file), "config").out
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert lines["file:"] == f"file: {file}"
    assert lines["server"].split()[1:5] == [server.address, "the", "flag", "--server"]
    assert lines["timeout"].split()[1:4] == ["9s", str(file), "STEPGRAPH_TIMEOUT"]
    assert lines["namespace"].split()[1:3] == ["default", "default"]


def test_a_file_that_is_not_there_is_said_to_be_fine(run, tmp_path) -> None:
    path = tmp_path / "home" / "stepgraph" / "config.toml"
    assert run("config").out.startswith(f"file: {path} (not there, which is fine)\n")


def test_programs_can_read_it(run, server) -> None:
    document = run("config", "--json").json
    assert document["file_exists"] is False
    assert document["settings"][0] == {
        "name": "server",
        "value": server.address,
        "source": "the flag --server",
        "variable": "STEPGRAPH_SERVER",
    }
    assert run("config", "-o", "yaml").out.startswith("file: ")
