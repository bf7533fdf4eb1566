"""The functions that SGLang calls: one object a process, one method a seam."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from granikv.config import AUTO, GRANIKV, ConfigError, GraniKVConfig
from granikv.cost import Geometry
from granikv.dispatch import (
    CASCADE,
    CONTIGUOUS_UNSHARED,
    DENSE,
    HYDRAGEN,
    PAGED,
    DispatchRule,
    Forced,
    auto_rule,
)
from granikv.engine import plugin, refusals, state
from granikv.engine.runtime import Runtime
from granikv.hardware import HardwareProfile, ProfileError, find_profile, load_profile


class Adapters:
    """Factories and hooks of one process, around one `Runtime`."""

    def __init__(self, config: GraniKVConfig) -> None:
        self.config = config
        self.runtime = Runtime(config)

    # -- factories -----------------------------------------------------------------------------

    def tree(self, context: Any) -> Any:
        """The radix tree; ``context`` is the engine's TreeCacheBuildContext."""
        with plugin.ending_the_engine("the radix tree could not be built"):
            return self._tree(context)

    def _tree(self, context: Any) -> Any:
        from granikv.engine.nodes import extend_tree_nodes
        from granikv.engine.tree import GraniKVRadixCache

        if context.disable_radix_cache or context.is_hybrid_swa or context.is_hybrid_ssm:
            plugin.end_engine("GraniKV needs the plain radix cache of a full-attention model")
        extend_tree_nodes()
        self.runtime.tree = GraniKVRadixCache(context.params, self.config)
        return self.runtime.tree

    def decode_backend(self, runner: Any) -> Any:
        """The decode backend; ``runner`` is the engine's ModelRunner."""
        with plugin.ending_the_engine("the decode backend could not be built"):
            return self._decode_backend(runner)

    def _decode_backend(self, runner: Any) -> Any:
        for refusal in (
            refusals.refusal_of_engine(runner.server_args),
            refusals.refusal_of_model(runner.model_config),
            refusals.refusal_of_layers(runner.model),
            refusals.refusal_of_pool(runner.token_to_kv_pool),
        ):
            if refusal is not None:
                plugin.end_engine(refusal)
        config, ranks = runner.model_config, runner.server_args.tp_size
        shape = geometry(config, ranks, runner.dtype.itemsize)
        self.runtime.group_size = shape.group
        stock, _ = runner.server_args.get_attention_backends()
        on_gpu = str(runner.device) != "cpu"
        sharing = sharing_backends(self.config, on_gpu)
        if on_gpu:
            from granikv.engine.gpu.children import lacks

            sharing = serving({name: lacks(name, shape) for name in sharing})
        self.runtime.rule = rule_for(self.config, str(runner.device), shape, stock, sharing)
        if not on_gpu:
            from granikv.engine.backend import GraniKVDecodeBackend

            return GraniKVDecodeBackend(runner, self.runtime)
        from granikv.engine.gpu.backend import GraphDecodeBackend

        used = self.runtime.rule.sharing()
        return GraphDecodeBackend(runner, self.runtime, stock, used, shape)

    def graph_runner(self, result: Any, runner: Any) -> Any:
        """ModelRunner._decode_cuda_graph_runner_cls: the runner that captures our variants."""
        from granikv.engine.gpu.graphs import GraniKVGraphRunner

        return GraniKVGraphRunner

    # -- hooks ---------------------------------------------------------------------------------

    def after_init_new(self, result: Any, *args: Any, **kwargs: Any) -> None:
        """ForwardBatch.init_new: the rows are written and the forward comes next."""
        batch = next(a for a in (*args, *kwargs.values()) if hasattr(a, "reqs"))
        self.runtime.before_forward(batch)

    def after_scheduler_init(self, result: Any, scheduler: Any, *args: Any, **kwargs: Any) -> None:
        """Scheduler.__init__: everything asked for is in use, or there is no server."""
        self.runtime.scheduler = scheduler
        runner = scheduler.tp_worker.model_runner
        backend = getattr(runner.attn_backend, "decode_backend", runner.attn_backend)
        if getattr(backend, "runtime", None) is not self.runtime:
            plugin.end_engine("the engine did not take the decode backend")
        if self.config.system == GRANIKV and scheduler.tree_cache is not self.runtime.tree:
            plugin.end_engine("the engine did not take the radix tree")
        if self.runtime.tree is not None:
            self._watch_pins(scheduler)

    def after_get_internal_state(self, result: Any, scheduler: Any, *args: Any) -> None:
        """Scheduler.get_internal_state: add the storage layer to `/server_info`."""
        runner = scheduler.tp_worker.model_runner
        prefill = str(runner.prefill_attention_backend_str)
        own = state.snapshot(self.runtime, prefill)
        result.internal_state["granikv"] = state.of_all_ranks(own, scheduler)

    def around_set_internal_state(self, original: Any, scheduler: Any, request: Any) -> Any:
        """Scheduler.set_internal_state: release a pin; everything else is the engine's."""
        from sglang.srt.managers.io_struct import SetInternalStateReqOutput

        from granikv.engine.pin_routes import UNPIN

        if self.runtime.tree is None or UNPIN not in request.server_args:
            return original(scheduler, request)
        number = request.server_args[UNPIN]
        released = isinstance(number, int) and self.runtime.tree.pins.release(number)
        return SetInternalStateReqOutput(updated=released)

    def before_http_server(self, *args: Any, **kwargs: Any) -> None:
        """http_server.launch_server: add the routes of declared prefixes."""
        if self.config.system != GRANIKV:
            return
        from sglang.srt.entrypoints import http_server

        from granikv.engine.pin_routes import add_pin_routes

        add_pin_routes(
            http_server.app, self.config, lambda: http_server._global_state.tokenizer_manager
        )

    def _watch_pins(self, scheduler: Any) -> None:
        """A request that fits only without the pins would wait for ever: refuse it at once.

        The limits follow the pins that are declared; one that a request already taken could not
        live with, be it waiting or running, is refused itself.
        """
        tree, pool = self.runtime.tree, scheduler.token_to_kv_pool_allocator
        assert tree is not None
        length, input_length = scheduler.max_req_len, scheduler.max_req_input_len

        def objection(pinned: int) -> str:
            room = int(pool.size) - pinned - int(pool.page_size)
            taken = (*scheduler.waiting_queue, *scheduler.grammar_manager.grammar_queue)
            longest = max((_longest(req) for req in (*taken, *tree.live_requests())), default=0)
            if longest > room:
                return f"a request of {longest} tokens is served, and {room} would be left for it"
            scheduler.max_req_len = min(length, room)
            scheduler.max_req_input_len = min(input_length, room - 5)
            return ""

        tree.pins.objection = objection


