#include "runs/sft_data.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/philox.h"
#include "text/utf8.h"

namespace lockstep {

TrainSequence train_sequence(const WeightedTokens& data) {
  if (data.tokens.size() < 2) fail(ErrorCode::invalid_argument, "is {} token long; there is nothing to predict", data.tokens.size());
  TrainSequence sequence = TrainSequence::next_token(data.tokens);
  for (std::size_t i = 0; i + 1 < data.tokens.size(); ++i) sequence.weights[i] = data.weights[i + 1];
  return sequence;
}

namespace {
std::vector<std::size_t> shuffled(std::size_t size, std::uint64_t seed, std::uint64_t epoch) {
  std::vector<std::size_t> order(size);
  std::iota(order.begin(), order.end(), std::size_t{0});
  RandomSequence random(seed, RandomStream::shuffle, epoch);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(static_cast<std::uint32_t>(i))]);
  return order;
}
}  // namespace

std::vector<std::size_t> shuffled_places(std::size_t size, std::uint64_t seed, std::int64_t step, std::int64_t count) {
  std::vector<std::size_t> places, order;
  const auto n = static_cast<std::int64_t>(size);
  std::int64_t epoch = -1;
  for (std::int64_t i = step * count; i < (step + 1) * count; ++i) {
    if (i / n != epoch) {
      epoch = i / n;
      order = shuffled(size, seed, static_cast<std::uint64_t>(epoch));
    }
    places.push_back(order[static_cast<std::size_t>(i % n)]);
  }
  return places;
}

namespace {

class ShuffledSource final : public SftSource {
 public:
  ShuffledSource(std::vector<TrainSequence> sequences, std::uint64_t seed) : sequences_(std::move(sequences)), seed_(seed) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(sequences_.size()); }

  std::string digest() const override { return data_digest(sequences_); }

  std::vector<TrainSequence> batch(std::int64_t step, std::int64_t count) const override {
    std::vector<TrainSequence> result;
    for (const std::size_t place : shuffled_places(sequences_.size(), seed_, step, count)) result.push_back(sequences_[place]);
    return result;
  }

 private:
  std::vector<TrainSequence> sequences_;
  std::uint64_t seed_;
};

// {"tokens", "weights"}: as they are given.
WeightedTokens read_token_line(const nlohmann::ordered_json& line) {
  const auto& tokens = line["tokens"];
  WeightedTokens result;
  if (!tokens.is_array() || tokens.size() < 2) fail(ErrorCode::corrupt_file, "'tokens' must be a list of at least 2 token ids");
  for (const auto& id : tokens) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() > INT32_MAX)
      fail(ErrorCode::corrupt_file, "'tokens' contains {}, allowed are token ids", id.dump().substr(0, 40));
    result.tokens.push_back(id.get<std::int32_t>());
  }
  result.weights.assign(result.tokens.size(), 1.0f);
  if (!line.contains("weights")) return result;
  const auto& weights = line["weights"];
  if (!weights.is_array() || weights.size() + 1 != result.tokens.size())
    fail(ErrorCode::corrupt_file, "'weights' must be a list of {} numbers, one a target (tokens 1 to {})", result.tokens.size() - 1, result.tokens.size() - 1);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!weights[i].is_number() || !std::isfinite(weights[i].get<float>())) fail(ErrorCode::corrupt_file, "'weights' entry {} is not a number", i);
    result.weights[i + 1] = weights[i].get<float>();
  }
  return result;
}

// The forms of a line: the keys that it must have, and those that it may have.
struct LineForm {
  std::vector<std::string> needed, allowed;
};
const std::vector<LineForm>& line_forms() {
  static const std::vector<LineForm> forms = {
      {{"messages"}, {"tools", "chat_template_kwargs"}}, {{"prompt", "completion"}, {}}, {{"text"}, {}}, {{"tokens"}, {"weights"}}};
  return forms;
}

bool has_form(const nlohmann::ordered_json& line, const LineForm& form) {
  for (const std::string& key : form.needed)
    if (!line.contains(key)) return false;
  for (const auto& [key, value] : line.items())
    if (std::find(form.needed.begin(), form.needed.end(), key) == form.needed.end() &&
        std::find(form.allowed.begin(), form.allowed.end(), key) == form.allowed.end())
      return false;
  return true;
}

std::string text_of(const nlohmann::ordered_json& line, const char* key) {
  if (!line[key].is_string()) fail(ErrorCode::corrupt_file, "'{}' is {}, allowed is a text", key, line[key].type_name());
  return line[key].get<std::string>();
}

}  // namespace

std::string data_digest(const std::vector<TrainSequence>& sequences) {
  std::string bytes;
  for (const TrainSequence& s : sequences) {
    bytes += fmt::format("{}:", s.targets.size());
    bytes.append(reinterpret_cast<const char*>(s.tokens.data()), s.tokens.size() * sizeof(s.tokens[0]));
    bytes.append(reinterpret_cast<const char*>(s.targets.data()), s.targets.size() * sizeof(s.targets[0]));
    bytes.append(reinterpret_cast<const char*>(s.weights.data()), s.weights.size() * sizeof(s.weights[0]));
  }
  return sha256_hex(bytes).substr(0, 16);
}

