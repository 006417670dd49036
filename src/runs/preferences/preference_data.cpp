#include "runs/preferences/preference_data.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"

namespace lockstep {
namespace {
using LineJson = nlohmann::ordered_json;

const std::vector<std::string>& known_keys() {
  static const std::vector<std::string> keys = {"prompt", "messages", "chosen", "rejected", "completion", "label", "tools", "chat_template_kwargs"};
  return keys;
}

void check_keys(const LineJson& line, bool pairs) {
  const std::string forms = pairs ? "'chosen' and 'rejected'" : "'completion' and 'label', or 'chosen' and 'rejected'";
  if (!line.is_object())
    fail(ErrorCode::corrupt_file, "is {}, allowed is a JSON object{}", line.type_name(), line.is_array() ? " (jq -c '.[]' FILE makes lines of a list)" : "");
  for (const auto& [key, unused] : line.items())
    if (std::find(known_keys().begin(), known_keys().end(), key) == known_keys().end())
      fail(ErrorCode::corrupt_file, "has the key '{}', allowed are 'prompt' or 'messages' (and 'tools', 'chat_template_kwargs'), {}{}", key.substr(0, 60),
           forms, did_you_mean(key, known_keys()));
  const auto has = [&](const char* key) { return line.contains(key); };
  const bool pair = has("chosen") && has("rejected") && !has("completion") && !has("label");
  const bool labelled = has("completion") && has("label") && !has("chosen") && !has("rejected");
  if (pairs ? !pair : !pair && !labelled) fail(ErrorCode::corrupt_file, "must have {}", forms);
  if (labelled && !line["label"].is_boolean()) fail(ErrorCode::corrupt_file, "'label' is {}, allowed is true or false", line["label"].dump().substr(0, 40));
  if (has("prompt") && has("messages")) fail(ErrorCode::corrupt_file, "has 'prompt' and 'messages', allowed is one of them");
  if (!has("prompt") && !has("messages") && labelled) fail(ErrorCode::corrupt_file, "must have 'prompt' or 'messages'");
}

// How many messages both conversations begin with.
std::size_t in_common(const LineJson& a, const LineJson& b) {
  std::size_t count = 0;
  while (count < a.size() && count < b.size() && a[count] == b[count]) ++count;
  return count;
}

// The prompt's messages, none of which is trained; null for a prompt that is a text.
LineJson prompt_messages(const LineJson& line) {
  LineJson messages = LineJson::array();
  if (line.contains("messages")) {
    messages = line["messages"];
  } else if (line.contains("prompt")) {
    if (line["prompt"].is_string()) return {};
    messages = line["prompt"];
  } else {
    const LineJson &chosen = line["chosen"], &rejected = line["rejected"];
    if (!chosen.is_array() || !rejected.is_array())
      fail(ErrorCode::corrupt_file, "has no 'prompt' and no 'messages': allowed are then 'chosen' and 'rejected' that are whole conversations");
    const std::size_t common = in_common(chosen, rejected);
    if (common == 0) fail(ErrorCode::corrupt_file, "'chosen' and 'rejected' begin with other messages, allowed are two answers to one prompt");
    for (std::size_t i = 0; i < common; ++i) messages.push_back(chosen[i]);
  }
  if (!messages.is_array()) fail(ErrorCode::corrupt_file, "the prompt is {}, allowed is a text or a list of messages", messages.type_name());
  for (LineJson& message : messages)
    if (message.is_object() && message.contains("role") && message["role"] == "assistant") {  // what is no text is ChatData's to refuse
      message.erase("weight");
      message["train"] = false;
    }
  return messages;
}

WeightedTokens answer_tokens(const LineJson& line, const LineJson& prompt, const char* side, const ChatData& data) {
  const LineJson& answer = line[side];
  if (prompt.is_null()) {
    if (!answer.is_string()) fail(ErrorCode::corrupt_file, "'{}' is {}, allowed is a text, as 'prompt' is", side, answer.type_name());
    return data.completion(line["prompt"].get<std::string>(), answer.get<std::string>());
  }
  LineJson messages = prompt;
  if (answer.is_string()) {
    messages.push_back({{"role", "assistant"}, {"content", answer}});
  } else if (answer.is_array()) {
    const bool whole = !line.contains("messages") && !line.contains("prompt");  // it begins with the prompt's messages
    for (std::size_t i = whole ? prompt.size() : 0; i < answer.size(); ++i) messages.push_back(answer[i]);
  } else {
    fail(ErrorCode::corrupt_file, "'{}' is {}, allowed is a text or a list of messages", side, answer.type_name());
  }
  const auto take = [&](const char* key) { return line.contains(key) ? line.at(key) : LineJson(); };
  return data.conversation(messages, take("tools"), take("chat_template_kwargs"));
}

struct Limits {
  std::int64_t vocabulary, max_positions;
};

WeightedTokens checked_answer(const LineJson& line, const LineJson& prompt, const char* side, const ChatData& data, const Limits& limits) {
  WeightedTokens tokens = answer_tokens(line, prompt, side, data);
  if (std::ssize(tokens.tokens) > limits.max_positions + 1)
    fail(ErrorCode::corrupt_file, "'{}' with its prompt has {} tokens, the model's context is {}", side, tokens.tokens.size(), limits.max_positions);
  for (const std::int32_t id : tokens.tokens)
    if (id >= limits.vocabulary) fail(ErrorCode::corrupt_file, "'{}' has the token id {}, beyond the vocabulary of {}", side, id, limits.vocabulary);
  double weight = 0;
  for (std::size_t i = 1; i < tokens.weights.size(); ++i) weight += static_cast<double>(tokens.weights[i]);
  if (!(weight > 0)) fail(ErrorCode::corrupt_file, "'{}' has no token that the assistant wrote, so there is nothing to prefer", side);
  return tokens;
}

std::size_t answer_begin(const WeightedTokens& tokens) {
  std::size_t begin = 1;
  while (tokens.weights[begin] == 0) ++begin;
  return begin;
}

// The prompt of one with the answer of another, cut at the context.
TrainSequence mismatched(const WeightedTokens& prompt, const WeightedTokens& answer, std::int64_t max_positions) {
  WeightedTokens both;
  const std::size_t end = answer_begin(prompt), begin = answer_begin(answer);
  both.tokens.assign(prompt.tokens.begin(), prompt.tokens.begin() + static_cast<std::ptrdiff_t>(end));
  both.weights.assign(end, 0.0f);
  both.tokens.insert(both.tokens.end(), answer.tokens.begin() + static_cast<std::ptrdiff_t>(begin), answer.tokens.end());
  both.weights.insert(both.weights.end(), answer.weights.begin() + static_cast<std::ptrdiff_t>(begin), answer.weights.end());
  const auto most = static_cast<std::size_t>(max_positions + 1);
  if (both.tokens.size() > most) both.tokens.resize(most), both.weights.resize(most);
  return train_sequence(both);
}

}  // namespace

std::vector<PreferenceItem> read_preference_file(const std::string& path, const ChatData& data, bool pairs, std::int64_t vocabulary,
                                                 std::int64_t max_positions) {
  std::vector<PreferenceItem> items;
  std::vector<WeightedTokens> answers;  // with labels
  std::vector<std::int64_t> lines;      // of each of them
  const Limits limits{vocabulary, max_positions};
  each_json_line(path, [&](std::int64_t number, const LineJson& line) {
    check_keys(line, pairs);
    const LineJson prompt = prompt_messages(line);
    const auto answer = [&](const char* side) { return checked_answer(line, prompt, side, data, limits); };
    if (pairs) {
      items.push_back({train_sequence(answer("chosen")), train_sequence(answer("rejected"))});
      return;
    }
    const bool pair = line.contains("chosen");
    for (const char* side : pair ? std::vector<const char*>{"chosen", "rejected"} : std::vector<const char*>{"completion"}) {
      answers.push_back(answer(side));
      lines.push_back(number);
      const bool desirable = pair ? side == std::string_view("chosen") : line["label"].get<bool>();
      items.push_back({train_sequence(answers.back()), {}, desirable});
    }
  });
  if (items.empty()) fail(ErrorCode::corrupt_file, "the data file '{}' has no lines", path);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    std::size_t other = (i + 1) % answers.size();
    if (lines[other] == lines[i]) other = (other + 1) % answers.size();  // the next line's, for both answers of a pair
    items[i].rejected = mismatched(answers[i], answers[other], max_positions);
  }
  return items;
}

std::string preference_digest(const std::vector<PreferenceItem>& items) {
  std::string bytes;
  for (const PreferenceItem& item : items) {
    bytes += item.desirable ? '+' : '-';
    for (const TrainSequence* s : {&item.chosen, &item.rejected}) {
      bytes += fmt::format("{}:", s->targets.size());
      bytes.append(reinterpret_cast<const char*>(s->tokens.data()), s->tokens.size() * sizeof(s->tokens[0]));
      bytes.append(reinterpret_cast<const char*>(s->targets.data()), s->targets.size() * sizeof(s->targets[0]));
      bytes.append(reinterpret_cast<const char*>(s->weights.data()), s->weights.size() * sizeof(s->weights[0]));
    }
  }
  return sha256_hex(bytes).substr(0, 16);
}

}  // namespace lockstep
