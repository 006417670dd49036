#include "text/template/chat_template.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "text/message/message_parser.h"

namespace lockstep {
namespace {
using nlohmann::ordered_json;

const ordered_json kHello = ordered_json::parse(R"([{"role": "user", "content": "Hi"}])");

std::string render(const std::string& source, const ordered_json& messages = kHello) {
  return ChatTemplate::from_source(source, {{"bos_token", "<s>"}}).render({.messages = messages, .unix_time = 1});
}

void expect_error(const std::string& source, ErrorCode code, const std::string& part, const ordered_json& messages = kHello) {
  try {
    const std::string text = render(source, messages);
    FAIL() << source.substr(0, 200) << " gave " << text.substr(0, 200);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

std::string repeated(const std::string& part, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += part;
  return text;
}

TEST(ChatTemplate, RendersMessagesAndTokens) {
  EXPECT_EQ(render("{{ bos_token }}{% for m in messages %}\n  {% if true %}\n{{ m.role }}: {{ m['content'] }}{% endif %}\n{% endfor %}{{ missing }}"),
            "<s>user: Hi");
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  expect_error("a\n{{ 1 + }}", ErrorCode::invalid_argument, "line 2");
  expect_error("a\n\n{% if x %}", ErrorCode::invalid_argument, "'endif' is missing");
  expect_error("{{ x|uper }}", ErrorCode::invalid_argument, "did you mean 'upper'");
  expect_error("{{ x is strng }}", ErrorCode::invalid_argument, "did you mean 'string'");
  expect_error("{% fro x in y %}", ErrorCode::invalid_argument, "did you mean 'for'");
  expect_error("\n{{ raise_exception('roles must alternate') }}", ErrorCode::invalid_argument,
               "roles must alternate (while rendering the chat template, line 2)");
  expect_error("{{ nothing.at.all }}", ErrorCode::invalid_argument, "'nothing' is undefined");
  expect_error("{{ messages[0].content.x.y }}", ErrorCode::invalid_argument, "has no attribute 'x'");
  expect_error("{{ messages[0].content + 1 }}", ErrorCode::invalid_argument, "'str' and 'int'");
  for (const char* tag : {"include 'a'", "import 'a' as b", "from 'a' import b", "extends 'a'", "block b", "autoescape true"})
    expect_error("{% " + std::string(tag) + " %}", ErrorCode::unsupported, "is not offered");
  expect_error("{{ 'a'|pprint }}", ErrorCode::unsupported, "pprint");
  expect_error("{{ [].append(1) }}", ErrorCode::invalid_argument, "unsafe");
  expect_error("{{ 2 ** 200 }}", ErrorCode::unsupported, "127 bits");
}

TEST(ChatTemplate, LimitsEndWhatWouldNotEnd) {
  constexpr auto limit = ErrorCode::resource_exhausted;
  expect_error("{{ range(10 ** 9) }}", ErrorCode::invalid_argument, "Range too big");
  expect_error("{{ 'x' * 10 ** 12 }}", limit, "bytes");
  expect_error("{{ [0] * 10 ** 12 }}", limit, "bytes");
  expect_error("{{ 'x'.center(10 ** 12) }}{{ 'x'|center(10 ** 12) }}", limit, "bytes");
  expect_error("{{ '%1000000000000d' % 1 }}", limit, "bytes");
  expect_error("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", limit, "steps");
  expect_error("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", limit, "deep");
  expect_error("{% macro m(x=m()) %}{% endmacro %}{{ m() }}", limit, "deep");
  expect_error("{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}", limit, "deep");
  expect_error("{{ " + repeated("(", 5000) + "1" + repeated(")", 5000) + " }}", limit, "deep");
  expect_error("{{ " + repeated("[", 5000) + repeated("]", 5000) + " }}", limit, "deep");
  expect_error("{{ " + repeated("not ", 5000) + "x }}", limit, "deep");
  expect_error("{{ " + repeated("-", 5000) + "1 }}", limit, "deep");
  expect_error("{{ 1" + repeated(" + 1", 5000) + " }}", limit, "in a row");
  expect_error("{{ x" + repeated("|upper", 5000) + " }}", limit, "in a row");
  expect_error("{{ x" + repeated(".a", 5000) + " }}", limit, "in a row");
  expect_error("{{ x" + repeated(" if x", 5000) + " }}", limit, "in a row");
  expect_error(repeated("{% if x %}", 5000) + repeated("{% endif %}", 5000), limit, "deep");
  expect_error("{% set ns = namespace(x=[]) %}{% for i in range(5000) %}{% set ns.x = [ns.x] %}{% endfor %}", limit, "nested");
  expect_error("{% set ns = namespace(x=[]) %}{% for i in range(5000) %}{% set ns.x = ns.x|map('upper') %}{% endfor %}", limit, "nested");
  expect_error("{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}", limit, "bytes");
  expect_error("{% for i in range(9999) %}{% for j in range(99) %}" + std::string(300, 'x') + "{% endfor %}{% endfor %}", limit, "output");
  expect_error(std::string((1 << 20) + 1, 'x'), limit, "bytes");
  ordered_json deep = kHello;
  for (int i = 0; i < 1000; ++i) deep = ordered_json::array({deep});
  expect_error("{{ messages }}", limit, "nested", ordered_json::array({{{"role", "user"}, {"content", deep}}}));
}

// What a template reads counts too: each of these took minutes, or had no end, while only what it made was counted.
TEST(ChatTemplate, ReadingIsPaidFor) {
  const auto expect_refused = [](const std::string& source) {
    try {
      ChatTemplate::from_source(source, {}, {.steps = 300'000}).render({.messages = kHello});
      FAIL() << source.substr(0, 200);
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("steps"), std::string::npos) << e.what();
    }
  };
  const std::string million = "{% set s = 'a' * 1000000 %}{% set t = 'a' * 500000 %}";
  const std::string loop = "{% for i in range(99999) %}{% for j in range(99) %}";
  for (const char* read : {"s.count('ab')", "'b' in s", "s == 'a' * 1000000", "s.isalpha()", "{s: 1}", "s.find(t ~ 'b')", "s.rfind('b' ~ t)", "s.startswith(t)",
                           "s is lower", "s|int"})
    expect_refused(million + loop + "{% set x = " + read + " %}{% endfor %}{% endfor %}");
  expect_refused("{% set s = 'é' * 1000000 %}" + loop + "{% set x = s[999999] %}{% endfor %}{% endfor %}");
  // Searches are linear, so these are over at once.
  EXPECT_EQ(
      render(million + "{{ s.find('b' ~ t) }} {{ s.rfind(t ~ 'b') }} {{ s.rfind('b' ~ t) }} {{ s.split(t ~ 'b')|length }} {{ s.rsplit('b' ~ t)|length }}"),
      "-1 -1 -1 1 1");
  EXPECT_EQ(render("{{ 'abcabc'.rfind('bc') }} {{ 'abc'.rfind('') }} {{ 'a-b-c'.rsplit('-', 1) }} {{ 'aXbX'.rpartition('X') }} {{ ('x' * 3000 ~ 'ab' ~ 'x' * "
                   "3000).rfind('ab') }}"),
            "4 3 ['a-b', 'c'] ('aXb', 'X', '') 3000");
  // Values that hold the same thing twice, sixty times over: a hash or a comparison would look at 2^60 of them.
  const auto doubled = [](const std::string& name, const std::string& open, const std::string& close) {
    std::string text = "{% set " + name + "0 = " + open + "1," + close + " %}";
    for (int i = 1; i < 60; ++i) text += fmt::format("{{% set {0}{1} = {2}{0}{3}, {0}{3}{4} %}}", name, i, open, i - 1, close);
    return text;
  };
  expect_refused(doubled("a", "(", ")") + "{{ {a59: 1} }}");
  expect_refused(doubled("a", "(", ")") + doubled("b", "(", ")") + "{{ a59 < b59 }}");
  expect_refused(doubled("a", "[", "]") + doubled("b", "[", "]") + "{{ a59 == b59 }}");
}

// What refers to itself must neither loop nor leak (the address sanitizer sees the latter).
TEST(ChatTemplate, SelfReferenceIsHarmless) {
  expect_error("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", ErrorCode::resource_exhausted, "deep");
  EXPECT_EQ(render("{% set ns = namespace() %}{% set ns.me = [ns] %}{% macro m() %}{{ n }}{% endmacro %}{% set ns.m = m %}"
                   "{% for x in [ns] if x %}{% set ns.l = loop %}{% set ns.c = loop.cycle %}{{ loop.changed(loop) }}{% endfor %}{{ ns.l.index }}"),
            "True1");
  EXPECT_EQ(render("{% set ns = namespace() %}{% for x in [1, 2] recursive %}{% set ns.l = loop %}{{ x }}{% endfor %}{{ ns.l([]) }}|{{ ns.l([7]) }}"), "12|7");
}

TEST(ChatTemplate, RandomBytesEndCleanly) {
  std::uint64_t state = 1;
  const std::string alphabet = "{}%#-+()[]|.,:'\"\\ \n\tabif set for in x 019éendraw~*/<>=!";
  int rendered = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string source;
    for (int n = 0; n < 40; ++n) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      if (n % 10 == 0) source += "{{";
      if (n % 10 == 7) source += "}}";
      source += i % 3 ? alphabet[(state >> 33) % alphabet.size()] : static_cast<char>(state >> 40);
    }
    try {
      render(source);
      ++rendered;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(rendered, 0);
}

// --- who wrote what

ordered_json user(const std::string& content) { return ordered_json::array({{{"role", "user"}, {"content", content}}}); }

// The rendered text, with what did not come from the template in «».
std::string marked_text(const ChatTemplate& chat, const ordered_json& messages) {
  const RenderedPrompt prompt = chat.render_marked({.messages = messages});
  std::string marked;
  std::size_t at = 0;
  for (const auto& range : prompt.untrusted) {
    marked += prompt.text.substr(at, range.begin - at) + "«" + prompt.text.substr(range.begin, range.end - range.begin) + "»";
    at = range.end;
  }
  return marked + prompt.text.substr(at);
}

std::string untrusted(const std::string& source, const std::string& content) {
  ordered_json messages = user(content);
  messages[0]["n"] = 7;
  messages[0]["d"] = ordered_json::parse(R"({"t": true, "z": null, "f": 1.5, "s": "12", "p": "%c"})");
  return marked_text(ChatTemplate::from_source(source), messages);
}

TEST(ChatTemplate, EveryOperationKeepsWhatCameFromOutside) {
  const auto in_template = [](const std::string& expression) {
    return "{% set c = messages[0].content %}{% set n = messages[0].n %}{% set d = messages[0].d %}<|{{ " + expression + " }}|>";
  };
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"c", "<|«aBc»|>"},
      {"messages[0].role", "<|user|>"},  // of the usual roles: templates make tokens of them
      {"'x' + c + 'y'", "<|x«aBc»y|>"},
      {"'x' ~ c", "<|x«aBc»|>"},
      {"c * 2", "<|«aBcaBc»|>"},
      {"c | upper", "<|«ABC»|>"},
      {"c[::-1]", "<|«cBa»|>"},
      {"c[1]", "<|«B»|>"},
      {"(' ' ~ c ~ ' z ') | trim", "<|«aBc» z|>"},
      {"('-' ~ c ~ '-').split('B') | join('+')", "<|-«a»+«c»-|>"},
      {"c.replace('B', '<|x|>')", "<|«a»<|x|>«c»|>"},
      {"'q[B]'.replace('B', c)", "<|q[«aBc»]|>"},
      {"[c, 1] | tojson", "<|[\"«aBc»\", 1]|>"},
      {"{c: 1}", "<|{'«aBc»': 1}|>"},
      {"[c]", "<|['«aBc»']|>"},
      {"'%s!' % c", "<|«aBc»!|>"},
      {"'{}!'.format(c)", "<|«aBc»!|>"},
      {"c | indent(2, true)", "<|  «aBc»|>"},
      {"c | e", "<|«aBc»|>"},
      {"c | list | join('')", "<|«aBc»|>"},
      {"c | title", "<|«Abc»|>"},
      {"c.center(5, '*')", "<|*«aBc»*|>"},
      {"messages | map(attribute='content') | first", "<|«aBc»|>"},
      {"c | length", "<|3|>"},
      {"(c ~ 1) | replace(1, 2)", "<|«aBc»2|>"},
      // Numbers, bools and nulls from outside stay what they are.
      {"n", "<|«7»|>"},
      {"[n, 7, none]", "<|[«7», 7, None]|>"},
      {"[n, d.t, d.z, d.f] | tojson", "<|[«7», «true», «null», «1.5»]|>"},
      {"{n: 1} | tojson", "<|{\"«7»\": 1}|>"},
      {"n + 1", "<|«8»|>"},
      {"-n", "<|«-7»|>"},
      {"n * 0.5", "<|«3.5»|>"},
      {"n | abs", "<|«7»|>"},
      {"d.f | round", "<|«2.0»|>"},
      {"d.f | round(0, 'floor')", "<|«1.0»|>"},
      {"[n, 1] | sum", "<|«8»|>"},
      {"[n, 1] | max", "<|«7»|>"},
      {"d.s | int", "<|«12»|>"},
      {"d.s | float", "<|«12.0»|>"},
      {"n.real", "<|«7»|>"},
      {"'%d-%03d' % (n, 5)", "<|«7»-005|>"},
      {"'%c' % (n + 53)", "<|«<»|>"},
      {"'{:02d}{}'.format(n, 5)", "<|0«7»5|>"},
      {"d.p % 60", "<|«<»|>"},
      {"d.t", "<|«True»|>"},
      {"n == 7", "<|True|>"},
      {"dict(**d) | list | join", "<|«tzfsp»|>"},
      {"'a'.center(3, c[0])", "<|«a»a«a»|>"},
      {"'<' | replace('<', c) | urlencode", "<|«aBc»|>"},
      {"(c ~ '<') | replace('B', '<') | urlencode", "<|«a»%3C«c»%3C|>"},
      {"(c[0] ~ '>') | replace('>', '|') | urlencode", "<|«a»%7C|>"},
  };
  for (const auto& [expression, wanted] : rows) EXPECT_EQ(untrusted(in_template(expression), "aBc"), wanted) << expression;
  EXPECT_EQ(untrusted("{% set x %}<{{ messages[0].content }}>{% endset %}{{ x }}", "aBc"), "<«aBc»>");
  EXPECT_EQ(untrusted("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(messages[0].content) }}", "aBc"), "<«aBc»>");
}

TEST(ChatTemplate, AnUnusualRoleIsTextFromOutside) {
  const ChatTemplate chat = ChatTemplate::from_source("<|{{ messages[0].role }}|>");
  EXPECT_EQ(marked_text(chat, ordered_json::array({{{"role", "im_start"}, {"content", ""}}})), "<|«im_start»|>");
}

// --- from a folder

class TemplateFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::path(::testing::TempDir()) / ("chat_template_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& text) { write_file_atomic(path_ / name, text); }
  std::string render_folder(const ordered_json& tools = nullptr) { return ChatTemplate::from_folder(path_)->render({.messages = kHello, .tools = tools}); }
  std::filesystem::path path_;
};

TEST_F(TemplateFolder, IsFoundInTransformersPlaces) {
  EXPECT_FALSE(ChatTemplate::from_folder(path_).has_value());
  write("tokenizer_config.json",
        R"({"bos_token": {"content": "<B>"}, "eos_token": "<E>", "chat_template": "config{{ bos_token }}{{ eos_token }}{{ pad_token }}"})");
  EXPECT_EQ(render_folder(), "config<B><E>");
  write("chat_template.json", R"({"chat_template": "json"})");
  EXPECT_EQ(render_folder(), "json");
  write("chat_template.jinja", "file{{ bos_token }}");
  EXPECT_EQ(render_folder(), "file<B>");
}

TEST_F(TemplateFolder, NamedTemplatesAndFaults) {
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}, {"name": "rag", "template": "{{"}]})");
  EXPECT_EQ(render_folder(), "plain");
  EXPECT_EQ(render_folder(ordered_json::array()), "tools");
  for (const char* wrong : {R"({"chat_template": 5})", R"({"chat_template": [{"name": "other", "template": ""}]})", "[]", "{"}) {
    write("tokenizer_config.json", wrong);
    EXPECT_THROW(ChatTemplate::from_folder(path_), Error) << wrong;
  }
}

