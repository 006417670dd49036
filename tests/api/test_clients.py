"""Client libraries as they come, against the server: a chat, a stream, a tool call and a structured output as each does it.

docs/works-with-clients.md is made of this file by tools/make_clients_page.py: a class is a section, a test is an example.
"""
import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pydantic
import pytest

MODEL = "countdown-chat"
ROOT = Path(__file__).resolve().parents[2]
os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"  # openai-agents would send its traces to OpenAI
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # litellm would fetch prices from the network


class Pair(pydantic.BaseModel):
    """Two small numbers."""
    a: Literal[1, 2, 3]
    b: bool


ADD_PARAMETERS = {"type": "object", "properties": {"a": {"enum": [1, 2]}, "b": {"enum": [3, 4]}}, "required": ["a", "b"], "additionalProperties": False}


@pytest.fixture
def url(chat_server):
    return chat_server.url + "/v1"


class TestOpenai:
    """`openai`"""

    def test_chat(self, url):
        import openai
        client = openai.OpenAI(base_url=url, api_key="none")
        answer = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "3 7 12=48:"}], max_tokens=16)
        assert answer.choices[0].message.role == "assistant"

    def test_stream(self, url):
        import openai
        client = openai.OpenAI(base_url=url, api_key="none")
        with client.chat.completions.stream(model=MODEL, messages=[{"role": "user", "content": "3 7 12=48:"}], max_tokens=16, seed=1) as stream:
            text = "".join(event.delta for event in stream if event.type == "content.delta")
        assert text == stream.get_final_completion().choices[0].message.content

    def test_tool_call(self, url):
        import openai
        client = openai.OpenAI(base_url=url, api_key="none")
        answer = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "1+3"}], tool_choice="required", parallel_tool_calls=False, max_tokens=120,
                                                tools=[{"type": "function", "function": {"name": "add", "parameters": ADD_PARAMETERS}}])
        assert json.loads(answer.choices[0].message.tool_calls[0].function.arguments)["a"] in (1, 2)

    def test_structured_output(self, url):
        import openai
        client = openai.OpenAI(base_url=url, api_key="none")
        answer = client.chat.completions.parse(model=MODEL, messages=[{"role": "user", "content": "?"}], response_format=Pair, max_tokens=120)
        assert isinstance(answer.choices[0].message.parsed, Pair)

    def test_responses(self, url):
        import openai
        client = openai.OpenAI(base_url=url, api_key="none")
        first = client.responses.create(model=MODEL, input="3 7 12=48:", max_output_tokens=16)
        second = client.responses.create(model=MODEL, input="and 5?", previous_response_id=first.id, max_output_tokens=16)
        assert second.previous_response_id == first.id and second.usage.input_tokens > first.usage.input_tokens

    def test_embeddings(self, url):
        import openai
        client = openai.OpenAI(base_url=url, api_key="none")
        answer = client.embeddings.create(model=MODEL, input=["one", "two"], dimensions=32)
        assert [len(one.embedding) for one in answer.data] == [32, 32]


class TestLitellm:
    """`litellm`"""

    def test_chat(self, url):
        import litellm
        answer = litellm.completion(model="openai/" + MODEL, api_base=url, api_key="none", messages=[{"role": "user", "content": "3 7 12=48:"}], max_tokens=16)
        assert answer.choices[0].message.role == "assistant" and answer.usage.completion_tokens > 0

    def test_stream(self, url):
        import litellm
        ask = dict(model="openai/" + MODEL, api_base=url, api_key="none", messages=[{"role": "user", "content": "3 7 12=48:"}], max_tokens=16, seed=1)
        text = "".join(part.choices[0].delta.content or "" for part in litellm.completion(**ask, stream=True))
        assert text == (litellm.completion(**ask).choices[0].message.content or "")

    def test_tool_call(self, url):
        import litellm
        answer = litellm.completion(model="openai/" + MODEL, api_base=url, api_key="none", messages=[{"role": "user", "content": "1+3"}], tool_choice="required", max_tokens=240,
                                    parallel_tool_calls=False, tools=[{"type": "function", "function": {"name": "add", "parameters": ADD_PARAMETERS}}])
        assert json.loads(answer.choices[0].message.tool_calls[0].function.arguments)["b"] in (3, 4)

    def test_structured_output(self, url):
        import litellm
        answer = litellm.completion(model="openai/" + MODEL, api_base=url, api_key="none", messages=[{"role": "user", "content": "?"}], response_format=Pair, max_tokens=120)
        assert Pair.model_validate_json(answer.choices[0].message.content)

    def test_embeddings(self, url):
        import litellm
        answer = litellm.embedding(model="openai/" + MODEL, api_base=url, api_key="none", input=["one", "two"])
        assert len(answer.data) == 2 and answer.data[0]["embedding"] != answer.data[1]["embedding"]


