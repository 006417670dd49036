#include "api/openai/token_routes.h"

#include "api/json_text.h"
#include "api/openai/chat_answer.h"
#include "api/openai/completion_answer.h"
#include "serving/context_limit.h"

namespace lockstep {
namespace {
// The limit of one answer: several contexts of any model.
std::int64_t most_tokens(const GenerationService& service) { return std::max<std::int64_t>(kMostTokens, 4 * service.limits().max_positions); }
}  // namespace

std::string tokenize_answer(const GenerationService& service, std::string_view body, const std::optional<std::string>& called) {
  std::string model;
  std::optional<std::string> prompt;
  bool add_special_tokens = true, return_token_strs = false;
  JsonFields fields;
  fields.text("model", &model);
  fields.custom("prompt", [&](const Json& value, const std::string& field) { prompt = json_text(value, field); });
  ChatPrompt chat;
  add_chat_prompt_fields(fields, &chat);
  fields.boolean("add_special_tokens", &add_special_tokens);
  fields.boolean("return_token_strs", &return_token_strs);
  fields.read(parse_object(body));
  if (called) model = *called;
  if (!model.empty()) require_model(service, model);
  if (chat.ids) fail_field("prompt_token_ids", "is given, allowed are prompt and messages: these are tokens already");
  if (prompt && !chat.messages.empty()) fail_field("prompt", "is given beside messages, allowed is one of them");
  if (!prompt && chat.messages.empty()) fail_field("prompt", "is missing, and so are messages");
  if (!prompt) check_chat_prompt(chat);

  const Tokenizer& tokenizer = service.model().tokenizer();
  const std::vector<std::int32_t> ids = prompt ? tokenizer.encode(*prompt, add_special_tokens) : chat_prompt_ids(service, chat);
  const std::int64_t most = most_tokens(service);
  if (static_cast<std::int64_t>(ids.size()) > most)
    fail_field(prompt ? "prompt" : "messages", fmt::format("makes {} tokens, allowed are at most {} in one request", ids.size(), most));
  // Written directly: a tree of JSON values would take many times the answer's memory.
  std::string answer = fmt::format("{{\"count\":{},\"max_model_len\":{},\"tokens\":[", ids.size(), longest_request(service.limits()));
  const auto list = [&](auto&& append) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (i > 0) answer += ',';
      append(ids[i]);
    }
  };
  list([&](std::int32_t id) { append_json_integer(answer, id); });
  answer += "],\"token_strs\":";
  if (return_token_strs) {
    answer += '[';
    list([&](std::int32_t id) { append_json_string(answer, tokenizer.token_text(id)); });
    answer += ']';
  } else {
    answer += "null";
  }
  answer += '}';
  return answer;
}

Json detokenize_json(const GenerationService& service, std::string_view body, const std::optional<std::string>& called) {
  std::string model;
  std::optional<std::vector<std::int32_t>> tokens;
  bool skip_special_tokens = false;
  JsonFields fields;
  fields.text("model", &model);
  fields.custom("tokens", [&](const Json& value, const std::string& field) { tokens = json_token_ids(value, field); });
  fields.boolean("skip_special_tokens", &skip_special_tokens);
  fields.read(parse_object(body));
  if (called) model = *called;
  if (!model.empty()) require_model(service, model);
  if (!tokens) fail_field("tokens", "is missing");
  if (static_cast<std::int64_t>(tokens->size()) > most_tokens(service))
    fail_field("tokens", fmt::format("has {} tokens, allowed are at most {}", tokens->size(), most_tokens(service)));
  const std::int64_t vocabulary = service.limits().vocabulary;
  for (std::size_t i = 0; i < tokens->size(); ++i)
    if ((*tokens)[i] >= vocabulary)
      fail_field(fmt::format("tokens[{}]", i), fmt::format("is {}, allowed are token ids from 0 to {}", (*tokens)[i], vocabulary - 1));
  return {{"prompt", service.model().tokenizer().decode(*tokens, skip_special_tokens)}};
}

}  // namespace lockstep
