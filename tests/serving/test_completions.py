"""Text completion over HTTP, with OpenAI's client."""

from __future__ import annotations

import json
import socket
import time
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
import httpx  # noqa: E402

from rskip.serving.models import Models, ServedModel, load_models  # noqa: E402


class Counting:
    """A language model whose tokens are numbers."""

    tokens = SimpleNamespace(encode=list)

    def generate(self): ...

    def stream(self, prompt, *, each_step, length, temperature, top_p, seed):
        if not prompt:
            raise ValueError("the prompt is empty")
        for number in range(length):
            time.sleep(0.001)
            each_step(number + 1)
            yield f" {prompt}{number + 100 * seed}"


MODELS = Models([ServedModel("counting", Counting())])


def test_openais_client_completes_a_prompt(address):
    openai = pytest.importorskip("openai", reason="needs the extra dev")
    client = openai.OpenAI(base_url=f"{address(models=MODELS, keys=['k'])}/v1", api_key="k", max_retries=0)
    asked = {"model": "counting", "prompt": "a", "seed": 0}
    found = client.completions.create(**asked, max_tokens=3, n=2)
    assert [each.text for each in found.choices] == [" a0 a1 a2", " a100 a101 a102"]
    assert found.choices[0].finish_reason == "length"
    assert (found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.total_tokens) == (1, 6, 7)
    client.completions.create(**asked, frequency_penalty=0, presence_penalty=0, best_of=1, echo=False, logprobs=None)
    (choice,) = client.completions.create(**asked, stop=["a3", "a2"]).choices
    assert (choice.text, choice.finish_reason) == (" a0 a1 ", "stop")
    assert [(each.id, each.created > 1.7e9) for each in client.models.list()] == [("counting", True)]
    with pytest.raises(openai.BadRequestError, match="max_tokens is 0"):
        client.completions.create(**asked, max_tokens=0)
    with pytest.raises(openai.NotFoundError, match="no model for completion is called 'b'"):
        client.completions.create(model="b", prompt="a")
    client.api_key = "wrong"
    with pytest.raises(openai.AuthenticationError, match="Invalid API key"):
        client.completions.create(**asked)


def test_a_stream_has_the_parts_of_the_same_text_and_no_part_of_a_stop_string(address):
    openai = pytest.importorskip("openai", reason="needs the extra dev")
    client = openai.OpenAI(base_url=f"{address(models=MODELS)}/v1", api_key="k", max_retries=0)
    asked = {"model": "counting", "prompt": ["a", "b"], "seed": 0, "max_tokens": 30, "stop": ["9 b", "2 a13"]}
    whole = client.completions.create(**asked)
    parts = [[], []]
    reasons = {}
    for event in client.completions.create(**asked, stream=True):
        (choice,) = event.choices
        if choice.finish_reason:
            reasons[choice.index] = choice.finish_reason
        else:
            parts[choice.index].append(choice.text)
    assert ["".join(each) for each in parts] == [each.text for each in whole.choices]
    assert min(map(len, parts)) > 5 and parts[0][:2] == [" a0", " a1"]
    assert reasons == {each.index: each.finish_reason for each in whole.choices} == {0: "stop", 1: "stop"}


def test_a_stream_ends_with_an_error_if_the_time_is_up(serving):
    service = serving(models=MODELS, timeout=0.5)
    answer = service.send("POST", "/v1/completions", json={"prompt": "a", "max_tokens": 10_000, "stream": True})
    *parts, last, _ = answer.text.split("\n\n")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
    assert parts and last.startswith('data: {"error":{"message":"no result within 0.5 s')


class Failing(Counting):
    def stream(self, prompt, **options):
        yield "a"
        raise KeyError("b")


def test_a_stream_ends_with_an_error_if_the_model_fails(serving, caplog):
    service = serving(models=Models([ServedModel("failing", Failing())]))
    answer = service.send("POST", "/v1/completions", json={"prompt": "a", "stream": True})
    part, last, _ = answer.text.split("\n\n")
    assert '"text": "a"' in part and last.startswith('data: {"error":{"message":"the server failed on this request')
    assert "KeyError: 'b'" in caplog.text


