"""Teacher-forced decoding: an engine takes given tokens and says what it would have taken.

In bf16 two attention kernels round differently, so free greedy runs drift apart at the first near
tie. With the same tokens forced on both, every step compares the same question.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import torch
from sglang.srt.sampling.custom_logit_processor import CustomLogitProcessor

from tests.engine.scenarios import Tokens, tokens

CLASSES = [
    tokens("head", 64) + tokens(f"forced{i}", length)
    for i, length in enumerate((64, 192, 448, 960))
]
PROMPTS = [CLASSES[i % 4] + tokens(f"row{i}", 3 + i) for i in range(24)]
NEW_TOKENS = 48


class Force(CustomLogitProcessor):  # type: ignore[misc]
    """Forces `tokens[step]` where tokens are given, and prints each step's answer to `log`.

    A line of the log: row, step, the token the engine preferred, its logit, the second's logit,
    and the logit of the forced token.
    """

    def __call__(
        self, logits: torch.Tensor, custom_param_list: list[dict[str, Any]] | None = None
    ) -> torch.Tensor:
        assert custom_param_list is not None
        best = logits.float().topk(2, dim=-1)
        values, indices = best.values.tolist(), best.indices.tolist()
        for row, params in enumerate(custom_param_list):
            step = params["step"]
            params["step"] = step + 1
            if step == NEW_TOKENS:
                continue  # under overlap one step more is run, and thrown away
            given = params["tokens"]
            token = given[step] if given else indices[row][0]
            entry = [params["row"], step, indices[row][0], *values[row], float(logits[row, token])]
            with Path(params["log"]).open("a") as log:
                log.write(" ".join(map(str, entry)) + "\n")
            logits[row] = -torch.inf
            logits[row, token] = 0.0
        return logits


def decode(engine: Any, job: dict[str, Any]) -> list[Tokens]:
    """Decode PROMPTS together, forced to `job["tokens"]` (free if empty); logs to `job["log"]`."""

    async def one(row: int) -> Tokens:
        given = job["tokens"][row] if job["tokens"] else []
        answer = await engine.async_generate(
            input_ids=PROMPTS[row],
            sampling_params={
                "temperature": 0,
                "max_new_tokens": NEW_TOKENS,
                "ignore_eos": True,
                "custom_params": {"row": row, "step": 0, "tokens": given, "log": job["log"]},
            },
            custom_logit_processor=Force.to_str(),
        )
        return list(answer["output_ids"])

    async def prime() -> None:
        for prompt in CLASSES:
            await engine.async_generate(
                input_ids=prompt + tokens("prime", 2), sampling_params={"max_new_tokens": 1}
            )

    async def all_of_them() -> list[Tokens]:
        await prime()
        return list(await asyncio.gather(*[one(row) for row in range(len(PROMPTS))]))

    answers: list[Tokens] = engine.loop.run_until_complete(all_of_them())
    return answers