class TestInstructor:
    """`instructor`"""

    def test_structured_output(self, url):
        import instructor
        import openai
        client = instructor.from_openai(openai.OpenAI(base_url=url, api_key="none"), mode=instructor.Mode.JSON_SCHEMA)
        assert isinstance(client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "?"}], response_model=Pair, max_tokens=120, max_retries=0), Pair)

    def test_tool_call(self, url):
        import instructor
        import openai
        client = instructor.from_openai(openai.OpenAI(base_url=url, api_key="none"), mode=instructor.Mode.TOOLS)
        assert isinstance(client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "?"}], response_model=Pair, max_tokens=240, max_retries=0), Pair)

    def test_stream(self, url):
        import instructor
        import openai
        client = instructor.from_openai(openai.OpenAI(base_url=url, api_key="none"), mode=instructor.Mode.JSON_SCHEMA)
        partials = list(client.chat.completions.create_partial(model=MODEL, messages=[{"role": "user", "content": "?"}], response_model=Pair, max_tokens=120, max_retries=0))
        assert partials[-1].a in (1, 2, 3) and partials[-1].b in (True, False)


class TestLangchainOpenai:
    """`langchain-openai`"""

    def test_chat(self, url):
        from langchain_openai import ChatOpenAI
        chat = ChatOpenAI(base_url=url, api_key="none", model=MODEL, max_tokens=16)
        assert chat.invoke("3 7 12=48:").usage_metadata["output_tokens"] > 0

    def test_stream(self, url):
        from langchain_openai import ChatOpenAI
        chat = ChatOpenAI(base_url=url, api_key="none", model=MODEL, max_tokens=16, seed=1)
        assert "".join(part.text for part in chat.stream("3 7 12=48:")) == chat.invoke("3 7 12=48:").text

    def test_tool_call(self, url):
        from langchain_openai import ChatOpenAI

        def add(a: Literal[1, 2], b: Literal[3, 4]) -> int:
            """Adds."""
            return a + b

        chat = ChatOpenAI(base_url=url, api_key="none", model=MODEL, max_tokens=120).bind_tools([add], tool_choice="add", parallel_tool_calls=False)
        (call,) = chat.invoke("1+3").tool_calls
        assert call["name"] == "add" and call["args"]["b"] in (3, 4)

    def test_structured_output(self, url):
        from langchain_openai import ChatOpenAI
        chat = ChatOpenAI(base_url=url, api_key="none", model=MODEL, max_tokens=120)
        assert isinstance(chat.with_structured_output(Pair).invoke("?"), Pair)

    def test_responses(self, url):
        from langchain_openai import ChatOpenAI
        chat = ChatOpenAI(base_url=url, api_key="none", model=MODEL, max_tokens=16, use_responses_api=True)
        assert chat.invoke("3 7 12=48:").usage_metadata["output_tokens"] > 0
        assert [part for part in chat.stream("3 7 12=48:")][-1].response_metadata

    def test_embeddings(self, url):
        from langchain_openai import OpenAIEmbeddings
        embeddings = OpenAIEmbeddings(base_url=url, api_key="none", model=MODEL, check_embedding_ctx_length=False)
        assert [len(vector) for vector in embeddings.embed_documents(["one", "two"])] == [96, 96]


