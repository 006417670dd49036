// Who answers in a talk: a model in this process, or a server that speaks OpenAI's API. Knows no terminal. One thread; the talk's.
//   const auto model = local_chat_model(runtime, {}); model->answer(messages, settings, show);
#pragma once
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "service/loading.h"

namespace lockstep {

struct ChatSettings {
  double temperature = 1, top_p = 1, min_p = 0, repetition_penalty = 1;
  std::int64_t top_k = 0, max_tokens = 0;  // 0: all; what the context leaves
  std::optional<std::uint64_t> seed;       // none: another one for every answer
};

class ChatModel {
 public:
  using Json = nlohmann::ordered_json;
  using Show = std::function<void(const std::string& reasoning, const std::string& content)>;
  enum class End { whole, length, stopped };
  virtual ~ChatModel() = default;
  virtual std::string name() const = 0;
  virtual Json about() const = 0;  // for a saved talk
  // The answer to `messages` as it comes. Ctrl-C (base/signals.h) ends it. Errors: what is wrong with the talk, or with the answer.
  virtual End answer(const Json& messages, const ChatSettings& settings, const Show& show) = 0;
};

std::unique_ptr<ChatModel> local_chat_model(const RuntimeSettings& runtime, const std::string& chat_template);

// `model`: its name there; empty: the first that the server tells of. `key`: empty: none.
std::unique_ptr<ChatModel> remote_chat_model(const std::string& url, const std::string& key, const std::string& model);

}  // namespace lockstep
