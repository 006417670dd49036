// Streams that are held on the way, over HTTP's API: what is told, who may say how one goes on, and how one ends that nobody says it of.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>

#include "api/api_test_tools.h"
#include "api/fireworks/model_completions.h"
#include "api/openai/held_streams.h"
#include "api/openai/openai_api.h"
#include "serving/loading.h"
#include "serving/served_defaults.h"

namespace lockstep {
namespace {

class HeldServer {
 public:
  Routes routes;
  std::shared_ptr<GenerationService> service;

  explicit HeldServer(const std::string& model = LOCKSTEP_SOURCE_DIR "/models/countdown-glm") {
    ServingModel parts = serving_model(open_model({.model = model, .threads = 2}));
    if (std::filesystem::exists(model + "/chat_template.jinja")) add_chat(parts, model);
    service = std::make_shared<GenerationService>(std::move(parts), ServingOptions{.max_open = 128});
    const std::shared_ptr<const Deployments> deployments = only_deployment(service);
    const auto streams = std::make_shared<HeldStreams>();
    add_openai_routes(routes, deployments, streams);
    add_model_completions(routes, deployments, streams);
    ApiKeys keys;
    for (const char* name : {"ann", "bob"}) keys.add(name, std::string("key-of-") + name + "-0123456789");
    Access access;
    access.keys = std::make_shared<const KeyRing>(std::move(keys));
    routes.set_access(std::move(access));
  }
  std::shared_ptr<Recorder> post(const std::string& path, const Json& body, const std::string& who = "ann") {
    ApiRequest request{"POST", path, "", "application/json", body.dump()};
    request.headers.emplace_back("authorization", "Bearer key-of-" + who + "-0123456789");
    auto recorder = std::make_shared<Recorder>();
    routes.handle(std::move(request), recorder);
    return recorder;
  }
  static Json body(Json hold, std::int64_t seed = 5) {
    return {{"prompt", "3 7 12=48:"}, {"max_tokens", 20}, {"seed", seed},   {"temperature", 1.5},
            {"ignore_eos", true},     {"logprobs", 0},    {"stream", true}, {"hold", std::move(hold)}};
  }
  std::shared_ptr<Recorder> stream(Json hold, std::int64_t seed = 5) { return post("/v1/completions", body(std::move(hold), seed)); }
  Json act(const std::string& id, const Json& action, int status = 200, const std::string& who = "ann") {
    const auto recorder = post("/v1/streams/" + id, action, who);
    EXPECT_EQ(recorder->wait().status, status) << recorder->wait().body;
    return recorder->json();
  }
};

// The notices of holds that came until now.
std::vector<Json> notices_of(const std::string& body) {
  std::vector<Json> notices;
  for (std::size_t at = 0, end = 0; (end = body.find("\n\n", at)) != std::string::npos; at = end + 2) {
    const std::string event = body.substr(at + 6, end - at - 6);
    if (event == "[DONE]") continue;
    const Json json = Json::parse(event);
    if (json.contains("hold")) notices.push_back(json.at("hold"));
  }
  return notices;
}

// The last notice of a roll-back; the stream may have been held again behind it.
Json roll_back_of(const std::string& body) {
  const std::vector<Json> notices = notices_of(body);
  const auto last = std::find_if(notices.rbegin(), notices.rend(), [](const Json& notice) { return notice.at("state") == "rolled_back"; });
  return last == notices.rend() ? Json() : *last;
}

struct HeldTold {
  std::vector<std::int32_t> ids;
  std::vector<double> logprobs;
  std::string text, finish;
  Json usage;
};
// As a client has it: a roll-back cuts what it was told.
HeldTold told_of(const std::vector<Json>& parts) {
  HeldTold told;
  for (const Json& part : parts) {
    if (part.contains("usage") && !part.at("usage").is_null()) told.usage = part.at("usage");
    for (const Json& choice : part.at("choices")) {
      told.text += choice.at("text").get<std::string>();
      for (const Json& id : choice.at("token_ids")) told.ids.push_back(id);
      for (const Json& value : choice.at("logprobs").at("token_logprobs")) told.logprobs.push_back(value);
      if (!choice.at("finish_reason").is_null()) told.finish = choice.at("finish_reason");
    }
    if (!part.contains("hold") || part.at("hold").at("state") != "rolled_back") continue;
    const Json& hold = part.at("hold");
    told.text = hold.at("text");
    const auto kept = hold.at("position").get<std::size_t>() - hold.at("token_ids").size();
    told.ids.resize(kept);
    told.logprobs.resize(kept);
    for (const Json& id : hold.at("token_ids")) told.ids.push_back(id), told.logprobs.push_back(0);
  }
  return told;
}

TEST(HeldStreams, GoOnRollBackAndStop) {
  HeldServer server;
  const auto recorder = server.stream({{"every", 6}});
  Json notice = notices_of(recorder->wait_for("\"held\"")).back();
  const std::string id = notice.at("id");
  EXPECT_EQ(id.substr(0, 5), "cmpl-");
  EXPECT_EQ(notice, (Json{{"id", id}, {"state", "held"}, {"position", 6}, {"attempt", 0}, {"at", "tokens"}, {"seconds", 60.0}}));
  EXPECT_EQ(server.act(id, {{"action", "continue"}}), (Json{{"id", id}, {"object", "stream"}, {"state", "generating"}, {"position", 6}, {"attempt", 0}}));
  notice = notices_of(recorder->wait_for("\"held\"", 2)).back();
  EXPECT_EQ(notice.at("position"), 12);
  const Json answer = server.act(id, {{"action", "rollback"}, {"position", 4}, {"text", "12-"}});
  EXPECT_EQ(answer.at("rolled_back"), 8);
  EXPECT_EQ(answer.at("attempt"), 1);
  const std::vector<Json> notices = notices_of(recorder->wait_for("\"held\"", 3));
  ASSERT_EQ(notices.size(), 4u);
  EXPECT_EQ(notices[2].at("state"), "rolled_back");
  EXPECT_EQ(notices[2].at("text"), answer.at("text"));
  EXPECT_EQ(notices[2].at("token_ids"), answer.at("token_ids"));
  EXPECT_EQ(notices[3].at("position"), 12);
  server.act(id, {{"action", "continue"}});
  recorder->wait_for("\"held\"", 4);
  EXPECT_EQ(server.act(id, {{"action", "stop"}}).at("state"), "stopped");
  const HeldTold told = told_of(stream_parts(recorder->wait().body));
  EXPECT_EQ(told.finish, "stop");
  EXPECT_EQ(told.ids.size(), 18u);
  EXPECT_EQ(told.text, server.service->model().tokenizer().decode(told.ids, true));

  // A new request with that prompt and attempt: the same tokens and log-probabilities.
  const auto put_in = answer.at("token_ids").get<std::vector<std::int32_t>>();
  const std::size_t said = 4 + put_in.size();
  std::vector<std::int32_t> prompt = server.service->model().tokenizer().encode("3 7 12=48:", true);
  prompt.insert(prompt.end(), told.ids.begin(), told.ids.begin() + static_cast<std::ptrdiff_t>(said));
  Json body = HeldServer::body({});
  body.erase("hold");
  body["prompt"] = prompt;
  body["max_tokens"] = 18 - said;
  body["stream"] = false;
  std::vector<std::vector<std::int32_t>> ids;
  std::vector<std::vector<double>> logprobs;
  for (const int attempt : {1, 0}) {
    body["attempt"] = attempt;
    const Json choice = server.post("/v1/completions", body)->json().at("choices").at(0);
    ids.push_back(choice.at("token_ids"));
    logprobs.push_back(choice.at("logprobs").at("token_logprobs"));
  }
  EXPECT_EQ(ids[0], std::vector<std::int32_t>(told.ids.begin() + static_cast<std::ptrdiff_t>(said), told.ids.end()));
  EXPECT_EQ(logprobs[0], std::vector<double>(told.logprobs.begin() + static_cast<std::ptrdiff_t>(said), told.logprobs.end()));
  EXPECT_NE(ids[1], ids[0]);  // the control
}

TEST(HeldStreams, UsageTellsWhatWasRolledBackAndPutIn) {
  HeldServer server;
  Json body = HeldServer::body({{"strings", {"="}}, {"every", 7}});
  body["stream_options"] = {{"include_usage", true}};
  const auto recorder = server.post("/v1/completions", body);
  const Json notice = notices_of(recorder->wait_for("\"held\"")).back();
  const auto position = notice.at("position").get<std::int64_t>();
  server.act(notice.at("id"), {{"action", "rollback"}, {"position", 1}, {"tokens", {17, 18}}});
  recorder->wait_for("\"held\"", 2);
  const Json second = notices_of(recorder->wait_for("\"held\"", 2)).back();
  server.act(notice.at("id"), {{"action", "stop"}});
  const HeldTold told = told_of(stream_parts(recorder->wait().body));
  EXPECT_EQ(told.usage.at("completion_tokens"), position + second.at("position").get<std::int64_t>() - 3);
  EXPECT_EQ(told.usage.at("completion_tokens_details").at("rolled_back_tokens"), position - 1);
  EXPECT_EQ(told.usage.at("completion_tokens_details").at("put_in_tokens"), 2);
  EXPECT_EQ(std::ssize(told.ids), second.at("position").get<std::int64_t>());
}

TEST(HeldStreams, AnotherKeysStreamIsNone) {
  HeldServer server;
  const auto recorder = server.stream({{"every", 5}});
  const std::string id = notices_of(recorder->wait_for("\"held\"")).back().at("id");
  const Json other = server.act(id, {{"action", "continue"}}, 404, "bob"), none = server.act("cmpl-0", {{"action", "continue"}}, 404);
  EXPECT_EQ(other.at("error").at("code"), "stream_not_found");
  EXPECT_EQ(none.at("error").at("code"), "stream_not_found");
  EXPECT_EQ(server.act(id, {{"action", "back"}}, 400).at("error").at("param"), "action");
  EXPECT_EQ(server.act(id, Json::object(), 400).at("error").at("param"), "action");
  EXPECT_EQ(server.act(id, {{"action", "rollback"}}, 400).at("error").at("param"), "position");
  EXPECT_EQ(server.act(id, {{"action", "continue"}, {"position", 1}}, 400).at("error").at("param"), "position");
  EXPECT_EQ(server.act(id, {{"action", "rollback"}, {"position", 6}}, 400).at("error").at("param"), "position");
  EXPECT_EQ(server.act(id, {{"action", "rollback"}, {"position", 5}, {"tokens", {1, -1}}}, 400).at("error").at("param"), "tokens[1]");
  EXPECT_EQ(server.act(id, {{"action", "rollback"}, {"position", 5}, {"tokens", {1, 99999}}}, 400).at("error").at("param"), "tokens");
  EXPECT_EQ(server.act(id, {{"action", "continue"}, {"text", "1"}}, 400).at("error").at("param"), "text");
  server.act(id, {{"action", "stop"}});
  recorder->wait();
  EXPECT_EQ(server.act(id, {{"action", "stop"}}, 404).at("error").at("code"), "stream_not_found");
}

TEST(HeldStreams, OneThatNobodyComesForEndsAndSaysWhy) {
  HeldServer server;
  const auto recorder = server.stream({{"every", 5}, {"seconds", 0.3}});
  const std::string body = recorder->wait().body;
  EXPECT_NE(body.find("the stream was held at position 5 for 0.3"), std::string::npos) << body;
  EXPECT_NE(body.find("\"hold_expired\""), std::string::npos);
  EXPECT_EQ(body.find("[DONE]"), std::string::npos);
  EXPECT_EQ(server.service->bounds().open(), 0);
  EXPECT_EQ(server.service->statistics().held.load(), 0);
  // Each hold has its time: two of them together have more than one may.
  const auto slow = server.stream({{"every", 5}, {"seconds", 3}});
  const std::string id = notices_of(slow->wait_for("\"held\"")).back().at("id");
  for (std::size_t hold = 2; hold <= 3; ++hold) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1600));
    server.act(id, {{"action", "continue"}});
    slow->wait_for("\"held\"", hold);
  }
  server.act(id, {{"action", "stop"}});
  EXPECT_NE(slow->wait().body.find("[DONE]"), std::string::npos);
}

