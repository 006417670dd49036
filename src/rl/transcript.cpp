#include "rl/transcript.h"

#include <algorithm>

#include "rl/advantages/advantages.h"
#include "runs/transcript_text.h"

namespace lockstep {
namespace {
using Json = nlohmann::ordered_json;

Json transcript(const StepRollouts& step, const Tokenizer& tokenizer, const RolloutGroup& group, std::size_t g, std::size_t j) {
  const Rollout& rollout = group.rollouts[j];
  const std::size_t datum = g * group.rollouts.size() + j, most = kTranscriptTokens;
  const std::size_t shown = std::min(rollout.tokens.size(), most), before = std::min(group.prompt.size(), most);
  const std::size_t first = group.prompt.size() - 1;  // the row that predicts the first sampled token
  const auto rows = [&](const std::vector<float>& values) { return exact_numbers(std::span(values).subspan(first, shown)); };
  const std::span<const std::int32_t> prompt = std::span(group.prompt).last(before), ids = std::span(rollout.tokens).first(shown);
  const PolicyDatum& d = step.data[datum];
  Json json{{"step", step.step + 1},
            {"weights_version", step.weights_version},
            {"group", g},
            {"rollout", j},
            {"reward", rollout.reward},
            {"finish", rollout.ended ? "stop" : "length"},
            {"prompt", token_pieces(tokenizer, prompt)},
            {"prompt_ids", std::vector(prompt.begin(), prompt.end())},
            {"tokens", token_pieces(tokenizer, ids)},
            {"ids", std::vector(ids.begin(), ids.end())},
            {"sampling_logprobs", exact_numbers(std::span(rollout.sampling_logprobs).first(shown))},
            {"logprobs", rows(step.result.logprobs[datum])},
            {"entropies", rows(step.result.entropies[datum])},
            {"advantages", rows(d.advantages)},
            {"weights", rows(d.weights)}};
  if (const std::size_t cut = group.prompt.size() - before + rollout.tokens.size() - shown; cut > 0) json["cut"] = cut;
  return json;
}
}  // namespace

std::vector<Json> transcripts_of(const StepRollouts& step, const Tokenizer& tokenizer, std::int64_t count) {
  std::vector<Json> lines;
  if (step.groups.empty()) return lines;
  std::size_t chosen = 0;
  for (std::size_t g = 0; g < step.groups.size(); ++g) {
    if (all_equal(step.groups[g].rewards())) continue;
    chosen = g;
    break;
  }
  const RolloutGroup& group = step.groups[chosen];
  for (std::size_t j = 0; j < group.rollouts.size() && static_cast<std::int64_t>(j) < count; ++j)
    lines.push_back(transcript(step, tokenizer, group, chosen, j));
  return lines;
}

}  // namespace lockstep
