// Answers chat turns, with a model in this process or a server that speaks OpenAI's API. Knows no terminal. One thread.
//   const auto model = local_chat_model(runtime, {}, {}, {}); model->answer(messages, settings, show);
#pragma once
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "serving/loading.h"
#include "serving/serving.h"

namespace lockstep {

// Unset fields are taken from the model's generation_config.json, else from defaults for chat (serving/generation_defaults.h); a server has its own.
struct ChatSettings {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<std::int64_t> top_k;  // 0: all
  std::int64_t max_tokens = 0;        // 0: what the context leaves
  std::optional<std::uint64_t> seed;  // empty: a new random one for every answer
};

class ChatModel {
 public:
  using Json = nlohmann::ordered_json;
  using Show = std::function<void(const std::string& reasoning, const std::string& content)>;
  enum class End { whole, length, stopped };
  virtual ~ChatModel() = default;
  virtual std::string name() const = 0;
  virtual Json about() const = 0;  // a description for a saved conversation
  // The values used for settings that are not given, all of them; empty for a server that does not tell.
  virtual std::optional<ChatSettings> usual() const { return std::nullopt; }
  // Streams the answer to `messages`. Ctrl-C (base/signals.h) ends it. Errors: those of the conversation, of the model or of the server.
  virtual End answer(const Json& messages, const ChatSettings& settings, const Show& show) = 0;
};

// `generation_config`: auto or none (serving/loading.h).
std::unique_ptr<ChatModel> local_chat_model(const RuntimeSettings& runtime, const std::string& chat_template, const std::string& generation_config,
                                            const DraftOptions& drafts);

// `model`: its name there; empty: the first one that the server lists. `key`: an API key; empty: none.
std::unique_ptr<ChatModel> remote_chat_model(const std::string& url, const std::string& key, const std::string& model);

}  // namespace lockstep
