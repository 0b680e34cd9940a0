"""Check the schema: every table, column, index and constraint is as the migrations make it."""

from palaver.db.schema import known_migrations
from palaver.db.schema_check import Difference, compare_sqlite, expected_sqlite, read_sqlite
from palaver.db.sqlite import SqliteDatabase
from palaver.model.errors import StoreError
from palaver.store.damage.health_check import RESTORE_OR_SALVAGE, HealthCheck, listed
from palaver.store.meta import read_meta
from palaver.store.store import Store

_UNKNOWN_COLUMNS = (
    "use the Palaver that made these columns; if you added them yourself, remove them with: ALTER TABLE … DROP COLUMN …"
)


async def check_schema(store: Store) -> HealthCheck:
    version = await store.read(read_meta("schema")) or "unknown"
    known = known_migrations()[-1].number
    if version.isdecimal() and int(version) > known:
        found = f"schema {version}: a newer Palaver added to the schema {known} that this one knows"
        return HealthCheck(name="schema", ok=True, found=found, public=found)
    try:
        differences = await _differences(store)
    except StoreError as error:
        fix = "give this user the right to create a schema: GRANT CREATE ON DATABASE … TO …"
        return HealthCheck(name="schema", ok=False, found=f"it cannot be compared: {error}", fix=fix)
    found = listed(each.text for each in differences) or f"schema {version}, as the migrations make it"
    return HealthCheck(
        name="schema",
        ok=not differences,
        found=found,
        public=found,
        fix=RESTORE_OR_SALVAGE if any(each.mend for each in differences) else _UNKNOWN_COLUMNS,
    )


async def _differences(store: Store) -> list[Difference]:
    migrations = known_migrations()
    if isinstance(store.database, SqliteDatabase):
        return compare_sqlite(await store.read(read_sqlite()), expected_sqlite(migrations))
    from palaver.db import postgres_schema_check as postgres  # noqa: PLC0415 - of no use for SQLite

    found = await store.read(postgres.read_postgres())
    expected = await postgres.expected_postgres(store.database, migrations)
    return [*postgres.compare_postgres(found, expected), *await store.read(postgres.lagging_sequences())]
