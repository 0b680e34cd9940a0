"""Find text that is not UTF-8: SQLite stores any bytes as text, and cannot read them back."""

from typing import NamedTuple

from palaver.db.sqlite import SqliteDatabase
from palaver.db.transaction import Statements, transaction
from palaver.model.text import counted
from palaver.store.damage.health_check import RESTORE_OR_SALVAGE, HealthCheck, listed


class BadText(NamedTuple):
    table: str
    column: str
    content: bytes

    @property
    def readable(self) -> str:
        return self.content.decode(errors="replace")


async def check_text(database: SqliteDatabase) -> HealthCheck:
    bad = [each for column in await database.read(text_columns()) for each in await database.read(_find(*column))]
    named = listed(f"{each.table}.{each.column} {each.readable!r}" for each in bad)
    return HealthCheck(
        name="text",
        ok=not bad,
        found=f"{counted(len(bad), 'text is', 'texts are')} not UTF-8: {named}" if bad else "every text is UTF-8",
        public=f"not UTF-8: {len(bad)}",
        fix=RESTORE_OR_SALVAGE,
    )


@transaction
def text_columns() -> Statements[list[tuple[str, str]]]:
    """Return table and name of every text column, on either database."""
    rows = yield (
        "SELECT /*pg table_name::text, column_name::text FROM information_schema.columns"
        " WHERE table_schema = current_schema() AND data_type = 'text' ORDER BY 1, 2 --*/ m.name, c.name"
        " FROM sqlite_master m JOIN pragma_table_info(m.name) c"
        " WHERE m.type = 'table' AND c.type = 'TEXT' ORDER BY 1, 2",
        (),
    )
    return [(row[0], row[1]) for row in rows]


@transaction
def _find(table: str, column: str) -> Statements[list[BadText]]:
    # Most text is ASCII, which needs no look.
    rows = yield f"""SELECT DISTINCT CAST("{column}" AS BLOB) FROM "{table}" WHERE "{column}" GLOB '*[^ -~]*'""", ()
    return [BadText(table, column, content) for (content,) in rows if not _is_utf8(content)]


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
