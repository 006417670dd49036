#include "service/sft_data.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/philox.h"

namespace lockstep {

TrainSequence prompt_completion_sequence(const Tokenizer& tokenizer, const std::string& prompt, const std::string& completion, std::int32_t end_token) {
  std::vector<std::int32_t> tokens = tokenizer.encode(prompt, true, false);
  if (tokens.empty()) fail(ErrorCode::invalid_argument, "'prompt' is empty; allowed is at least one token");
  const std::size_t prompt_tokens = tokens.size();
  for (const std::int32_t id : tokenizer.encode(completion, false, false)) tokens.push_back(id);
  tokens.push_back(end_token);
  TrainSequence sequence = TrainSequence::next_token(tokens);
  for (std::size_t i = 0; i + 1 < prompt_tokens; ++i) sequence.weights[i] = 0.0f;
  return sequence;
}

namespace {

class JsonlSource final : public SftSource {
 public:
  JsonlSource(std::vector<TrainSequence> sequences, std::uint64_t seed) : sequences_(std::move(sequences)), seed_(seed) {}

  std::vector<TrainSequence> batch(std::int64_t step, std::int64_t count) const override {
    std::vector<TrainSequence> result;
    const auto n = static_cast<std::int64_t>(sequences_.size());
    std::int64_t shuffled_epoch = -1;
    std::vector<std::size_t> order;
    for (std::int64_t i = step * count; i < (step + 1) * count; ++i) {
      if (i / n != shuffled_epoch) {
        shuffled_epoch = i / n;
        order = shuffle(static_cast<std::uint64_t>(shuffled_epoch));
      }
      result.push_back(sequences_[order[static_cast<std::size_t>(i % n)]]);
    }
    return result;
  }

 private:
  std::vector<std::size_t> shuffle(std::uint64_t epoch) const {
    std::vector<std::size_t> order(sequences_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    RandomSequence random(seed_, RandomStream::shuffle, epoch);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(static_cast<std::uint32_t>(i))]);
    return order;
  }
  std::vector<TrainSequence> sequences_;
  std::uint64_t seed_;
};

TrainSequence parse_line(const nlohmann::json& line, const Tokenizer* tokenizer, std::int32_t end_token) {
  const auto has = [&](const char* key) { return line.contains(key); };
  if (!line.is_object()) fail(ErrorCode::corrupt_file, "is not a JSON object");
  for (const auto& [key, value] : line.items())
    if (key != "prompt" && key != "completion" && key != "tokens" && key != "weights")
      fail(ErrorCode::corrupt_file, "has the key '{}', allowed are prompt and completion, or tokens and weights{}", key,
           did_you_mean(key, {"prompt", "completion", "tokens", "weights"}));
  if (has("prompt") && has("completion") && line.size() == 2) {
    if (!line["prompt"].is_string() || !line["completion"].is_string())
      fail(ErrorCode::corrupt_file, "'prompt' and 'completion' must be strings");
    if (!tokenizer) fail(ErrorCode::invalid_argument, "has text, and the model folder has no tokenizer.json");
    return prompt_completion_sequence(*tokenizer, line["prompt"], line["completion"], end_token);
  }
  if (!has("tokens") || has("prompt") || has("completion"))
    fail(ErrorCode::corrupt_file, "must have prompt and completion, or tokens and weights");
  const auto& tokens = line["tokens"];
  std::vector<std::int32_t> ids;
  if (!tokens.is_array() || tokens.size() < 2) fail(ErrorCode::corrupt_file, "'tokens' must be a list of at least 2 token ids");
  for (const auto& id : tokens) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() > INT32_MAX)
      fail(ErrorCode::corrupt_file, "'tokens' contains {}, allowed are token ids", id.dump().substr(0, 40));
    ids.push_back(id.get<std::int32_t>());
  }
  TrainSequence sequence = TrainSequence::next_token(ids);
  if (has("weights")) {
    const auto& weights = line["weights"];
    if (!weights.is_array() || weights.size() != ids.size() - 1)
      fail(ErrorCode::corrupt_file, "'weights' must be a list of {} numbers, one a target (tokens 1 to {})", ids.size() - 1, ids.size() - 1);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      if (!weights[i].is_number() || !std::isfinite(weights[i].get<double>())) fail(ErrorCode::corrupt_file, "'weights' entry {} is not a number", i);
      sequence.weights[i] = weights[i].get<float>();
    }
  }
  return sequence;
}

}  // namespace

std::unique_ptr<SftSource> jsonl_source(const std::string& path, const Tokenizer* tokenizer, std::int32_t end_token, std::uint64_t seed,
                                        std::int64_t vocabulary, std::int64_t max_positions) {
  std::ifstream in(path);
  if (!in) fail(ErrorCode::not_found, "the data file '{}' cannot be opened", path);
  std::vector<TrainSequence> sequences;
  std::string text;
  for (std::int64_t number = 1; std::getline(in, text); ++number) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    with_context(fmt::format("reading line {} of '{}'", number, path), [&] {
      const nlohmann::json line = nlohmann::json::parse(text, nullptr, false);
      if (line.is_discarded()) fail(ErrorCode::corrupt_file, "is not valid JSON");
      TrainSequence sequence = parse_line(line, tokenizer, end_token);
      if (static_cast<std::int64_t>(sequence.tokens.size()) > max_positions)
        fail(ErrorCode::corrupt_file, "has {} tokens, the model's context is {}", sequence.tokens.size() + 1, max_positions);
      for (const std::int32_t id : sequence.targets)
        if (id >= vocabulary || sequence.tokens[0] >= vocabulary) fail(ErrorCode::corrupt_file, "has a token id beyond the vocabulary of {}", vocabulary);
      sequences.push_back(std::move(sequence));
    });
  }
  if (sequences.empty()) fail(ErrorCode::corrupt_file, "the data file '{}' has no sequences", path);
  return std::make_unique<JsonlSource>(std::move(sequences), seed);
}

}  // namespace lockstep
