"""What is asked of a real engine: prompts that exercise the storage layer, with greedy decoding.

Every scenario gives the token ids of each of its answers, so that two systems can be compared
token by token. Prompts come from one seeded generator: the same in every process.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

Answer = TypeVar("Answer")
Tokens = list[int]
Answers = list[Tokens]


def tokens(seed: str, length: int) -> Tokens:
    """`length` token ids, the same for the same seed."""
    source = random.Random(seed)
    return [source.randrange(3, 510) for _ in range(length)]


def sampling(max_new_tokens: int) -> dict[str, Any]:
    return {"temperature": 0, "max_new_tokens": max_new_tokens, "ignore_eos": True}


class Asker:
    """Sends requests to an `sglang.Engine` of this process and keeps what comes back."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine

    def run(self, work: Awaitable[Answer]) -> Answer:
        answer: Answer = self.engine.loop.run_until_complete(work)
        return answer

    async def one(self, prompt: Tokens, new: int) -> Tokens:
        answer = await self.engine.async_generate(input_ids=prompt, sampling_params=sampling(new))
        return list(answer["output_ids"])

    async def together(self, prompts: list[Tokens], new: int | list[int]) -> Answers:
        lengths = new if isinstance(new, list) else [new] * len(prompts)
        asked = zip(prompts, lengths, strict=True)
        return list(await asyncio.gather(*[self.one(p, n) for p, n in asked]))

    async def aborted(
        self, prompt: Tokens, rid: str, new: int, after_tokens: int | None, after_s: float | None
    ) -> None:
        """Send a request and cancel it after some tokens or some time."""
        stream = await self.engine.async_generate(
            input_ids=prompt, sampling_params=sampling(new), stream=True, rid=rid
        )
        if after_s is not None:
            asyncio.get_running_loop().call_later(after_s, self._abort, rid)
        async for part in stream:
            if after_tokens is not None and len(part["output_ids"]) >= after_tokens:
                self._abort(rid)

    def _abort(self, rid: str) -> None:
        self.engine.tokenizer_manager.abort_request(rid=rid)

    def flush(self) -> None:
        """Flush the cache; the engine refuses while a request lingers, so ask again."""
        for _ in range(100):
            if self.engine.flush_cache().success:
                return
            self.run(asyncio.sleep(0.05))
        raise RuntimeError("the engine would not flush its cache")


def one_prefix(ask: Asker) -> Answers:
    """A cold burst behind one prefix, then the same again warm."""
    prompts = [tokens("A", 200) + tokens(f"a{i}", 5 + i) for i in range(8)]
    cold = ask.run(ask.together(prompts, 20))
    return cold + ask.run(ask.together(prompts, 20))


def four_classes(ask: Asker) -> Answers:
    """Four prefixes of unequal length behind one common head, primed, then interleaved."""
    head = tokens("head", 40)
    classes = [head + tokens(f"class{i}", 60 + 20 * i) for i in range(4)]
    primed = ask.run(ask.together([c + tokens("prime", 2) for c in classes], 1))
    prompts = [classes[i % 4] + tokens(f"b{i}", 4 + i) for i in range(12)]
    return primed + ask.run(ask.together(prompts, 20))


def nested(ask: Asker) -> Answers:
    """A system prompt, a role's, a document: prefixes within prefixes, and a cut inside one."""
    system = tokens("system", 64)
    role = system + tokens("role", 48)
    document = role + tokens("document", 80)
    bases = [system, system, role, role, document, document, document, document[:150]]
    first = ask.run(ask.together([b + tokens(f"n{i}", 3 + i) for i, b in enumerate(bases)], 20))
    again = [document[:150], document, role, system, document[:150]]
    prompts = [b + tokens(f"m{i}", 3 + i) for i, b in enumerate(again)]
    return first + ask.run(ask.together(prompts, 20))


def staggered(ask: Asker) -> Answers:
    """Rows that leave at different steps, and identical prompts."""
    prompts = [tokens("A", 200) + tokens(f"s{i}", 5 + i) for i in range(6)]
    uneven = ask.run(ask.together(prompts, [3, 36, 7, 22, 1, 30]))
    return uneven + ask.run(ask.together([tokens("twin", 90)] * 5, [4, 20, 11, 28, 1]))


def long_prompts(ask: Asker) -> Answers:
    """Prompts of several prefill chunks, twice, so that chunk nodes chain up."""
    prompts = [tokens("B", 330) + tokens(f"l{i}", 5) for i in range(4)]
    first = ask.run(ask.together(prompts[:2], 16))
    return first + ask.run(ask.together(prompts, 16))


def pressure(ask: Asker) -> Answers:
    """More live tokens than a small pool holds: eviction, donation, retraction; then again."""
    distinct = ask.run(ask.together([tokens(f"d{i}", 100) for i in range(12)], 40))
    heads = [tokens("P", 120), tokens("Q", 100)]
    prompts = [heads[i % 2] + tokens(f"p{i}", 20) for i in range(14)]
    return distinct + ask.run(ask.together(prompts, 48)) + ask.run(ask.together(prompts, 48))