def geometry(config: Any, ranks: int, element_bytes: int) -> Geometry:
    """The attention of one of ``ranks`` ranks of a model."""
    kv_heads = int(config.get_num_kv_heads(ranks))
    group = int(config.num_attention_heads) // ranks // kv_heads
    d = int(config.head_dim)
    d_v = int(getattr(config, "v_head_dim", d) or d)
    return Geometry(kv_heads, group, d, d_v, element_bytes)


def sharing_backends(config: GraniKVConfig, on_gpu: bool) -> tuple[str, ...]:
    """The backends that may serve a step that reads segments, as far as the user's choice goes.

    Raises:
        ConfigError: the forced backend does not exist on this device.
    """
    if config.backend == AUTO:
        return (CASCADE, DENSE)
    if config.backend == PAGED:
        return ()
    elsewhere = CONTIGUOUS_UNSHARED if on_gpu else HYDRAGEN
    if config.backend == elsewhere:
        device = "GPU" if on_gpu else "CPU"
        raise ConfigError(
            f"--granikv-backend {config.backend} does not run on a {device}; choose one of "
            f"{AUTO}, {CASCADE}, {DENSE}, {PAGED}"
        )
    return (config.backend,)


def serving(lacking: Mapping[str, str]) -> tuple[str, ...]:
    """The backends that lack nothing for the model.

    Args:
        lacking: by backend, why it has no kernels for the model's attention, or nothing.

    Raises:
        ConfigError: none serves, though one was asked for.
    """
    found = tuple(name for name, reason in lacking.items() if not reason)
    if lacking and not found:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in lacking.items())
        raise ConfigError(f"GraniKV has no attention for this model ({reasons})")
    return found


def rule_for(
    config: GraniKVConfig, device: str, shape: Geometry, stock: str, sharing: Collection[str]
) -> DispatchRule:
    """The dispatch rule: a forced backend, or the one that this hardware's profile allows.

    Args:
        shape: the attention of one rank.
        stock: the engine's own decode backend, which serves paged steps.
        sharing: the backends that may serve steps with segments.

    Raises:
        ProfileError: the hardware has no profile, or one that lacks what the rule needs.
    """
    if config.backend != AUTO:
        return Forced(config.backend)
    return auto_rule(profile_for(config, device), shape, stock, sharing, config.rule)


def check_rule(config: GraniKVConfig, device: str) -> None:
    """See that there is a rule, before a model is loaded.

    Raises:
        ConfigError, ProfileError: there is none.
    """
    sharing = sharing_backends(config, device != "cpu")
    any_shape = Geometry(1, 1, 1, 1, 1)  # decides nothing about whether there is a rule
    rule_for(config, device, any_shape, "", sharing)


def profile_for(config: GraniKVConfig, device: str) -> HardwareProfile:
    """The hardware profile that was named, or the device's own.

    Raises:
        ProfileError: there is none, or it is one of another kind of device.
    """
    named = config.hardware or _profile_name(device)
    is_file = named.endswith((".yaml", ".yml"))
    profile = load_profile(named) if is_file else find_profile(named)
    if profile.device != device:
        raise ProfileError(
            f"hardware profile {profile.name!r} is one of {profile.device}, and this engine runs "
            f"on {device}; give another to --granikv-hardware"
        )
    return profile


def _longest(req: Any) -> int:
    return len(req.origin_input_ids) + int(req.sampling_params.max_new_tokens or 0)


def _profile_name(device: str) -> str:
    """The hardware profile that belongs to the device at hand."""
    if device == "cpu":
        return "cpu"
    import torch

    name = torch.cuda.get_device_name().lower()
    # Whole words: a GH200 is no H200, and a MIG slice is neither.
    words = set(re.split(r"[\s-]+", name))
    if "mig" in words:
        return name
    return "h200" if "h200" in words else "a100_40gb" if "a100" in words else name