TEST(ChatTemplate, RefusesWrongInput) {
  const ChatTemplate chat = ChatTemplate::from_source("{{ messages }}");
  EXPECT_THROW(chat.render({.messages = ordered_json::array()}), Error);
  EXPECT_THROW(chat.render({.messages = "x"}), Error);
  EXPECT_THROW(chat.render({.messages = ordered_json::array({1})}), Error);
  EXPECT_THROW(chat.render({.messages = kHello, .tools = 5}), Error);
  EXPECT_THROW(chat.render({.messages = kHello, .continue_final_message = true}), Error);
  EXPECT_THROW(chat.render({.messages = kHello, .extra = {{"messages", 1}}}), Error);
}

// --- what a template writes, the parser reads

TEST(RoundTrip, ToolCallsComeBackFromEveryFamily) {
  const ordered_json tools =
      ordered_json::parse(R"([{"type": "function", "function": {"name": "get_weather", "description": "w", "parameters": {"type": "object",
    "properties": {"city": {"type": "string", "description": "c"}, "days": {"type": "integer", "description": "d"},
      "deep": {"type": "object", "description": "e"}}, "required": ["city"]}}}])");
  const ordered_json arguments = ordered_json::parse(R"({"city": "São \"Paulo\"\n2", "days": 3, "deep": {"a": [1, 2.5, null, true]}})");
  const ordered_json ask = {{"role", "user"}, {"content", "w?"}};
  const ordered_json calling = {{"role", "assistant"},
                                {"content", ""},
                                {"tool_calls", {{{"id", "call_1"}, {"type", "function"}, {"function", {{"name", "get_weather"}, {"arguments", arguments}}}}}}};
  const std::vector<std::tuple<std::string, MessageFormat, std::string>> families = {
      {"real/GLM-4.6", MessageFormat::glm, ""},
      {"real/Qwen-Qwen2.5-7B-Instruct", MessageFormat::qwen, "<|im_end|>"},
      {"real/Qwen-Qwen3-0.6B", MessageFormat::qwen, "<|im_end|>"},
      {"real/Qwen3-Coder", MessageFormat::qwen, "<|im_end|>"},
      {"made/llama", MessageFormat::llama, "<|eot_id|>"},
      {"made/kimi", MessageFormat::kimi, "<|im_end|>"},
      {"made/minimax", MessageFormat::minimax, "[e~["},
      {"made/nemotron", MessageFormat::nemotron, "<SPECIAL_12>"},
  };
  for (const auto& [name, format, end] : families) {
    SCOPED_TRACE(name);
    const std::string source = read_file(std::string(LOCKSTEP_SOURCE_DIR) + "/tests/templates/" + name + ".jinja", 1 << 20);
    EXPECT_EQ(detect_message_format(source), format);
    const ChatTemplate chat = ChatTemplate::from_source(source);
    const std::string prompt = chat.render({.messages = {ask}, .tools = tools, .unix_time = 1});
    const std::string whole = chat.render({.messages = {ask, calling}, .tools = tools, .add_generation_prompt = false, .unix_time = 1});
    // What the model wrote: behind what both have in common.
    std::size_t common = 0;
    while (common < prompt.size() && common < whole.size() && prompt[common] == whole[common]) ++common;
    if (const std::size_t tag = whole.rfind("<think", common); tag != std::string::npos && common - tag < 8) common = tag;
    if (whole[common - 1] == '<') --common;
    std::string answer = whole.substr(common);
    ASSERT_NE(answer.rfind(end), std::string::npos) << answer;
    if (!end.empty()) answer.resize(answer.rfind(end));
    MessageParser parser(format, tools, false);
    MessageDelta message = parser.push(answer);
    MessageDelta rest = parser.flush();
    message.tool_calls.insert(message.tool_calls.end(), rest.tool_calls.begin(), rest.tool_calls.end());
    ASSERT_EQ(message.tool_calls.size(), 1u) << answer;
    EXPECT_EQ(message.tool_calls[0].name, "get_weather");
    EXPECT_EQ(ordered_json::parse(message.tool_calls[0].arguments), arguments) << answer;
    EXPECT_EQ(message.content + rest.content, "") << answer;
  }
}

}  // namespace
}  // namespace lockstep
