#include "rl/transcript.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "rl/grpo.h"
#include "text/detokenizer.h"

namespace lockstep {
namespace {
using Json = nlohmann::ordered_json;

// All pieces together are the text; a token that ends within a character has an empty one.
Json pieces(const Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
  Json json = Json::array();
  Detokenizer text(tokenizer, false);
  for (const std::int32_t id : ids) json.push_back(text.push(id));
  if (!json.empty()) json.back() = json.back().get<std::string>() + text.flush();
  return json;
}

// The double whose shortest text is the float's: nine digits and the bits come back.
Json numbers(std::span<const float> values) {
  Json json = Json::array();
  for (const float value : values) {
    const std::string text = fmt::format("{}", value);
    double number = value;  // stays where the text is no number
    std::from_chars(text.data(), text.data() + text.size(), number);
    json.push_back(number);
  }
  return json;
}

Json transcript(const StepRollouts& step, const Tokenizer& tokenizer, const RolloutGroup& group, std::size_t g, std::size_t j) {
  const Rollout& rollout = group.rollouts[j];
  const std::size_t datum = g * group.rollouts.size() + j, most = kTranscriptTokens;
  const std::size_t shown = std::min(rollout.tokens.size(), most), before = std::min(group.prompt.size(), most);
  const std::size_t first = group.prompt.size() - 1;  // the row that predicts the first sampled token
  const auto rows = [&](const std::vector<float>& values) { return numbers(std::span(values).subspan(first, shown)); };
  const std::span<const std::int32_t> prompt = std::span(group.prompt).last(before), ids = std::span(rollout.tokens).first(shown);
  const PolicyDatum& d = step.data[datum];
  Json json{{"step", step.step + 1},
            {"weights_version", step.weights_version},
            {"group", g},
            {"rollout", j},
            {"reward", rollout.reward},
            {"finish", rollout.ended ? "stop" : "length"},
            {"prompt", pieces(tokenizer, prompt)},
            {"prompt_ids", std::vector(prompt.begin(), prompt.end())},
            {"tokens", pieces(tokenizer, ids)},
            {"ids", std::vector(ids.begin(), ids.end())},
            {"sampling_logprobs", numbers(std::span(rollout.sampling_logprobs).first(shown))},
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