WeightedTokens read_training_line(const nlohmann::ordered_json& line, const ChatData& data) {
  constexpr const char* kForms = "messages (and tools, chat_template_kwargs), prompt and completion, text, or tokens and weights";
  if (!line.is_object())
    fail(ErrorCode::corrupt_file, "is {}, allowed is a JSON object{}", line.type_name(), line.is_array() ? " (jq -c '.[]' FILE makes lines of a list)" : "");
  std::vector<std::string> keys;
  for (const LineForm& form : line_forms()) {
    keys.insert(keys.end(), form.needed.begin(), form.needed.end());
    keys.insert(keys.end(), form.allowed.begin(), form.allowed.end());
  }
  for (const auto& [key, value] : line.items())
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      fail(ErrorCode::corrupt_file, "has the key '{}', allowed are {}{}", key.substr(0, 60), kForms, did_you_mean(key, keys));
  const auto form = std::find_if(line_forms().begin(), line_forms().end(), [&](const LineForm& f) { return has_form(line, f); });
  if (form == line_forms().end()) fail(ErrorCode::corrupt_file, "must have {}", kForms);
  const std::string& kind = form->needed[0];
  if (kind == "tokens") return read_token_line(line);
  if (kind == "prompt") return data.completion(text_of(line, "prompt"), text_of(line, "completion"));
  if (kind == "text") return data.text(text_of(line, "text"));
  const auto take = [&](const char* key) { return line.contains(key) ? line.at(key) : nlohmann::ordered_json(); };
  return data.conversation(line["messages"], take("tools"), take("chat_template_kwargs"));
}

namespace {
// Recognises common formats that are not JSON Lines, for a better error than a broken first line.
void refuse_other_forms(std::ifstream& in, const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    fail(ErrorCode::invalid_argument, "the data file '{}' is a folder, allowed is a file of JSON objects, one a line", path);
  if (const int first = in.peek(); first == 0xff || first == 0xfe) fail(ErrorCode::corrupt_file, "the data file '{}' is UTF-16, allowed is UTF-8", path);
  in.clear();
}

nlohmann::ordered_json read_object_line(const std::string& text) {
  try {
    return read_json(text);
  } catch (const Error& e) {
    if (!utf8_valid(text)) fail(ErrorCode::corrupt_file, "is not UTF-8 (iconv -f latin1 -t utf8 FILE makes it of Latin-1)");
    const std::size_t begin = text.find_first_not_of(" \t\r");
    const bool part = text[begin] == '[' || text.find_first_not_of(" \t\r{[", begin) == std::string::npos;
    fail(ErrorCode::corrupt_file, "{}{}", e.message(),
         part ? "; a line is one whole JSON object, and the file is no list of them (jq -c '.[]' FILE makes lines of a list)" : "");
  }
}
}  // namespace

void each_json_line(const std::string& path, const std::function<void(std::int64_t, const nlohmann::ordered_json&)>& take) {
  std::ifstream in(path);
  if (!in) fail(ErrorCode::not_found, "the data file '{}' cannot be opened", path);
  refuse_other_forms(in, path);
  std::string text;
  for (std::int64_t number = 1; std::getline(in, text); ++number) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    with_context(fmt::format("reading line {} of '{}'", number, path), [&] { take(number, read_object_line(text)); });
  }
}

void each_training_line(const std::string& path, const ChatData& data, const std::function<void(std::int64_t, const WeightedTokens&)>& take) {
  each_json_line(path, [&](std::int64_t number, const nlohmann::ordered_json& line) { take(number, read_training_line(line, data)); });
}

SftData read_training_file(const std::string& path, const ChatData& data, std::int64_t vocabulary, std::int64_t max_positions) {
  SftData result;
  each_training_line(path, data, [&](std::int64_t, const WeightedTokens& tokens) {
    if (static_cast<std::int64_t>(tokens.tokens.size()) > max_positions + 1)
      fail(ErrorCode::corrupt_file, "has {} tokens, the model's context is {}", tokens.tokens.size(), max_positions);
    for (const std::int32_t id : tokens.tokens)
      if (id >= vocabulary) fail(ErrorCode::corrupt_file, "has the token id {}, beyond the vocabulary of {}", id, vocabulary);
    if (std::all_of(tokens.weights.begin() + 1, tokens.weights.end(), [](float weight) { return weight == 0; })) ++result.untrained;
    else result.sequences.push_back(train_sequence(tokens));
  });
  if (result.sequences.empty())
    fail(ErrorCode::corrupt_file, "the data file '{}' has {}", path,
         result.untrained > 0
             ? fmt::format("nothing to learn: none of its {} lines has a token with a weight (a message of the assistant, a completion)", result.untrained)
             : "no sequences");
  return result;
}

std::vector<std::size_t> held_out_places(std::size_t size, double share, std::uint64_t seed) {
  const auto count = static_cast<std::size_t>(std::max(1.0, share * static_cast<double>(size)));
  if (count >= size) fail(ErrorCode::invalid_argument, "{} of the {} sequences would be held out, and none is left to learn", count, size);
  std::vector<std::size_t> order = shuffled(size, seed, ~std::uint64_t{0});  // of no epoch
  order.resize(count);
  std::sort(order.begin(), order.end());
  return order;
}

std::vector<TrainSequence> hold_out(std::vector<TrainSequence>& sequences, double share, std::uint64_t seed) {
  std::vector<bool> held(sequences.size(), false);
  for (const std::size_t place : held_out_places(sequences.size(), share, seed)) held[place] = true;
  std::vector<TrainSequence> out, rest;
  for (std::size_t i = 0; i < sequences.size(); ++i) (held[i] ? out : rest).push_back(std::move(sequences[i]));
  sequences = std::move(rest);
  return out;
}

std::unique_ptr<SftSource> shuffled_source(std::vector<TrainSequence> sequences, std::uint64_t seed) {
  return std::make_unique<ShuffledSource>(std::move(sequences), seed);
}

}  // namespace lockstep