def aborts(ask: Asker) -> Answers:
    """Half of the readers of one prefix are cancelled in mid-decode; the others must not notice."""
    prefix = tokens("C", 128)

    async def run() -> Answers:
        kept = [ask.one(prefix + [50 + i] * 4, 40) for i in range(4)]
        cut = [
            ask.aborted(prefix + [90 + i] * 4, f"cut{i}", 60, after_tokens=8, after_s=None)
            for i in range(4)
        ]
        cutting = asyncio.gather(*cut)
        answers = await asyncio.gather(*kept)
        await cutting
        return list(answers)

    answers = ask.run(run())
    # Cancelled after 15 to 19 ms, whatever they are at then, and asked again.
    again = [prefix + [120 + i] * 4 for i in range(5)]
    early = [ask.aborted(p, f"early{i}", 40, None, 0.015 + 0.001 * i) for i, p in enumerate(again)]

    async def cancel_early() -> None:
        await asyncio.gather(*early)

    ask.run(cancel_early())
    return answers + ask.run(ask.together([prefix + [90 + i] * 4 for i in range(4)] + again, 16))


def aborts_in_prefill(ask: Asker) -> Answers:
    """Cancelled while their prompt is being prefilled chunk by chunk; the prompt is asked again."""
    prefix = tokens("D", 300)

    async def run() -> Answers:
        await ask.one(prefix + tokens("d0", 3), 2)
        cut = [
            ask.aborted(prefix + tokens(f"e{i}", 300), f"chunk{i}", 20, None, 0.01 + 0.02 * i)
            for i in range(3)
        ]
        kept = [ask.one(prefix + tokens("e9", 250), 16), ask.one(prefix + tokens("f", 9), 16)]
        cutting = asyncio.gather(*cut)
        answers = await asyncio.gather(*kept)
        await cutting
        return list(answers)

    answers = ask.run(run())
    return answers + ask.run(ask.together([prefix + tokens(f"e{i}", 300) for i in range(2)], 8))


def flushed(ask: Asker) -> Answers:
    """The cache is flushed between two bursts of the same prompts."""
    prompts = [tokens("A", 200) + tokens(f"a{i}", 5 + i) for i in range(6)]
    ask.flush()
    first = ask.run(ask.together(prompts, 12))
    ask.flush()
    return first + ask.run(ask.together(prompts, 12))


def oversized(ask: Asker) -> Answers:
    """One request that needs most of a small pool, and small ones behind it."""

    async def run() -> Answers:
        big = asyncio.ensure_future(ask.one(tokens("big", 400), 300))
        await asyncio.sleep(0.3)
        small = await asyncio.wait_for(
            ask.together([tokens(f"t{i}", 10) for i in range(3)], 5), 120
        )
        return [await asyncio.wait_for(big, 120), *small]

    return ask.run(run())


def soak(ask: Asker) -> Answers:
    """A thousand requests behind five prefixes, 256 of them in flight; then all is quiet."""
    heads = [tokens(f"soak{i}", 60) for i in range(5)]
    gate = asyncio.Semaphore(256)

    async def one(number: int) -> Tokens:
        prompt = heads[number % 5][: 20 + number % 40] + tokens(f"k{number}", 1 + number % 7)
        async with gate:
            return await ask.one(prompt, 1 + number % 5)

    async def all_of_them() -> Answers:
        return list(await asyncio.gather(*[one(i) for i in range(1000)]))

    return ask.run(all_of_them())


def parade(ask: Asker) -> Answers:
    """Requests come and go all the time, 12 in flight, so that most steps have a new composition.

    Some 2,000 decode steps; six prefixes, four of them nested in one another.
    """
    nest = tokens("parade", 40)
    heads = [nest + tokens("role", 24 * i) for i in range(4)] + [tokens(f"p{i}", 90) for i in "ab"]
    gate = asyncio.Semaphore(12)

    async def one(number: int) -> Tokens:
        prompt = heads[number * 5 % 6] + tokens(f"g{number}", 1 + number % 9)
        async with gate:
            return await ask.one(prompt, 24 + number * 7 % 37)

    async def all_of_them() -> Answers:
        return list(await asyncio.gather(*[one(i) for i in range(640)]))

    return ask.run(all_of_them())


def churn(ask: Asker) -> Answers:
    """Every six requests bring a prefix of their own, while others decode: relocation under load.

    A small pool holds few of the prefixes, so slabs and the slots they came from are soon reused.
    """
    gate = asyncio.Semaphore(14)

    async def one(number: int) -> Tokens:
        prompt = tokens(f"c{number // 6}", 50 + number // 6 % 50) + tokens(f"t{number}", 2)
        async with gate:
            return await ask.one(prompt, 6 + number * 5 % 23)

    async def all_of_them() -> Answers:
        return list(await asyncio.gather(*[one(i) for i in range(480)]))

    return ask.run(all_of_them())


LONG_SCENARIOS = {"soak": soak, "parade": parade, "churn": churn}
"""Asked only by name."""

SCENARIOS: dict[str, Callable[[Asker], Answers]] = {
    scenario.__name__: scenario
    for scenario in (
        one_prefix,
        four_classes,
        nested,
        staggered,
        long_prompts,
        pressure,
        aborts,
        aborts_in_prefill,
        flushed,
        oversized,
    )
}
