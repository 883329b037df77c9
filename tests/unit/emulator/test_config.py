"""Defaults, limits and memory of an engine, and the settings of the emulator itself."""

from __future__ import annotations

import pytest
from tests.unit.emulator.building import VERIFIER, configured, speculation

from speculative_lab.emulator.arguments import parse
from speculative_lab.emulator.config import EngineConfig, engine_config, server_config
from speculative_lab.emulator.errors import ConfigError, LateError
from speculative_lab.emulator.settings import Settings, from_environment
from speculative_operator.domain.spec import Workload
from speculative_operator.domain.table import Actuator


def bare(*flags: str, model: str = VERIFIER, settings: Settings | None = None) -> EngineConfig:
    return engine_config(parse(["serve", model, *flags]), {}, settings or Settings())


@pytest.mark.parametrize(("accelerator", "seats"), [("H100-SXM", 1024), ("A100-80GB", 256), ("L40S", 256)])
def test_default_seats_follow_the_accelerator(accelerator: str, seats: int) -> None:
    assert bare(settings=Settings(accelerator=accelerator)).max_num_seqs == seats


def test_default_lengths() -> None:
    config = bare()
    assert (config.max_model_len, config.max_num_batched_tokens, config.block_size) == (40960, 8192, 16)


def test_capture_ceiling_of_blackwell() -> None:
    assert bare(settings=Settings(accelerator="B200")).knobs().capture_ceiling_tokens == 1024


def test_a_schedule_that_is_refused_later_does_not_hinder_the_sizes() -> None:
    config = bare("--max-num-seqs", "16", *speculation(3, [[2, 16, 3]]))
    assert config.capture_sizes()[-1] == 128
    with pytest.raises(LateError):
        config.knobs()


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (("--max-model-len", "99999"), "greater than the derived max_model_len"),
        (("--max-model-len", "0"), "max_model_len"),
        (("--max-num-seqs", "0"), "max_num_seqs"),
        (
            ("--max-num-batched-tokens", "8", "--max-num-seqs", "16"),
            "must be greater than or equal to max_num_seqs (16)",
        ),
        (("--max-num-batched-tokens", "1", "--max-num-seqs", "1", *speculation()), "drafting slots"),
        (("--gpu-memory-utilization", "1.5"), "gpu_memory_utilization"),
    ],
)
def test_refusals(flags: tuple[str, ...], text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        bare(*flags)
    assert text in str(raised.value)


def test_a_bad_schedule_fails_only_when_it_is_used() -> None:
    config = configured(*speculation(3, [[2, 4, 3]]))
    with pytest.raises(LateError, match="must start at 1"):
        config.lookup()


def test_a_drafter_that_would_die_of_a_smaller_k_is_refused() -> None:
    suffix = {"method": "suffix", "model": None}
    assert configured(*speculation(4, [[1, 256, 4]], **suffix), environment={}).lookup() == [0, *[4] * 256]
    with pytest.raises(LateError, match="AssertionError"):
        configured(*speculation(4, [[1, 1, 4], [2, 256, 1]], **suffix), environment={}).lookup()


def test_data_parallelism_drops_the_schedule() -> None:
    flags = (*speculation(3, [[1, 256, 0]]), "--data-parallel-size", "2")
    assert configured(*flags).lookup() is None
    assert configured(*flags[:2]).lookup() == [0, *[0] * 256]


def test_speculator_shrinks_the_pool() -> None:
    """Qwen3-8B alone holds 147456 bytes of KV a token, its 0.6B drafter 114688 more, and its weights."""
    alone, paired = configured().pool(), configured(*speculation()).pool()
    assert alone.bytes - paired.bytes == pytest.approx(596049920 * 2, abs=2 * 16 * 262144)
    assert paired.tokens / alone.tokens == pytest.approx(147456 / 262144 * paired.bytes / alone.bytes, rel=1e-3)
    assert 150_000 < paired.tokens < alone.tokens < 450_000


def test_pool_overrides() -> None:
    assert configured("--num-gpu-blocks-override", "300").pool().tokens == 4800
    assert configured("--kv-cache-memory-bytes", "1G").pool().bytes <= 2**30
    assert configured("--kv-cache-dtype", "fp8").pool().tokens == pytest.approx(
        2 * configured().pool().tokens, rel=1e-3
    )


@pytest.mark.parametrize(
    ("accelerator", "flags", "text"),
    [("L4", ("--gpu-memory-utilization", "0.5"), "No available memory"), ("L4", (), "To serve at least one request")],
)
def test_models_that_do_not_fit(accelerator: str, flags: tuple[str, ...], text: str) -> None:
    config = bare(*flags, settings=Settings(accelerator=accelerator))
    with pytest.raises(LateError, match=text):
        config.pool()


def test_unknown_models_are_priced_and_noted() -> None:
    config = bare(
        "--speculative-config", '{"method":"draft_model","model":"/d","num_speculative_tokens":2}', model="/m"
    )
    assert config.shapes.verifier.name == "generic-8b"
    assert len(config.shapes.notes) == 2


def test_unknown_accelerator() -> None:
    with pytest.raises(ConfigError, match="EMULATOR_ACCELERATOR='Abacus'"):
        bare(settings=Settings(accelerator="Abacus"))


def test_knobs() -> None:
    assert configured().knobs().actuator is Actuator.NONE
    live = configured(*speculation(4, [[1, 8, 4], [9, 256, 0]])).knobs()
    assert (live.actuator, live.ks, live.draft_passes_follow_k, live.passes_at_zero) == (Actuator.LIVE, (0, 4), True, 1)
    assert configured(*speculation(4)).knobs().actuator is Actuator.RESTART
    assert not configured(*speculation(4), environment={}).knobs().draft_passes_follow_k


def test_service_links_are_a_trap() -> None:
    with pytest.raises(ConfigError, match="appears to be a URI"):
        server_config(parse(["serve", "m"]), {"VLLM_PORT": "tcp://10.0.0.1:8000"})
    assert server_config(parse(["serve", "m"]), {"VLLM_PORT": "5000"}).port == 8000


def test_the_model_is_served_by_its_own_name_unless_told() -> None:
    config = server_config(parse(["serve", "m"]), {})
    assert (config.served_names, config.shutdown_timeout) == (("m",), 0.0)


def test_settings_from_environment() -> None:
    found = from_environment({"EMULATOR_WORKLOAD": "code", "EMULATOR_SEED": "5", "EMULATOR_LOAD_SECONDS": "0"})
    assert (found.workload, found.seed, found.load_seconds) == (Workload.CODE, 5, 0.0)
    assert from_environment({}) == Settings()


@pytest.mark.parametrize(
    ("name", "value"), [("WORKLOAD", "Poems"), ("SEED", "x"), ("LOAD_SECONDS", "-1"), ("STEP_NOISE", "inf")]
)
def test_settings_that_are_not_understood(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"EMULATOR_{name}='{value}'"):
        from_environment({f"EMULATOR_{name}": value})