TEST(HeldStreams, AClientThatLeavesEndsItsStream) {
  HeldServer server;
  const auto recorder = server.stream({{"every", 5}, {"seconds", 300}});
  const std::string id = notices_of(recorder->wait_for("\"held\"")).back().at("id");
  recorder->lag(1 << 20);  // also one that does not read is told
  server.act(id, {{"action", "continue"}});
  recorder->wait_for("\"held\"", 2);
  recorder->abandon();
  recorder->wait();
  EXPECT_EQ(server.act(id, {{"action", "continue"}}, 404).at("error").at("code"), "stream_not_found");
  EXPECT_EQ(server.service->bounds().open(), 0);
}

TEST(HeldStreams, AKeyHasSoManyAtATime) {
  HeldServer server;
  std::vector<std::shared_ptr<Recorder>> recorders;
  for (std::int64_t i = 0; i < HeldStreams::kMostOfAKey; ++i) recorders.push_back(server.stream({{"every", 1}}, i));
  EXPECT_EQ(server.stream({{"every", 1}})->wait().status, 429);
  const auto other = server.post("/v1/completions", HeldServer::body({{"every", 1}}), "bob");
  other->wait_for("\"held\"");
  const std::string id = notices_of(recorders[0]->wait_for("\"held\"")).back().at("id");
  server.act(id, {{"action", "stop"}});
  recorders[0]->wait();
  const auto next = server.stream({{"every", 1}});
  next->wait_for("\"held\"");
  recorders[0] = next;
  recorders.push_back(other);
  for (const auto& recorder : recorders) recorder->abandon();
  for (const auto& recorder : recorders) recorder->wait();
  EXPECT_EQ(server.service->bounds().open(), 0);
}