class Long(Counting):
    def stream(self, prompt, **options):
        return (part * 10_000 for part in super().stream(prompt, **options))


def test_a_client_that_reads_no_stream_is_closed_and_its_text_ends(address):
    host = urlsplit(address(models=Models([ServedModel("long", Long())]), write_timeout=0.2))
    body = json.dumps({"prompt": "a", "max_tokens": 10_000, "stream": True, "seed": 1}).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((host.hostname, host.port))
        client.sendall(f"{head}{len(body)}\r\n\r\n".encode() + body)
        deadline = time.monotonic() + 30
        while "\nrskip_abandoned_batches_total 1.0" not in httpx.get(f"{host.geturl()}/metrics").text:
            assert time.monotonic() < deadline


def test_errors_and_time_outs_have_openais_form(serving):
    service = serving(models=MODELS, timeout=0.7)
    for fields, status, message in (
        ({"prompt": ["a", ""]}, 400, "the prompt is empty"),
        ({"prompt": "", "stream": True}, 400, "the prompt is empty"),
        ({"max_tokens": 3}, 400, "prompt is missing: expected a text or a list of texts"),
        ({"prompt": "a", "logprobs": 3}, 400, "logprobs is not supported: leave it out"),
        ({"prompt": "a", "echo": True}, 400, "echo is not supported: leave it out"),
        ({"prompt": "a", "stream": True, "stream_options": {"include_usage": True}}, 400, "stream_options is not supp"),
        ({"prompt": "a", "stop": ["b"] * 5}, 400, "stop has 5 texts: expected at most 4"),
        ({"prompt": "a", "stop": "b" * 100_000}, 400, "request (100001) exceeds text limit"),
        ({"prompt": "a", "max_tokens": 10_000}, 504, "no result within 0.7 s"),
    ):
        answer = service.send("POST", "/v1/completions", json=fields)
        assert answer.status_code == status and message in answer.json()["error"]["message"]


def test_each_prompt_is_a_batch(serving):
    service = serving(models=MODELS)
    service.send("POST", "/v1/completions", json={"prompt": ["a", "b"], "n": 2, "max_tokens": 2})
    assert 'rskip_batch_items_bucket{le="1.0",model="counting"} 4.0' in service.metrics.text().decode()


def test_a_trained_language_model_completes_as_offline(serving, tmp_path):
    from rskip.language_modeling.data import load_data
    from rskip.language_modeling.preparation import TextOptions, prepare_text
    from rskip.language_modeling.settings import TrainingSettings
    from rskip.language_modeling.training import train

    text, data, folder = tmp_path / "cats.txt", tmp_path / "data", tmp_path / "model"
    text.write_text("the cat sat\non the mat\nthe dog ran\nto the cat; it sat.\n" * 12)
    prepare_text(text, data, options=TextOptions(valid_share=0.2))
    settings = TrainingSettings(
        layers=1, heads=2, features=16, context=8, batch_size=2, iterations=2, warmup_iterations=1, evaluate_every=2
    )
    folder.mkdir()
    train(settings, data=load_data(data), folder=folder, seed=1, device="cpu")
    models = load_models([f"cats={folder}"])
    asked = {"model": "cats", "prompt": ["the", "a"], "max_tokens": 12, "temperature": 0.7, "top_p": 0.9, "seed": 3}
    answer = serving(models=models).send("POST", "/v1/completions", json={**asked, "n": 2}).json()
    generator = models.named("cats", "completion").model
    expected = [
        generator.generate(prompt, length=12, temperature=0.7, top_p=0.9, seed=seed)
        for prompt in ("the", "a")
        for seed in (3, 4)
    ]
    assert [each["text"] for each in answer["choices"]] == expected
    wrong = serving(models=models).send("POST", "/v1/completions", json={**asked, "prompt": "the cat sat on the mat"})
    assert wrong.status_code == 400 and "expected at most 8" in wrong.json()["error"]["message"]
