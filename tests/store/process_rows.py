"""Rows of background processes that no supervisor runs."""

from palaver.db.transaction import Statements, transaction


@transaction
def start_process(session: int, started: int = 0) -> Statements[None]:
    columns = "id, session_no, place, origin, backend, command, folder, terminal, home, host, worker"
    values = "'p1', ?, 'place', ?, 'local', 'sleep 600', '/', 0, 'home', 'host', 'worker'"
    yield (
        f"INSERT INTO processes ({columns}, lease_until, started, exit_notice) VALUES ({values}, 0, ?, 'off')",  # noqa: S608
        (session, b"{}", started),
    )


@transaction
def end_process() -> Statements[None]:
    yield "UPDATE processes SET exited = started + 1, exit_code = 0, ended = started + 1", ()