TEST(HeldStreams, FieldsAreRefusedByName) {
  HeldServer server;
  const auto refused = [&](const Json& hold, const char* param, Json more = Json::object()) {
    Json body = HeldServer::body(hold);
    for (const auto& [key, value] : more.items()) body[key] = value;
    const auto recorder = server.post("/v1/completions", body);
    EXPECT_EQ(recorder->wait().status, 400) << body;
    EXPECT_EQ(recorder->json().at("error").at("param"), param) << recorder->wait().body;
  };
  refused(Json::object(), "hold");
  refused(3, "hold");
  refused({{"every", 0}}, "hold.every");
  refused({{"every", 1.5}}, "hold.every");
  refused({{"strings", "="}}, "hold.strings");
  refused({{"strings", {"=", ""}}}, "hold.strings[1]");
  refused({{"every", 1}, {"seconds", 601}}, "hold.seconds");
  refused({{"every", 1}, {"second", 6}}, "hold.second");
  refused({{"every", 1}}, "hold", {{"stream", false}});
  refused({{"every", 1}}, "hold", {{"n", 2}});
  refused({{"every", 1}}, "hold", {{"echo", true}});
  refused({{"every", 1}}, "attempt", {{"attempt", -1}});
}

TEST(HeldStreams, ChatsToo) {
  const ChatFolder folder;
  HeldServer server(folder.path());
  const Json body{{"messages", {{{"role", "user"}, {"content", "3 7 12=48:"}}}},
                  {"max_tokens", 20},
                  {"seed", 4},
                  {"ignore_eos", true},
                  {"stream", true},
                  {"hold", {{"every", 6}}}};
  const auto recorder = server.post("/v1/chat/completions", body);
  const std::string id = notices_of(recorder->wait_for("\"held\"")).back().at("id");
  EXPECT_EQ(id.substr(0, 9), "chatcmpl-");
  server.act(id, {{"action", "rollback"}, {"position", 0}, {"text", "<think>hm</think>12-"}});
  const Json notice = roll_back_of(recorder->wait_for("\"state\":\"rolled_back\""));
  EXPECT_EQ(notice.at("message").at("reasoning_content"), "hm");
  EXPECT_EQ(notice.at("message").at("content"), "12-");
  recorder->abandon();  // it is held again, and nobody says how it goes on
  recorder->wait();
}

