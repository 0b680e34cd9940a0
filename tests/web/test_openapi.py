"""The OpenAPI document is true: a fuzzer that knows nothing else finds no answer that it does not describe."""

import asyncio
import sys
from pathlib import Path

import httpx

from tests.web.conftest import Opened
from tests.web.test_api import token

_CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
    "negative_data_rejection,unsupported_method"
)
# Python 3.11 may not parse while it collects: https://github.com/python/cpython/issues/106905
_RUN = "import gc; gc.disable(); from schemathesis.cli import schemathesis; schemathesis()"


async def test_every_answer_is_as_the_document_says(window: Opened, tmp_path: Path) -> None:
    fuzzing = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _RUN, "run"),
        f"{window.url}/api/v1/openapi.json",
        *("--header", f"Authorization: Bearer {await token(window)}"),
        *("--exclude-path", "/api/v1/events"),  # it does not end
        *("--checks", _CHECKS, "--phases", "examples,coverage,fuzzing"),
        *(
            "--workers",
            "1",
            "--max-examples",
            "2",
            "--seed",
            "1",
            "--generation-database",
            "none",
            "--request-timeout",
            "120",
        ),
        *("--mode", "all", "--no-color"),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await fuzzing.communicate()
    assert fuzzing.returncode == 0, said.decode()[-6000:]


async def test_the_document_has_every_scope_and_shape(window: Opened) -> None:
    async with httpx.AsyncClient(timeout=60, headers={"authorization": f"Bearer {await token(window)}"}) as client:
        document = (await client.get(f"{window.url}/api/v1/openapi.json")).json()
    assert document["openapi"] == "3.1.0"
    sending = document["paths"]["/api/v1/messages"]["post"]
    assert sending["description"] == "Needs the chat scope."
    assert {"200", "202", "default"} == set(sending["responses"])
    assert [each["name"] for each in sending["parameters"]] == ["Idempotency-Key"]
    names = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names))
