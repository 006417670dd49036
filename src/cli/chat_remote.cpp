#include "base/bounded_json.h"
#include "base/error.h"
#include "base/signals.h"
#include "cli/chat_model.h"
#include "http/client.h"

namespace lockstep {
namespace {
using Json = ChatModel::Json;

std::string text_of(const Json& object, const char* name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  return object.is_object() && found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// A server's error message in one line: OpenAI's error object, or else the body's text.
std::string complaint(const std::string& body) {
  const Json json = read_json_or_null(body);
  const Json error = json.is_object() && json.contains("error") ? json["error"] : json;
  std::string text = error.is_string() ? error.get<std::string>() : text_of(error, "message");
  if (text.empty()) text = body;
  std::string line;
  for (const char c : text.substr(0, 500)) line += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  return line.empty() ? "and says nothing" : line;
}

class RemoteChat : public ChatModel {
 public:
  RemoteChat(const std::string& url, std::string key, std::string model)
      : address_(parse_http_address(url, "url")), model_(std::move(model)), key_(std::move(key)) {
    if (!address_.path.ends_with("/v1")) address_.path += "/v1";
    const Json told = told_model(model_);
    model_ = text_of(told, "id");
    look_for_defaults(told);
  }
  std::string name() const override { return fmt::format("{} at {}:{}", model_, address_.host, address_.port); }
  Json about() const override {
    return {{"model", model_}, {"url", fmt::format("{}://{}:{}{}", address_.tls ? "https" : "http", address_.host, address_.port, address_.path)}};
  }
  End answer(const Json& messages, const ChatSettings& settings, const Show& show) override;

 private:
  HttpCall call(const char* method, const char* path) const {
    HttpCall call = call_at(address_, method, path, key_);
    call.timeout_seconds = 600;
    call.stop = [] { return interrupted(); };
    return call;
  }
  void check(const HttpReply& reply) const {
    if (reply.status == 200) return;
    const bool key = reply.status == 401 || reply.status == 403;
    fail(reply.status == 429         ? ErrorCode::resource_exhausted
         : key || reply.status < 500 ? ErrorCode::invalid_argument
                                     : ErrorCode::io,
         "{}:{} answers {}: {}{}", address_.host, address_.port, reply.status, complaint(reply.body),
         key ? " (--api-key or LOCKSTEP_API_KEY gives a key)" : "");
  }
  // The server's entry for the model called `wanted`, or its first entry.
  Json told_model(const std::string& wanted) const {
    HttpCall asked = call("GET", "/models");
    asked.timeout_seconds = 20;
    const HttpReply reply = http_call(asked);
    throw_if_interrupted();
    check(reply);
    const Json json = read_json_or_null(reply.body);
    if (json.is_object() && json.contains("data") && json["data"].is_array())
      for (const Json& one : json["data"])
        if (const std::string id = text_of(one, "id"); !id.empty() && (wanted.empty() || id == wanted)) return one;
    if (!wanted.empty()) return {{"id", wanted}};
    fail(ErrorCode::io, "{}:{} tells of no model; --model names one", address_.host, address_.port);
  }
  // A server of ours whose model has no generation_config.json: a talk is sampled as one with a folder is.
  void look_for_defaults(const Json& told) {
    const Json own = told.value("generation_config", Json());
    if (!own.is_object()) return;  // another's, who has defaults of its own
    for (const char* name : {"temperature", "top_p", "top_k", "min_p", "repetition_penalty"})
      if (own.contains(name)) return;
    talk_ = true;
  }
  HttpAddress address_;
  std::string model_, key_;
  bool talk_ = false;
};

ChatModel::End RemoteChat::answer(const Json& messages, const ChatSettings& s, const Show& show) {
  Json body{{"model", model_}, {"messages", Json::array()}, {"stream", true}};
  for (const Json& message : messages) body["messages"].push_back({{"role", message["role"]}, {"content", message["content"]}});
  // Sends only settings that were changed: the server has defaults for the others, and not every server knows all fields.
  const auto put = [&](const char* name, const auto& value) {
    if (value) body[name] = *value;
  };
  put("temperature", s.temperature || !talk_ ? s.temperature : std::optional<double>(kTalkTemperature));
  put("top_p", s.top_p || !talk_ ? s.top_p : std::optional<double>(kTalkTopP));
  put("top_k", s.top_k);
  put("min_p", s.min_p);
  put("repetition_penalty", s.repetition_penalty);
  if (s.max_tokens > 0) body["max_tokens"] = s.max_tokens;
  if (s.seed) body["seed"] = *s.seed;

  bool done = false;
  std::string finish;
  EventReader events([&](const std::string& data) {
    if (done || data == "[DONE]") {
      done = true;
      return;
    }
    const Json json = read_json_or_null(data);
    if (json.is_object() && json.contains("error") && !json["error"].is_null()) fail(ErrorCode::io, "the answer failed: {}", complaint(data));
    const auto choices = json.is_object() ? json.find("choices") : json.end();
    if (!json.is_object() || choices == json.end() || !choices->is_array())
      fail(ErrorCode::io, "the stream has an event that is none of OpenAI's: {}", complaint(data));
    if (choices->empty()) return;  // of usage
    const Json& choice = (*choices)[0];
    const Json delta = choice.is_object() ? choice.value("delta", Json()) : Json();
    std::string reasoning = text_of(delta, "reasoning_content");
    if (reasoning.empty()) reasoning = text_of(delta, "reasoning");
    if (const std::string content = text_of(delta, "content"); !content.empty() || !reasoning.empty()) show(reasoning, content);
    if (const std::string reason = text_of(choice, "finish_reason"); !reason.empty()) finish = reason;
  });
  HttpCall asked = call("POST", "/chat/completions");
  asked.body = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  asked.on_data = [&](std::string_view bytes) { events.push(bytes); };
  const HttpReply reply = http_call(asked);
  if (reply.stopped) return End::stopped;
  check(reply);
  if (!done && finish.empty()) fail(ErrorCode::io, "the answer of {}:{} was cut off", address_.host, address_.port);
  return finish == "length" ? End::length : End::whole;
}
}  // namespace

std::unique_ptr<ChatModel> remote_chat_model(const std::string& url, const std::string& key, const std::string& model) {
  return std::make_unique<RemoteChat>(url, key, model);
}

}  // namespace lockstep
