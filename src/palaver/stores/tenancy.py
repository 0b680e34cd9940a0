"""Gateways on one server: each holds the schema as it is, and whoever would change it is told who does."""

import os
import socket

from palaver.domain.errors import StoreInUse
from palaver.ports.work import Steps, work

__all__ = ["HOLD", "nobody_serves", "tenant"]

_NAME = "hashtextextended('gateways of palaver in ' || current_schema(), 0)"
HOLD = f"SELECT pg_advisory_lock_shared({_NAME})"
"""Until the connection ends. It waits while somebody changes the schema."""
_SHOWN = 5


def tenant(version: int) -> str:
    """What a connection is called on the server; no longer than the server keeps."""
    return f"palaver gateway, schema {version}, pid {os.getpid()} on {socket.gethostname()}"[:63]


@work
def nobody_serves() -> Steps[None]:
    """No gateway works with the schema, and none begins to until the end of the work. Raises StoreInUse."""
    rows = yield f"SELECT pg_try_advisory_xact_lock({_NAME})", ()
    if rows[0][0]:
        return
    held = yield (
        "SELECT coalesce(nullif(a.application_name, ''), 'process ' || l.pid) FROM pg_locks l"
        " LEFT JOIN pg_stat_activity a ON a.pid = l.pid WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted"
        " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        f" AND (l.classid::bigint << 32 | l.objid::bigint) = {_NAME} ORDER BY 1",
        (),
    )
    names = [row[0] for row in held]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    raise StoreInUse(f"gateways still work with it ({'; '.join(names[:_SHOWN])}{more}): stop them first")