class TestPydanticAi:
    """`pydantic-ai`"""

    def test_chat(self, url):
        from pydantic_ai import Agent
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider
        agent = Agent(OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=url, api_key="none")), instructions="Add.", model_settings={"max_tokens": 40, "temperature": 0})
        assert agent.run_sync("3 7 12=48:").output

    def test_stream(self, url):
        from pydantic_ai import Agent
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider
        agent = Agent(OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=url, api_key="none")), model_settings={"max_tokens": 40, "temperature": 0})

        async def text():
            async with agent.run_stream("3 7 12=48:") as stream:
                return "".join([part async for part in stream.stream_text(delta=True)])

        assert asyncio.run(text())

    def test_structured_output_by_a_tool_call(self, url):
        from pydantic_ai import Agent
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider
        agent = Agent(OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=url, api_key="none")), output_type=Pair, model_settings={"max_tokens": 120, "parallel_tool_calls": False})
        assert isinstance(agent.run_sync("?").output, Pair)

    def test_responses(self, url):
        from pydantic_ai import Agent
        from pydantic_ai.models.openai import OpenAIResponsesModel
        from pydantic_ai.providers.openai import OpenAIProvider
        agent = Agent(OpenAIResponsesModel(MODEL, provider=OpenAIProvider(base_url=url, api_key="none")), model_settings={"max_tokens": 40, "temperature": 0})
        assert agent.run_sync("3 7 12=48:").output


class TestLlm:
    """`llm`"""

    def test_chat(self, url):
        from llm.default_plugins.openai_models import Chat
        model = Chat(MODEL, key="none", api_base=url, supports_schema=True, supports_tools=True)
        assert model.prompt("3 7 12=48:", stream=False, max_tokens=16).text()

    def test_stream(self, url):
        from llm.default_plugins.openai_models import Chat
        model = Chat(MODEL, key="none", api_base=url, supports_schema=True, supports_tools=True)
        assert "".join(model.prompt("3 7 12=48:", max_tokens=16, seed=1)) == model.prompt("3 7 12=48:", stream=False, max_tokens=16, seed=1).text()

    def test_structured_output(self, url):
        from llm.default_plugins.openai_models import Chat
        model = Chat(MODEL, key="none", api_base=url, supports_schema=True, supports_tools=True)
        assert Pair.model_validate_json(model.prompt("?", schema=Pair, stream=False, max_tokens=120).text())


class TestOpenaiAgents:
    """`openai-agents`"""

    def test_chat(self, url):
        import agents
        import openai
        model = agents.OpenAIResponsesModel(MODEL, openai.AsyncOpenAI(base_url=url, api_key="none"))
        agent = agents.Agent("adder", instructions="Add.", model=model, model_settings=agents.ModelSettings(max_tokens=200, temperature=0))
        assert asyncio.run(agents.Runner.run(agent, "3 7 12=48:")).final_output is not None

    def test_stream(self, url):
        import agents
        import openai

        async def kinds():
            model = agents.OpenAIResponsesModel(MODEL, openai.AsyncOpenAI(base_url=url, api_key="none"))
            run = agents.Runner.run_streamed(agents.Agent("adder", model=model, model_settings=agents.ModelSettings(max_tokens=200, temperature=0)), "3 7 12=48:")
            return [event.data.type async for event in run.stream_events() if event.type == "raw_response_event"], run.final_output

        told, output = asyncio.run(kinds())
        assert told[0] == "response.created" and "response.output_text.delta" in told and output

    def test_tool_call(self, url):
        import agents
        import openai
        calls = []

        @agents.function_tool
        def add(a: Literal[1, 2], b: Literal[3, 4]) -> int:
            """Adds."""
            calls.append((a, b))
            return a + b

        model = agents.OpenAIResponsesModel(MODEL, openai.AsyncOpenAI(base_url=url, api_key="none"))
        agent = agents.Agent("adder", model=model, tools=[add], model_settings=agents.ModelSettings(max_tokens=120, tool_choice="required", parallel_tool_calls=False),
                             tool_use_behavior="stop_on_first_tool")
        assert asyncio.run(agents.Runner.run(agent, "1+3")).final_output == str(sum(calls[0]))

    def test_structured_output(self, url):
        import agents
        import openai
        model = agents.OpenAIResponsesModel(MODEL, openai.AsyncOpenAI(base_url=url, api_key="none"))
        agent = agents.Agent("adder", model=model, output_type=Pair, model_settings=agents.ModelSettings(max_tokens=120))
        assert isinstance(asyncio.run(agents.Runner.run(agent, "?")).final_output, Pair)


def test_the_page_is_current():
    subprocess.run([sys.executable, ROOT / "tools/make_clients_page.py", "--check"], check=True)
