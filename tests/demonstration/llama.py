"""The small local model as an OpenAI-compatible server: python -m tests.demonstration.llama

It prints its address, and ends when its standard input does.
"""

import sys
from typing import Any

import xllamacpp

from palaver.agents.local import installed_model


def main() -> None:
    llama: Any = xllamacpp
    params = llama.CommonParams()
    params.model.path = str(installed_model())
    params.n_ctx, params.n_parallel = 4096, 2  # a slot for each platform, whose prompts begin differently
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.verbosity, params.warmup, params.ui = -1, False, False
    params.hostnames, params.port = ["127.0.0.1"], 0
    server = llama.Server(params)
    print(server.listening_address, flush=True)  # noqa: T201
    sys.stdin.read()


if __name__ == "__main__":
    main()
