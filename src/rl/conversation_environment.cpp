#include "rl/conversation_environment.h"

#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "rl/trajectory/conversation.h"
#include "runs/chat_data.h"
#include "text/message/message_parser.h"
#include "text/template/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace lockstep {
namespace {
using nlohmann::ordered_json;

constexpr const char* kPlaceholder = "0";  // of a text that stands in a conversation for its place alone

// A message as templates have it: a call's arguments are an object.
ordered_json called(const std::string& answer) { return write_call("call_1", {{"text", answer}}); }
ordered_json said(const char* role, const std::string& content) { return {{"role", role}, {"content", content}}; }

std::string without_space(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpace);
  return first == std::string::npos ? std::string() : text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
}

struct ChatForm {
  ChatTemplate chat;
  MessageFormat format;           // of calls
  std::vector<std::string> ends;  // texts of the tokens that end a turn

  std::string render(const ordered_json& messages, const ordered_json& tools) const {
    return chat.render({.messages = messages, .tools = tools, .extra = nullptr, .unix_time = kDateOfData});
  }
};

// What the template writes of a turn of the assistant that another message follows, and behind the token that ends it.
struct TurnText {
  std::string written, behind;
};

class ConversationEpisode final : public Episode {
 public:
  ConversationEpisode(const ChatForm& form, const Environment& inner, const Problem& problem)
      : form_(form), inner_(inner.begin(problem)), reference_(reference_conversation(inner, problem)) {
    user_.push_back(reference_.messages[0]);
    prompt_ = form_.render(user_, reference_.tools);
    opens_reasoning_ = without_space(prompt_).ends_with("<think>");
  }
  std::string task() const override { return prompt_; }
  bool in_template() const override { return true; }
  EpisodeStep step(std::string_view answer) override {
    if (done_) fail(ErrorCode::internal, "the episode of '{}' is done, and it got another answer", prompt_);
    ++turns_;
    const std::optional<Answer> told = answer_of(answer);
    EpisodeStep its;
    if (told) its = inner_->step(told->text);
    done_ = !told || its.done || !told->call;
    if (done_) return {.observation = {}, .reward = its.reward, .done = true};
    return {.observation = turn_text(called(kPlaceholder), write_result("call_1", its.observation)).behind, .reward = its.reward, .done = false};
  }
  std::string reference() const override {
    const std::string answer = inner_->reference();
    const bool last = turns_ + 1 >= reference_.messages.size() / 2;  // each answer is a message behind another one
    return (last ? turn_text(said("assistant", answer), said("user", kPlaceholder)) : turn_text(called(answer), write_result("call_1", kPlaceholder))).written;
  }

 private:
  struct Answer {
    std::string text;
    bool call = false;
  };
  // None: it is malformed, or calls something else, or more than once.
  std::optional<Answer> answer_of(std::string_view message) const {
    MessageParser parser(reference_.tools.is_null() ? MessageFormat::plain : form_.format, reference_.tools, opens_reasoning_);
    const MessageDelta deltas[] = {parser.push(message), parser.flush()};
    std::string content, name, arguments;
    std::size_t calls = 0;
    for (const MessageDelta& delta : deltas) {
      content += delta.content;
      for (const ToolCallDelta& part : delta.tool_calls) {
        calls = part.index + 1;
        name += part.name;
        arguments += part.arguments;
      }
    }
    if (calls == 0) return Answer{.text = without_space(content), .call = false};
    const ordered_json given = ordered_json::parse(arguments, nullptr, false);
    if (calls > 1 || name != kWriteTool || !given.is_object() || !given.contains("text") || !given["text"].is_string()) return {};
    return Answer{.text = given["text"].get<std::string>(), .call = true};
  }
  TurnText turn_text(const ordered_json& turn, const ordered_json& next) const {
    ordered_json messages = user_;
    messages.push_back(turn);
    messages.push_back(next);
    const std::string all = form_.render(messages, reference_.tools);
    if (!all.starts_with(prompt_))
      fail(ErrorCode::unsupported, "the chat template does not go on from the prompt that it gives, so turns of a conversation cannot be told apart");
    std::size_t first = std::string::npos, length = 0;
    for (const std::string& end : form_.ends)
      if (const std::size_t at = all.find(end, prompt_.size()); at < first) first = at, length = end.size();
    if (first == std::string::npos)
      fail(ErrorCode::unsupported, "the chat template writes none of the model's end tokens ({}) behind a turn of the assistant", fmt::join(form_.ends, ", "));
    return {.written = all.substr(prompt_.size(), first - prompt_.size()), .behind = all.substr(first + length)};
  }

  const ChatForm& form_;
  std::unique_ptr<Episode> inner_;
  const ReferenceConversation reference_;
  ordered_json user_ = ordered_json::array();  // the conversation's first message
  std::string prompt_;
  bool opens_reasoning_ = false, done_ = false;
  std::size_t turns_ = 0;
};

class ConversationEnvironment final : public Environment {
 public:
  ConversationEnvironment(std::unique_ptr<Environment> inner, ChatForm form) : inner_(std::move(inner)), form_(std::move(form)) {}
  std::string name() const override { return inner_->name(); }
  Problem problem(Split split, std::uint64_t seed, std::uint64_t index) const override { return inner_->problem(split, seed, index); }
  std::unique_ptr<Episode> begin(const Problem& problem) const override { return std::make_unique<ConversationEpisode>(form_, *inner_, problem); }
  bool many_turns() const override { return inner_->many_turns(); }
  std::vector<std::string> domains() const override { return inner_->domains(); }

 private:
  std::unique_ptr<Environment> inner_;
  ChatForm form_;
};
}  // namespace

std::unique_ptr<Environment> make_conversation_environment(std::string_view name, const std::filesystem::path& model) {
  std::unique_ptr<Environment> inner = make_environment(name);
  if (!inner->begin(inner->problem(Split::train, 0, 0))->checked_at().empty())
    fail(ErrorCode::invalid_argument, "environment is '{}', whose answers are checked while they are written; allowed with chat is one without checks", name);
  std::optional<ChatTemplate> chat = ChatTemplate::from_folder(model);
  if (!chat)
    fail(ErrorCode::unsupported, "'{}' has no chat template (chat_template.jinja, or \"chat_template\" in tokenizer_config.json); allowed is no chat",
         model.string());
  const MessageFormat format = detect_message_format(chat->source());
  if (inner->many_turns() && format == MessageFormat::plain)
    fail(ErrorCode::unsupported, "the chat template of '{}' has no calls of tools that are read, and '{}' has many turns; allowed is no chat", model.string(),
         name);
  const Tokenizer tokenizer = Tokenizer::from_folder(model);
  std::vector<std::string> ends;
  for (const std::int32_t id : end_tokens(model, &tokenizer, "").turn)
    if (tokenizer.is_special(id)) ends.push_back(tokenizer.token_text(id));
  return std::make_unique<ConversationEnvironment>(std::move(inner), ChatForm{std::move(*chat), format, std::move(ends)});
}

}  // namespace lockstep
