#include "runs/chat_data.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/json_file.h"
#include "checkpoint/model_source.h"
#include "text/template/special_tokens.h"

namespace lockstep {

using nlohmann::ordered_json;

namespace {
// A placeholder for the next message, where only its position matters.
constexpr const char* kProbe = "QZXPROBEXZQ";

bool begins_with(const std::vector<std::int32_t>& ids, const std::vector<std::int32_t>& prefix, std::size_t count) {
  return ids.size() >= count && prefix.size() >= count && std::equal(prefix.begin(), prefix.begin() + static_cast<std::ptrdiff_t>(count), ids.begin());
}

bool is_assistant(const ordered_json& message) { return message.value("role", "") == "assistant"; }

ordered_json first_messages(const ordered_json& messages, std::size_t count) {
  ordered_json some = ordered_json::array();
  for (std::size_t i = 0; i < count; ++i) some.push_back(messages[i]);
  return some;
}

// The weight of a message, which is removed from it.
float take_weight(ordered_json& message, std::size_t k) {
  const bool assistant = is_assistant(message);
  float weight = assistant ? 1.0f : 0.0f;
  if (message.contains("weight") && message.contains("train"))
    fail(ErrorCode::invalid_argument, "messages[{}] has weight and train, allowed is one of them", k);
  if (const auto given = message.find("weight"); given != message.end() && !given->is_null()) {
    const double value = given->is_number() ? given->get<double>() : -1;
    if (!(value >= 0) || !std::isfinite(static_cast<float>(value)))
      fail(ErrorCode::invalid_argument, "messages[{}].weight is {}, allowed is a number of at least 0", k, given->dump().substr(0, 40));
    weight = static_cast<float>(value);
  }
  if (const auto given = message.find("train"); given != message.end() && !given->is_null()) {
    if (!given->is_boolean()) fail(ErrorCode::invalid_argument, "messages[{}].train is {}, allowed is true or false", k, given->dump().substr(0, 40));
    weight = given->get<bool>() ? 1.0f : 0.0f;
  }
  if (weight != 0 && !assistant)
    fail(ErrorCode::invalid_argument, "messages[{}] is the {}'s and has a weight; only what the assistant says is learned", k, message.value("role", ""));
  message.erase("weight");
  message.erase("train");
  return weight;
}

// What a file of the folder gives as eos_token_id: an integer or several; none where there is no such file (a folder with a tokenizer alone).
void add_eos_ids(const FolderFiles& files, const std::string& name, std::vector<std::int64_t>& ids) {
  if (!files.has(name)) return;
  const Json config = read_json_file(files, name);
  if (!config.is_object() || !config.contains("eos_token_id")) return;
  const Json& given = config.at("eos_token_id");
  for (const Json& id : given.is_array() ? given : Json::array({given}))
    if (id.is_number_integer() && std::find(ids.begin(), ids.end(), id.get<std::int64_t>()) == ids.end()) ids.push_back(id.get<std::int64_t>());
}

// The ids at which serving ends a turn: those of both files.
std::vector<std::int64_t> read_eos_ids(const FolderFiles& files) {
  std::vector<std::int64_t> ids;
  for (const char* name : {"config.json", "generation_config.json"}) add_eos_ids(files, name, ids);
  return ids;
}

std::string read_eos_text(const FolderFiles& files) {
  const auto tokens = special_tokens_of(files);
  const auto found = tokens.find("eos_token");
  return found == tokens.end() ? std::string() : found->second;
}
}  // namespace

EndTokens end_tokens(const std::filesystem::path& folder, const Tokenizer* tokenizer, const std::string& wanted) {
  EndTokens ends;
  if (!wanted.empty()) {
    std::optional<std::int32_t> id = tokenizer ? tokenizer->token_id(wanted) : std::nullopt;
    if (std::int32_t number = 0; !id) {
      const auto parsed = std::from_chars(wanted.data(), wanted.data() + wanted.size(), number);
      if (parsed.ec == std::errc() && parsed.ptr == wanted.data() + wanted.size() && number >= 0) id = number;
    }
    if (!id) fail(ErrorCode::invalid_argument, "the end token is '{}', allowed is the text of a token of this tokenizer, or a token id", wanted.substr(0, 80));
    ends.own = id;
    ends.turn = {*id};
    return ends;
  }
  const std::unique_ptr<const FolderFiles> files = open_folder_files(folder);
  const std::vector<std::int64_t> config_eos = read_eos_ids(*files);
  const std::string eos = read_eos_text(*files);
  if (tokenizer && !eos.empty()) ends.own = tokenizer->token_id(eos);
  for (const std::int64_t id : config_eos) ends.turn.push_back(static_cast<std::int32_t>(id));
  if (ends.own && std::find(ends.turn.begin(), ends.turn.end(), *ends.own) == ends.turn.end()) ends.turn.push_back(*ends.own);
  if (!ends.own && config_eos.size() == 1) ends.own = static_cast<std::int32_t>(config_eos[0]);
  if (!ends.own)
    ends.unknown = fmt::format("tokenizer_config.json names no eos_token of this tokenizer, and config.json and generation_config.json have {}",
                               config_eos.empty() ? std::string("no eos_token_id") : fmt::format("several eos_token_id ({})", fmt::join(config_eos, ", ")));
  return ends;
}

ChatData open_chat_data(const std::filesystem::path& folder, std::shared_ptr<const Tokenizer> tokenizer, const std::string& wanted_end,
                        const std::string& template_file, ChatReading reading) {
  constexpr std::size_t kMostTemplateBytes = std::size_t{16} << 20;
  const std::unique_ptr<const FolderFiles> files = open_folder_files(folder);
  std::shared_ptr<const ChatTemplate> chat;
  if (!template_file.empty())
    chat = std::make_shared<const ChatTemplate>(ChatTemplate::from_source(read_file(template_file, kMostTemplateBytes), special_tokens_of(*files)));
  else if (auto own = ChatTemplate::from_folder(*files)) chat = std::make_shared<const ChatTemplate>(std::move(*own));
  EndTokens ends = end_tokens(folder, tokenizer.get(), wanted_end);
  return ChatData({std::move(tokenizer), std::move(chat), std::move(ends), std::move(reading)});
}

ChatData::ChatData(ChatDataSettings settings) : settings_(std::move(settings)) {}

std::vector<std::int32_t> ChatData::ids_of(const ordered_json& messages, bool generation_prompt, const ordered_json& tools, const ordered_json& extra,
                                           RenderedPrompt* text) const {
  RenderedPrompt prompt = settings_.chat->render_marked(
      {.messages = messages, .tools = tools, .add_generation_prompt = generation_prompt, .extra = extra, .unix_time = kDateOfData});
  std::vector<std::int32_t> ids = PromptEncoder(settings_.tokenizer).encode(prompt);
  if (text) *text = std::move(prompt);
  return ids;
}

// Special tokens in encoded messages are the template's own, whatever the messages hold.
bool ChatData::ends_turn(std::int32_t id) const {
  return std::find(settings_.ends.turn.begin(), settings_.ends.turn.end(), id) != settings_.ends.turn.end() && settings_.tokenizer->is_special(id);
}

std::size_t ChatData::first_end(const std::vector<std::int32_t>& ids, std::size_t from) const {
  while (from < ids.size() && !ends_turn(ids[from])) ++from;
  return from;
}

std::int32_t ChatData::own_end(const char* of) const {
  if (!settings_.ends.own) fail(ErrorCode::invalid_argument, "{} needs an end token: {}; --end-token says which", of, settings_.ends.unknown);
  return *settings_.ends.own;
}

// The token that ends an open last turn, as the next message would show it (GLM: the next speaker's token); none when there is none.
std::optional<std::int32_t> ChatData::end_after(const ordered_json& messages, std::size_t begin, const ordered_json& tools, const ordered_json& extra) const {
  ordered_json more = messages;
  const bool calls = messages.back().contains("tool_calls") && !messages.back()["tool_calls"].empty();
  more.push_back({{"role", calls ? "tool" : "user"}, {"content", kProbe}});
  try {
    const std::vector<std::int32_t> ids = ids_of(more, false, tools, extra);
    const std::size_t end = first_end(ids, begin);
    if (end == ids.size()) return {};
    const std::string between = settings_.tokenizer->decode(std::span(ids).subspan(begin, end - begin), false);
    return between.find(kProbe) == std::string::npos ? std::optional(ids[end]) : std::nullopt;
  } catch (const Error&) {
    return {};  // a template that wants other messages there
  }
}

ChatData::Turn ChatData::proved(const ordered_json& messages, std::size_t k, const std::vector<std::int32_t>& ids, const ordered_json& tools,
                                const ordered_json& extra) const {
  if (k == 0) fail(ErrorCode::invalid_argument, "messages[0] is the assistant's: there is no prompt before it; begin with a message of the system or the user");
  const std::vector<std::int32_t> prompt = ids_of(first_messages(messages, k), true, tools, extra);
  if (!begins_with(ids, prompt, prompt.size()))
    fail(ErrorCode::invalid_argument,
         "messages[{}]: the prompt that serving gives for it is not how the conversation goes on in the template (they differ at token {} of {}: '{}' and "
         "'{}'), so what the "
         "assistant wrote cannot be told; chat_template_kwargs may help (enable_thinking), or an answer that does not begin with white space",
         k, std::mismatch(prompt.begin(), prompt.end(), ids.begin(), ids.end()).first - prompt.begin(), prompt.size(),
         settings_.tokenizer->token_text(*std::mismatch(prompt.begin(), prompt.end(), ids.begin(), ids.end()).first),
         std::mismatch(prompt.begin(), prompt.end(), ids.begin(), ids.end()).second == ids.end()
             ? "the end"
             : settings_.tokenizer->token_text(*std::mismatch(prompt.begin(), prompt.end(), ids.begin(), ids.end()).second));
  Turn turn{.begin = prompt.size(), .end = first_end(ids, prompt.size()), .behind = {}};
  if (k + 1 == messages.size()) {
    if (turn.end < ids.size()) ++turn.end;
    else turn.behind = -1;
    return turn;
  }
  if (turn.end == ids.size())
    fail(ErrorCode::invalid_argument, "messages[{}]: the template writes none of the model's end tokens ({}) behind it; --end-token names the one that it does",
         k, fmt::join(settings_.ends.turn, ", "));
  ++turn.end;
  // The same conversation with a unique text as the next message: the turn must end before it.
  ordered_json changed = messages;
  changed[k + 1]["content"] = kProbe;
  const std::vector<std::int32_t> other = ids_of(changed, false, tools, extra);
  const bool same = begins_with(other, ids, turn.end);
  if (!same || settings_.tokenizer->decode(std::span(other).subspan(turn.begin, turn.end - turn.begin), false).find(kProbe) != std::string::npos)
    fail(ErrorCode::invalid_argument, "messages[{}]: {}, so where the assistant's turn ends cannot be told; --end-token names the token that ends it", k,
         same ? "the first end token behind it stands behind the next message too" : "the template writes it in another way when the next message changes");
  return turn;
}

ChatData::Turn ChatData::marked(std::size_t k, bool last, const RenderedPrompt& text, std::size_t range, const std::vector<std::int32_t>& ids) const {
  const auto tokens_before = [&](std::size_t byte) {
    RenderedPrompt before{.text = text.text.substr(0, byte), .untrusted = {}, .generated = {}};
    for (const jinja::ByteRange& foreign : text.untrusted)
      if (foreign.begin < byte) before.untrusted.push_back({foreign.begin, std::min(foreign.end, byte)});
    const std::vector<std::int32_t> prefix = PromptEncoder(settings_.tokenizer).encode(before);
    if (!begins_with(ids, prefix, prefix.size()))
      fail(ErrorCode::invalid_argument, "messages[{}]: what the template marks as the assistant's begins or ends inside a token, at '{}'", k,
           text.text.substr(byte > 8 ? byte - 8 : 0, 16));
    return prefix.size();
  };
  Turn turn{.begin = tokens_before(text.generated[range].begin), .end = tokens_before(text.generated[range].end), .behind = {}};
  const bool ended = turn.end > turn.begin && ends_turn(ids[turn.end - 1]);
  if (!ended && turn.end < ids.size() && ends_turn(ids[turn.end])) ++turn.end;
  else if (!ended && last) turn.behind = -1;
  return turn;
}

// As the server reads them. Data often leave out which call a tool's message answers, which templates seldom show.
ordered_json ChatData::read_messages(ordered_json messages) const {
  std::vector<std::size_t> unnamed;
  for (std::size_t k = 0; k < messages.size(); ++k)
    if (messages[k]["role"] == "tool" && !messages[k].contains("tool_call_id")) {
      unnamed.push_back(k);
      messages[k]["tool_call_id"] = "none";
    }
  messages = settings_.reading.messages(messages, "messages");
  for (const std::size_t k : unnamed) messages[k].erase("tool_call_id");
  return messages;
}

WeightedTokens ChatData::conversation(const ordered_json& given, const ordered_json& given_tools, const ordered_json& extra) const {
  if (!settings_.tokenizer) fail(ErrorCode::unsupported, "has messages, and the model folder has no tokenizer.json");
  if (!settings_.chat)
    fail(ErrorCode::unsupported, "has messages, and the model has no chat template (chat_template.jinja, or \"chat_template\" in tokenizer_config.json)");
  if (!settings_.reading.messages || !settings_.reading.tools) fail(ErrorCode::unsupported, "has messages, and whoever started this training reads none");
  if (!given.is_array() || given.empty()) fail(ErrorCode::invalid_argument, "'messages' must be a list of at least one message");
  ordered_json messages = given;
  std::vector<float> wanted;
  std::size_t turns = 0;
  for (std::size_t k = 0; k < messages.size(); ++k) {
    if (!messages[k].is_object() || !messages[k].contains("role") || !messages[k]["role"].is_string())
      fail(ErrorCode::invalid_argument, "messages[{}] must be an object with a role", k);
    wanted.push_back(take_weight(messages[k], k));
    turns += is_assistant(messages[k]);
  }
  messages = read_messages(std::move(messages));
  const ordered_json tools = given_tools.is_null() ? given_tools : settings_.reading.tools(given_tools, "tools");
  RenderedPrompt text;
  WeightedTokens result;
  result.tokens = ids_of(messages, false, tools, extra, &text);
  const std::vector<std::int32_t> ids = result.tokens;
  result.weights.assign(ids.size(), 0.0f);
  const bool by_template = !text.generated.empty() && text.generated.size() == turns;
  std::size_t range = 0, learned = 0;
  for (std::size_t k = 0; k < messages.size(); ++k) {
    if (!is_assistant(messages[k])) continue;
    const std::size_t own_range = range++;
    if (wanted[k] == 0) continue;
    const bool last = k + 1 == messages.size();
    Turn turn = by_template ? marked(k, last, text, own_range, ids) : proved(messages, k, ids, tools, extra);
    if (turn.behind && *turn.behind < 0) {
      const auto shown = end_after(messages, turn.begin, tools, extra);
      turn.behind = shown ? *shown : own_end("the last turn, which the template leaves open,");
    }
    std::fill(result.weights.begin() + static_cast<std::ptrdiff_t>(turn.begin), result.weights.begin() + static_cast<std::ptrdiff_t>(turn.end), wanted[k]);
    if (turn.behind) {
      result.tokens.push_back(*turn.behind);
      result.weights.push_back(wanted[k]);
      ++turn.end;
    }
    learned = std::max(learned, turn.end);
  }
  if (learned > 0) {
    result.tokens.resize(learned);
    result.weights.resize(learned);
  }
  return result;
}

WeightedTokens ChatData::completion(const std::string& prompt, const std::string& completion) const {
  if (!settings_.tokenizer) fail(ErrorCode::unsupported, "has text, and the model folder has no tokenizer.json");
  WeightedTokens result;
  result.tokens = settings_.tokenizer->encode(prompt, true);
  if (result.tokens.empty()) fail(ErrorCode::invalid_argument, "'prompt' is empty; allowed is at least one token");
  result.weights.assign(result.tokens.size(), 0.0f);
  const std::vector<std::int32_t> answer = settings_.tokenizer->encode(completion, false);
  result.tokens.insert(result.tokens.end(), answer.begin(), answer.end());
  const std::int32_t end = own_end("a completion");
  if (answer.empty() || answer.back() != end) result.tokens.push_back(end);
  result.weights.resize(result.tokens.size(), 1.0f);
  return result;
}

WeightedTokens ChatData::text(const std::string& text) const {
  if (!settings_.tokenizer) fail(ErrorCode::unsupported, "has text, and the model folder has no tokenizer.json");
  WeightedTokens result;
  result.tokens = settings_.tokenizer->encode(text, true);
  if (result.tokens.empty()) fail(ErrorCode::invalid_argument, "'text' is empty; allowed is at least one token");
  const std::int32_t end = own_end("a text");
  if (result.tokens.back() != end) result.tokens.push_back(end);
  result.weights.assign(result.tokens.size(), 1.0f);
  return result;
}

}  // namespace lockstep
