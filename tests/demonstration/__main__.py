"""Play the whole conversation and print it: python -m tests.demonstration"""

import asyncio
import os
import tempfile
from pathlib import Path

from tests.demonstration.model import serving_models
from tests.demonstration.play import SCENES
from tests.demonstration.stage import Line, home, staged


def show(line: Line) -> None:
    print(f"{line.place:8}  {line.who:9} ", line.text.replace("\n", "\n" + " " * 21), flush=True)  # noqa: T201


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="palaver-demonstration-") as folder:
        os.environ["HOME"] = str(home(Path(folder) / "home"))
        async with serving_models() as models, staged(Path(folder), models) as stage:
            stage.told = show
            for scene in SCENES:
                print(f"\n{scene.__doc__}\n")  # noqa: T201
                await scene(stage)
            print("\nWhich tools were called was decided before; this is what the model wrote for them:\n")  # noqa: T201
            for name, written in models.written:
                print(f"{name:14}", written.strip().replace("\n", "\n" + " " * 15))  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main())