// Calls are told with what stands of the message, and go with what is rolled back.
TEST(HeldStreams, ChatsWithTools) {
  const ChatFolder folder;
  HeldServer server(folder.path());
  const Json tool{{"name", "add"}, {"parameters", {{"type", "object"}, {"properties", {{"a", {{"type", "integer"}}}}}}}};
  Json body{{"messages", {{{"role", "user"}, {"content", "3"}}}},
            {"max_tokens", 300},
            {"seed", 4},
            {"ignore_eos", true},
            {"stream", true},
            {"hold", {{"every", 6}}},
            {"tools", {{{"type", "function"}, {"function", tool}}}}};
  const std::string call = "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>12</arg_value>\n</tool_call>";
  std::vector<std::string> finishes;
  for (const bool takes_back : {false, true}) {
    const auto recorder = server.post("/v1/chat/completions", body);
    const std::string id = notices_of(recorder->wait_for("\"held\"")).back().at("id");
    server.act(id, {{"action", "rollback"}, {"position", 0}, {"text", "so " + call + "<tool_call>add\n<arg_key>a"}});
    Json message = roll_back_of(recorder->wait_for("\"state\":\"rolled_back\"")).at("message");
    EXPECT_EQ(message.at("content"), "so");  // of the space before a call the stream says nothing
    ASSERT_EQ(message.at("tool_calls").size(), 2u) << message;
    EXPECT_EQ(message.at("tool_calls")[1].at("function").at("arguments"), "");  // it has begun
    const Json& told = message.at("tool_calls")[0];
    EXPECT_EQ(told.at("function").at("name"), "add");
    EXPECT_EQ(Json::parse(told.at("function").at("arguments").get<std::string>()), (Json{{"a", 12}}));
    EXPECT_EQ(told.at("id").get<std::string>().substr(0, 5), "call_");
    recorder->wait_for("\"held\"", 2);
    if (takes_back) {
      server.act(id, {{"action", "rollback"}, {"position", 0}, {"text", "no"}});
      message = roll_back_of(recorder->wait_for("\"state\":\"rolled_back\"", 2)).at("message");
      EXPECT_EQ(message.at("content"), "no");
      EXPECT_FALSE(message.contains("tool_calls"));
      recorder->wait_for("\"held\"", 3);
    }
    server.act(id, {{"action", "stop"}});
    for (const Json& part : stream_parts(recorder->wait().body))
      for (const Json& choice : part.at("choices"))
        if (!choice.at("finish_reason").is_null()) finishes.push_back(choice.at("finish_reason"));
  }
  EXPECT_EQ(finishes, (std::vector<std::string>{"tool_calls", "stop"}));
  // Where a grammar holds the answer to calls, what it does not allow cannot be put in.
  body["tool_choice"] = "required";
  const auto recorder = server.post("/v1/chat/completions", body);
  const std::string id = notices_of(recorder->wait_for("\"held\"")).back().at("id");
  EXPECT_EQ(server.act(id, {{"action", "rollback"}, {"position", 0}, {"text", "so"}}, 400).at("error").at("param"), "text");
  server.act(id, {{"action", "rollback"}, {"position", 0}, {"text", call}});
  const Json message = roll_back_of(recorder->wait_for("\"state\":\"rolled_back\"")).at("message");
  EXPECT_EQ(message.at("tool_calls")[0].at("function").at("name"), "add");
  recorder->abandon();
  recorder->wait();
}

