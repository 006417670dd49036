#include "runs/sft_transcript.h"

#include <algorithm>

namespace lockstep {
namespace {
using Json = nlohmann::ordered_json;

Json transcript(const TrainSequence& sequence, std::span<const float> logprobs, std::span<const float> entropies, const Tokenizer& tokenizer) {
  const std::size_t most = kTranscriptTokens, rows = sequence.tokens.size();
  // Row i predicts targets[i], which mostly is tokens[i + 1]; of a row without a target the next token is shown all the same.
  const auto trained = std::find_if(sequence.weights.begin(), sequence.weights.end(), [](float weight) { return weight != 0; });
  const std::size_t first = std::min(static_cast<std::size_t>(trained - sequence.weights.begin()), rows - 1);
  std::vector<std::int32_t> ids;
  std::vector<bool> scored;
  for (std::size_t i = first; i < rows; ++i) {
    const bool has_target = sequence.targets[i] >= 0;
    if (!has_target && i + 1 == rows) break;
    ids.push_back(has_target ? sequence.targets[i] : sequence.tokens[i + 1]);
    scored.push_back(has_target);
  }
  const std::size_t shown = std::min(ids.size(), most), before = std::min(first + 1, most);
  const std::span<const std::int32_t> prompt = std::span(sequence.tokens).first(first + 1).last(before);
  const auto column = [&](std::span<const float> values) {
    Json json = exact_numbers(values.subspan(first, shown));
    for (std::size_t i = 0; i < shown; ++i)
      if (!scored[i]) json[i] = nullptr;
    return json;
  };
  Json json{{"prompt", token_pieces(tokenizer, prompt)},
            {"prompt_ids", std::vector(prompt.begin(), prompt.end())},
            {"tokens", token_pieces(tokenizer, std::span(ids).first(shown))},
            {"ids", std::vector(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(shown))},
            {"logprobs", column(logprobs)},
            {"entropies", column(entropies)},
            {"weights", exact_numbers(std::span(sequence.weights).subspan(first, shown))}};
  if (const std::size_t cut = first + 1 - before + ids.size() - shown; cut > 0) json["cut"] = cut;
  return json;
}
}  // namespace

std::vector<Json> sft_transcripts(const std::vector<TrainSequence>& batch, const ForwardBackwardResult& result, const Tokenizer& tokenizer, std::int64_t step,
                                  std::int64_t count) {
  std::vector<Json> lines;
  for (std::size_t i = 0; i < batch.size() && static_cast<std::int64_t>(i) < count; ++i) {
    if (batch[i].tokens.empty()) continue;
    Json line{{"step", step}, {"sequence", i}};
    line.update(transcript(batch[i], result.logprobs[i], result.entropies[i], tokenizer));
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace lockstep
