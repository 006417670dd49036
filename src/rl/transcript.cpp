#include "rl/transcript.h"

#include <algorithm>

#include "rl/advantages/advantages.h"
#include "runs/transcript_text.h"

namespace lockstep {
namespace {
using Json = nlohmann::ordered_json;

// What the policy wrote and was shown behind the prompt of the chain, as turns of them.
Json turns_of(const Chain& chain, const Rollout& rollout, bool last) {
  Json turns = Json::array();
  std::size_t at = 0;
  for (std::size_t t = 0; t < chain.turns.size(); ++t) {
    const Turn& turn = chain.turns[t];
    const std::size_t begin = at + (t > 0 ? turn.shown.size() : 0);
    at = begin + turn.tokens.size();
    if (!turn.trained) continue;
    const bool end = last && t + 1 == chain.turns.size();
    turns.push_back(Json{{"kind", turn.summary ? "summary" : "answer"}, {"begin", begin}, {"end", at}, {"reward", turn.reward + (end ? rollout.reward : 0.0)}});
  }
  return turns;
}

Json transcript(const StepRollouts& step, const Tokenizer& tokenizer, const Rollout& rollout, std::size_t c, std::size_t datum) {
  const Chain& chain = rollout.chains[c];
  const PolicyDatum& d = step.data[datum];
  std::vector<std::int32_t> all = d.tokens;
  all.push_back(d.targets.back());
  const std::size_t prompt_size = chain.turns[0].shown.size(), behind = all.size() - prompt_size, most = kTranscriptTokens;
  const std::size_t shown = std::min(behind, most), before = std::min(prompt_size, most);
  const std::size_t first = prompt_size - 1;  // the row that predicts the first written token
  const auto rows = [&](const std::vector<float>& values) { return exact_numbers(std::span(values).subspan(first, shown)); };
  const auto written = [&](const std::vector<float>& values) {
    Json json = rows(values);
    for (std::size_t i = 0; i < shown; ++i)
      if (d.weights[first + i] == 0) json[i] = nullptr;
    return json;
  };
  const std::span<const std::int32_t> prompt = std::span(all).subspan(prompt_size - before, before), ids = std::span(all).subspan(prompt_size, shown);
  Json json{{"prompt", token_pieces(tokenizer, prompt)},
            {"prompt_ids", std::vector(prompt.begin(), prompt.end())},
            {"tokens", token_pieces(tokenizer, ids)},
            {"ids", std::vector(ids.begin(), ids.end())},
            {"sampling_logprobs", written(d.old_logprobs)},
            {"logprobs", written(step.result.logprobs[datum])},
            {"entropies", written(step.result.entropies[datum])},
            {"advantages", written(d.advantages)},
            {"weights", rows(d.weights)}};
  if (!step.values.empty()) json["values"] = written(step.values[datum]);
  if (rollout.turns() > 1) {
    json["chain"] = c;
    json["chains"] = rollout.chains.size();
    json["turns"] = turns_of(chain, rollout, c + 1 == rollout.chains.size());
  }
  if (const std::size_t cut = prompt_size - before + behind - shown; cut > 0) json["cut"] = cut;
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
  std::size_t datum = 0;
  for (std::size_t g = 0; g < chosen; ++g)
    for (const Rollout& rollout : step.groups[g].rollouts) datum += rollout.chains.size();
  for (std::size_t j = 0; j < group.rollouts.size() && static_cast<std::int64_t>(j) < count; ++j) {
    const Rollout& rollout = group.rollouts[j];
    for (std::size_t c = 0; c < rollout.chains.size(); ++c) {
      Json line{{"step", step.step + 1}, {"weights_version", step.weights_version}, {"group", chosen},
                {"rollout", j},          {"reward", rollout.total_reward()},        {"finish", rollout.ended ? "stop" : "length"}};
      line.update(transcript(step, tokenizer, rollout, c, datum++));
      lines.push_back(std::move(line));
    }
  }
  return lines;
}

}  // namespace lockstep