// Of a stream's events from `begin` on: the text of each of its items.
std::map<std::string, std::string> item_texts_of(const std::vector<Json>& events, std::size_t begin) {
  std::map<std::string, std::string> texts;
  for (std::size_t i = begin; i < events.size(); ++i)
    if (events[i].contains("delta")) texts[events[i].at("item_id")] += events[i].at("delta").get<std::string>();
  return texts;
}

// A response's items begin anew with what stands after a roll-back, its calls too; one that only went on is the response that was never held.
TEST(HeldStreams, ResponsesToo) {
  const ChatFolder folder;
  HeldServer server(folder.path());
  const Json tool{{"type", "function"}, {"name", "add"}, {"parameters", {{"type", "object"}, {"properties", {{"a", {{"type", "integer"}}}}}}}};
  const Json plain{{"input", "3 7 12=48:"}, {"max_output_tokens", 300}, {"seed", 4}, {"temperature", 1.5}, {"stream", true}, {"tools", {tool}}};
  Json body = plain;
  body["hold"] = {{"every", 3}};
  const auto recorder = server.post("/v1/responses", body);
  const Json held = typed_events_of(recorder->wait_for("\"held\"")).back();
  EXPECT_EQ(held.at("type"), "response.hold");
  const std::string id = held.at("hold").at("id");
  EXPECT_EQ(id.substr(0, 5), "resp_");
  server.act(id, {{"action", "continue"}}, 404, "bob");
  const std::string call = "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>12</arg_value>\n</tool_call>";
  const Json put_in = server.act(id, {{"action", "rollback"}, {"position", 0}, {"text", "<think>hm</think>so " + call + "<tool_call>add\n<arg_key>a"}});
  recorder->wait_for("\"held\"", 2);
  server.act(id, {{"action", "stop"}});
  const std::vector<Json> events = typed_events_of(recorder->wait().body);
  for (std::size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i].at("sequence_number"), i);
  EXPECT_EQ(events[0].at("type"), "response.created");
  const auto rolled_back = std::find_if(events.begin(), events.end(), [](const Json& e) { return e.contains("hold") && e["hold"]["state"] == "rolled_back"; });
  ASSERT_NE(rolled_back, events.end());
  const auto behind = static_cast<std::size_t>(rolled_back - events.begin()) + 1;
  EXPECT_EQ(events[behind].at("type"), "response.output_item.added");
  EXPECT_EQ(events[behind].at("output_index"), 0);
  const Json& response = events.back().at("response");
  EXPECT_EQ(events.back().at("type"), "response.completed");
  const Json& output = response.at("output");
  ASSERT_EQ(output.size(), 4u) << output;
  EXPECT_EQ(output[0].at("content")[0].at("text"), "hm");
  EXPECT_EQ(output[1].at("content")[0].at("text").get<std::string>().substr(0, 2), "so");  // behind it what was left of a call that never was one
  EXPECT_EQ(Json::parse(output[2].at("arguments").get<std::string>()), (Json{{"a", 12}}));
  EXPECT_EQ(output[3].at("name"), "add");
  const auto texts = item_texts_of(events, behind);
  EXPECT_EQ(texts.at(output[0].at("id")), "hm");
  EXPECT_EQ(texts.at(output[2].at("id")), output[2].at("arguments"));
  EXPECT_NE(item_texts_of(events, 0), texts);  // the control: what was rolled back had been told
  EXPECT_EQ(response.at("usage").at("output_tokens_details").at("rolled_back_tokens"), 3);
  EXPECT_EQ(response.at("usage").at("output_tokens_details").at("put_in_tokens"), put_in.at("token_ids").size());

  const Json whole = typed_events_of(server.post("/v1/responses", plain)->wait().body).back();
  const auto goes_on = server.post("/v1/responses", body);
  for (std::size_t hold = 1; hold <= 2; ++hold)  // the answer has eight tokens
    server.act(typed_events_of(goes_on->wait_for("\"held\"", hold)).back().at("hold").at("id"), {{"action", "continue"}});
  const Json end = typed_events_of(goes_on->wait().body).back();
  EXPECT_EQ(end.at("response").at("output")[0].at("content"), whole.at("response").at("output")[0].at("content"));
  EXPECT_EQ(end.at("type"), "response.completed");

  body["hold"] = {{"every", 3}, {"seconds", 0.2}};
  const Json failed = typed_events_of(server.post("/v1/responses", body)->wait().body).back();
  EXPECT_EQ(failed.at("type"), "response.failed");
  EXPECT_EQ(failed.at("response").at("error").at("code"), "hold_expired");
  body["stream"] = false;
  EXPECT_EQ(server.post("/v1/responses", body)->json().at("error").at("param"), "hold");
}

