// Conversations as training data: the token ids that the model would see when served, with a weight on each token that the
// assistant wrote and on the one that ends its turn.
//   ChatData data({tokenizer, chat, ends}); WeightedTokens t = data.conversation(messages, tools, {});
// Which tokens are the assistant's is proved in one of two ways, or the conversation is refused:
//  the template marks them ({% generation %} blocks, one per turn of the assistant), or
//  the prompt that serving would have given (the messages before, with the generation prompt) is a token prefix of the whole conversation,
//  and the first end token behind it comes before anything of the next message.
// Text of other roles never becomes a special token. Knows no file. Thread rule: immutable; any thread.
#pragma once
#include <nlohmann/json.hpp>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/template/prompt_encoder.h"

namespace lockstep {

// The date for templates that ask for it, fixed so that the same data give the same tokens every day: 1 January 2025, noon UTC.
inline constexpr std::int64_t kDateOfData = 1735732800;

struct WeightedTokens {
  std::vector<std::int32_t> tokens;
  std::vector<float> weights;  // of each token as a target; the first token's is unused
};

// How texts end. If a model's files list several ids, the first must not be chosen blindly: in Llama 3 it ends documents,
// while turns end with another.
struct EndTokens {
  std::optional<std::int32_t> own;  // ends a completion or a text: --end-token, else tokenizer_config.json's eos_token, else the only eos_token_id
  std::vector<std::int32_t> turn;   // each ends a turn: --end-token only, else all that the folder names
  std::string unknown;              // why there is no `own`
};
// `wanted`: a token's text or its id; empty: none. Errors: invalid_argument for one that the tokenizer lacks.
EndTokens end_tokens(const std::filesystem::path& folder, const Tokenizer* tokenizer, const std::string& wanted);

// Reads messages and tools as the server does for a request: checked, and in the form for templates. So a conversation in training data
// is also a valid request. Each function gets the value and its name for errors.
struct ChatReading {
  std::function<nlohmann::ordered_json(const nlohmann::ordered_json&value, const std::string&name)> messages, tools;
};

struct ChatDataSettings {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat;  // null: no conversations
  EndTokens ends;
  ChatReading reading;
};

class ChatData;
// From a model's folder: its chat template, or a file's; its end tokens, or the given one (end_tokens).
ChatData open_chat_data(const std::filesystem::path& folder, std::shared_ptr<const Tokenizer> tokenizer, const std::string& wanted_end,
                        const std::string& template_file, ChatReading reading);

class ChatData {
 public:
  explicit ChatData(ChatDataSettings settings);

  // OpenAI's messages, of which a tool's need no tool_call_id; one of the assistant may have "weight" (0 or more) or "train" (true, false). `extra`:
  // chat_template_kwargs. What stands behind the last trained token is left out. Errors: invalid_argument with the message's place, for what cannot be
  // proved; unsupported without a template.
  WeightedTokens conversation(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools, const nlohmann::ordered_json& extra) const;
  // The prompt as `lockstep generate` and /v1/completions read it, special tokens too; the completion in the same way, with the end token
  // unless it has that itself. Weight 1 on the completion.
  WeightedTokens completion(const std::string& prompt, const std::string& completion) const;
  // The token that ends these. Error invalid_argument when the model's files do not name one.
  std::int32_t completion_end() const { return own_end("a completion"); }
  // Trains all of a text, and its end token.
  WeightedTokens text(const std::string& text) const;

  const Tokenizer* tokenizer() const { return settings_.tokenizer.get(); }

 private:
  struct Turn {
    std::size_t begin = 0, end = 0;      // tokens
    std::optional<std::int32_t> behind;  // a token to append: with it the template ends a turn that nothing follows yet
  };
  nlohmann::ordered_json read_messages(nlohmann::ordered_json messages) const;
  bool ends_turn(std::int32_t id) const;
  std::size_t first_end(const std::vector<std::int32_t>& ids, std::size_t from) const;
  Turn proved(const nlohmann::ordered_json& messages, std::size_t k, const std::vector<std::int32_t>& ids, const nlohmann::ordered_json& tools,
              const nlohmann::ordered_json& extra) const;
  Turn marked(std::size_t k, bool last, const RenderedPrompt& text, std::size_t range, const std::vector<std::int32_t>& ids) const;
  std::vector<std::int32_t> ids_of(const nlohmann::ordered_json& messages, bool generation_prompt, const nlohmann::ordered_json& tools,
                                   const nlohmann::ordered_json& extra, RenderedPrompt* text = nullptr) const;
  std::optional<std::int32_t> end_after(const nlohmann::ordered_json& messages, std::size_t begin, const nlohmann::ordered_json& tools,
                                        const nlohmann::ordered_json& extra) const;
  std::int32_t own_end(const char* of) const;
  ChatDataSettings settings_;
};

}  // namespace lockstep
