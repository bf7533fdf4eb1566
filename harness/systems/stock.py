"""Unmodified SGLang: what the stock systems have in common."""

from __future__ import annotations

from harness.systems.base import CPU, Hardware, ServerInfo, System


class Stock(System):
    """Unmodified SGLang; no trace of the plugin may show in `/server_info`."""

    def arguments(self, hardware: Hardware) -> list[str]:
        """The engine's own flags and nothing else."""
        return self.engine_arguments(hardware)

    def misuse(self, info: ServerInfo, hardware: Hardware) -> list[str]:
        """Also: the plugin is not in use."""
        wrong = super().misuse(info, hardware)
        if info.granikv is not None:
            wrong.append("GraniKV's plugin is active on a server that should be stock SGLang")
        for argument in ("decode_attention_backend", "radix_cache_backend"):
            value = info.argument(argument)
            if value is not None and value != self.choice("attention_backend", hardware):
                wrong.append(f"the stock server's {argument} was set to {value!r}")
        return wrong


class GpuStock(Stock):
    """A stock system whose attention backend exists on a GPU only."""

    def refusal(self, hardware: Hardware) -> str | None:
        """The backend has no CPU implementation."""
        if hardware.device == CPU:
            return f"{self.name} needs a GPU; on the CPU use system=sglang_default"
        return None
