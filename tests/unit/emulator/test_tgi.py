"""TGI's face: flags that are variables too, one constant K, metrics as its Rust exporter writes them."""

from __future__ import annotations

import csv
from importlib import resources

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.emulator.dialects import TGI, DialectRun, tgi

from speculative_lab.emulator.errors import ConfigError
from speculative_lab.emulator.tgi.flags import EFFECTIVE, INERT
from speculative_lab.emulator.tgi.ledger import hundredths

COUNT = "tgi_batch_inference_count_total"
"""As prometheus_client's parser calls it, which adds the ending to every counter; Prometheus does not."""


def test_every_flag_on_record_is_known() -> None:
    text = resources.files("speculative_lab.emulator").joinpath("data", "dialect_flags.csv").read_text()
    wanted = {row["flag"] for row in csv.DictReader(text.splitlines()) if row["engine"] == "TGI"}
    assert wanted <= {name for flag in (*EFFECTIVE, *INERT) for name in flag.names}


def test_defaults_and_variables() -> None:
    server = tgi().server
    assert (server.host, server.port, server.max_in_flight) == ("0.0.0.0", 3000, 128)
    assert tgi(PORT="81").server.port == 81
    assert tgi("--port", "82", PORT="81").server.port == 82
    with pytest.raises(SystemExit):
        tgi(PORT="tcp://10.0.0.1:80")
    with pytest.raises(SystemExit):
        tgi("--no-such-flag")
    with pytest.raises(ConfigError, match="whole numbers"):
        tgi("--cuda-graphs", "a")


def test_one_constant_k() -> None:
    assert tgi().engine.speculative is None
    assert tgi("--speculate", "0").engine.speculative is None
    run = DialectRun(tgi("--speculate", "3"), TGI)
    run.add(output=50)
    run.until_idle()
    assert {result.k for result in run.results} == {3}
    assert {result.draft_tokens for result in run.results[1:]} == {3}, "it drafts whether or not the text matches"


def test_accepted_drafts_are_a_summary_of_every_request_and_pass() -> None:
    run = DialectRun(tgi("--speculate", "3"), TGI)
    for _ in range(3):
        run.add(output=40)
    run.until_idle()
    families = {family.name: family for family in text_string_to_metric_families(run.ledger.text())}
    skipped = {
        sample.name: sample.value for sample in families["tgi_request_skipped_tokens"].samples if not sample.labels
    }
    assert families["tgi_request_skipped_tokens"].type == "summary"
    assert skipped["tgi_request_skipped_tokens_count"] == sum(request.steps + 1 for request in run.ended)
    assert skipped["tgi_request_skipped_tokens_count"] + skipped["tgi_request_skipped_tokens_sum"] == 120


def test_the_text_is_prometheus_and_counters_have_no_total() -> None:
    run = DialectRun(tgi(), TGI)
    assert run.ledger.text().count("tgi_request") == 0, "nothing before the first request"
    run.add(output=10)
    run.until_idle()
    text = run.ledger.text()
    assert "\ntgi_request_count 1\n" in text
    assert "_total" not in text.replace("tgi_batch_max_total_tokens", "")
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    passes = {sample.labels["method"]: sample.value for sample in samples if sample.name == COUNT}
    assert passes == {"prefill": 1, "decode": 9}
    generated = [sample for sample in samples if sample.name == "tgi_request_generated_tokens_bucket"]
    assert len(generated) == 101
    assert generated[0].labels["le"] == "40.96"


def test_hundredths() -> None:
    assert hundredths(200)[:2] == (2.0, 4.0)
    assert hundredths(200)[-1] == 200