// The same actions on Fireworks' wire: the same tokens and log-probabilities, and the ids at its end are those that stand.
TEST(HeldStreams, OnFireworksWireToo) {
  HeldServer server;
  const auto played = [&](const std::string& path, const Json& body) {
    const auto recorder = server.post(path, body);
    const std::string id = notices_of(recorder->wait_for("\"held\"")).back().at("id");
    server.act(id, {{"action", "continue"}}, 404, "bob");
    server.act(id, {{"action", "rollback"}, {"position", 3}, {"tokens", {17, 18}}});
    recorder->wait_for("\"held\"", 2);
    server.act(id, {{"action", "continue"}});
    recorder->wait_for("\"held\"", 3);
    server.act(id, {{"action", "stop"}});
    return stream_parts(recorder->wait().body);
  };
  const HeldTold expected = told_of(played("/v1/completions", HeldServer::body({{"every", 6}})));
  Json body = HeldServer::body({{"every", 6}});
  body["model"] = "m";
  body["logprobs"] = true;
  body["raw_output"] = true;
  body["return_token_ids"] = true;
  HeldTold told;
  Json last;
  for (const Json& part : played("/inference/v1/completions", body)) {
    last = part;
    const Json& choice = part.at("choices")[0];
    told.text += choice.at("text").get<std::string>();
    for (const Json& id : choice.at("token_ids")) told.ids.push_back(id);
    for (const Json& row : choice.at("logprobs").at("content")) told.logprobs.push_back(row.at("logprob"));
    if (!part.contains("hold") || part.at("hold").at("state") != "rolled_back") continue;
    const Json& hold = part.at("hold");
    EXPECT_EQ(hold.at("token_ids"), (Json{17, 18}));
    told.text = hold.at("text");
    told.ids.resize(3);
    told.logprobs.resize(3);
    for (const std::int32_t id : {17, 18}) told.ids.push_back(id), told.logprobs.push_back(0);
  }
  EXPECT_EQ(told.ids, expected.ids);
  EXPECT_EQ(told.logprobs, expected.logprobs);
  EXPECT_EQ(told.text, expected.text);
  EXPECT_EQ(last.at("choices")[0].at("raw_output").at("completion_token_ids"), Json(told.ids));
  EXPECT_EQ(last.at("choices")[0].at("finish_reason"), "stop");
  EXPECT_EQ(last.at("usage").at("completion_tokens_details"), (Json{{"rolled_back_tokens", 3}, {"put_in_tokens", 2}}));
  body["stream"] = false;
  EXPECT_EQ(server.post("/inference/v1/completions", body)->json().at("error").at("param"), "hold");
}

}  // namespace
}  // namespace lockstep
