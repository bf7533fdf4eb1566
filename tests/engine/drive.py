"""Runs scenarios on one real engine and writes the answers and the storage layer's state as JSON.

`python -m tests.engine.drive JOB.json OUT.json`. A program of its own, since an engine starts
processes and cannot be started twice in one. The schedulers that it spawns import this module
again, which is how a mutant reaches them; those that `forked.py` forks inherit it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from tests.engine import forced, mutants, native_ops, recorder
from tests.engine.scenarios import LONG_SCENARIOS, SCENARIOS, Asker

native_ops.apply()
mutants.apply(os.environ.get("GRANIKV_TEST_MUTANT", ""))
recorder.apply()


def start(job: dict[str, Any]) -> Any:
    import sglang

    from granikv.config import GraniKVConfig
    from granikv.flags import engine_options

    options = dict(job["engine"])
    if job["granikv"] is not None:
        config = GraniKVConfig(**job["granikv"])
        config.store()
        options |= engine_options(config)
    return sglang.Engine(**options)


def storage_state(engine: Any) -> dict[str, Any]:
    """What rank 0 says of its storage layer, and what the other ranks do."""
    states = engine.get_server_info()["internal_states"]
    first, *others = states[0].get("granikv", [{}])
    return {"state": dict(first), "other_ranks": others}


def main(job_path: str, out_path: str) -> None:
    job = json.loads(Path(job_path).read_text())
    engine = start(job)
    ask = Asker(engine)
    results: dict[str, Any] = {}
    try:
        for name in job["scenarios"]:
            answers = {**SCENARIOS, **LONG_SCENARIOS}[name](ask)
            # The engine checks its own books when it falls idle; what it finds ends the next
            # scenario, and after the last it has longer.
            ask.run(asyncio.sleep(0.3 if name == job["scenarios"][-1] else 0.05))
            results[name] = {"answers": answers, **storage_state(engine)}
            print(f"{time.strftime('%H:%M:%S')} {name}: {len(answers)} answers", flush=True)
        if job.get("teacher") is not None:
            answers = forced.decode(engine, job["teacher"])
            results["forced"] = {"answers": answers, **storage_state(engine)}
        if job.get("refused") is not None:
            results["refused"] = refused(ask, job["refused"])
    finally:
        engine.shutdown()
    Path(out_path).write_text(json.dumps(results))


def refused(ask: Asker, length: int) -> str:
    """The error of a request that can never fit, and proof that the engine goes on."""
    from tests.engine.scenarios import tokens

    try:
        ask.run(asyncio.wait_for(ask.one(tokens("huge", length), 8), 60))
    except ValueError as error:
        ask.run(asyncio.wait_for(ask.one(tokens("after", 12), 4), 60))
        return str(error)
    return ""


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
