"""HTTP routes of the declared prefixes; all of them need the server's admin key.

POST /granikv/pins {"input_ids": [...]} or {"text": "..."} declares, GET lists, DELETE
/granikv/pins/{number} unpins. The prefix is prefilled at once, so its first reader finds it.
"""

from __future__ import annotations

import itertools
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse
from sglang.srt.managers.io_struct import GenerateReqInput, SetInternalStateReq
from sglang.srt.utils.auth import AuthLevel, auth_level

from granikv.config import GraniKVConfig
from granikv.engine.pins import CUSTOM_PARAMETER, signature

UNPIN = "granikv_unpin"
"""The key of `/set_internal_state` with which a pin's number is released on every rank."""


def add_pin_routes(app: Any, config: GraniKVConfig, manager: Any) -> None:
    """Add the routes to the engine's FastAPI ``app``.

    Args:
        manager: called without arguments, gives the engine's tokenizer manager.
    """
    numbers = itertools.count(1)

    async def listed() -> list[dict[str, Any]]:
        states = await manager().get_internal_state()
        return list(states[0]["granikv"][0]["pins"])

    async def list_pins() -> Any:
        return {"pins": await listed()}

    async def add_pin(request: Request) -> Any:
        try:
            tokens = _tokens(await request.json(), manager().tokenizer)
        except ValueError as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        number = next(numbers)
        signed = {"number": number, "signature": signature(config.control_token, number, tokens)}
        sampling = {
            "max_new_tokens": 1,
            "temperature": 0,
            "custom_params": {CUSTOM_PARAMETER: signed},
        }
        asked = GenerateReqInput(input_ids=tokens, sampling_params=sampling)
        try:
            async for _ in manager().generate_request(asked, request):
                pass
        except ValueError as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        pin = next((p for p in await listed() if p["number"] == number), None)
        if pin is None:
            return JSONResponse({"error": "the engine did not take this prompt"}, status_code=400)
        if pin["error"]:
            await manager().set_internal_state(SetInternalStateReq(server_args={UNPIN: number}))
            return JSONResponse(pin, status_code=409)
        return JSONResponse(pin)

    async def remove_pin(number: int) -> Any:
        known = any(p["number"] == number for p in await listed())
        if not known:
            return JSONResponse({"error": f"no pin {number}"}, status_code=404)
        await manager().set_internal_state(SetInternalStateReq(server_args={UNPIN: number}))
        return {"unpinned": number}

    force = auth_level(AuthLevel.ADMIN_FORCE)
    app.add_api_route("/granikv/pins", force(list_pins), methods=["GET"])
    app.add_api_route("/granikv/pins", force(add_pin), methods=["POST"])
    app.add_api_route("/granikv/pins/{number}", force(remove_pin), methods=["DELETE"])


def _tokens(body: Any, tokenizer: Any) -> list[int]:
    """The prefix that a declaration names.

    Raises:
        ValueError: it names none, or not one, or names a text to a server without a tokenizer.
    """
    given = [k for k in ("input_ids", "text") if isinstance(body, dict) and k in body]
    if len(given) != 1:
        raise ValueError("give input_ids or text, one of them")
    prefix = body[given[0]]
    if given == ["text"]:
        if tokenizer is None or not isinstance(prefix, str):
            raise ValueError("this server has no tokenizer, or text is no string: give input_ids")
        prefix = tokenizer.encode(prefix)
    if not isinstance(prefix, list) or not prefix or not all(type(i) is int for i in prefix):
        raise ValueError("input_ids must be a list of token ids, not empty")
    return list(prefix)
