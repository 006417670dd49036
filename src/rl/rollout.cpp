#include "rl/rollout.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/hash.h"

namespace lockstep {

std::uint64_t derived_seed(std::uint64_t seed, SeedUse use, std::uint64_t item) {
  std::array<unsigned char, 24> bytes{};
  const std::array<std::uint64_t, 3> words = {seed, static_cast<std::uint64_t>(use), item};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(words[i / 8] >> (8 * (i % 8)));
  return xxh3(bytes.data(), bytes.size());
}

void check_compact_at(std::int64_t compact_at, bool many_turns, std::string_view environment) {
  if (compact_at < 0 || compact_at > 1 << 20) fail(ErrorCode::invalid_argument, "compact_at is {}, allowed is 0 to {}", compact_at, 1 << 20);
  if (compact_at > 0 && !many_turns)
    fail(ErrorCode::invalid_argument, "compact_at is {}, and the problems of '{}' have one answer; allowed is 0", compact_at, environment);
}

void check_chat(bool chat, std::int64_t compact_at) {
  if (chat && compact_at > 0) fail(ErrorCode::invalid_argument, "compact_at is {} with chat, and a conversation has one window; allowed is 0", compact_at);
}

RolloutSource::RolloutSource(const Environment& environment, const Tokenizer& tokenizer, Sampler& sampler)
    : environment_(environment), tokenizer_(tokenizer), sampler_(sampler), end_tokens_(sampler.end_tokens()) {
  if (end_tokens_.empty()) fail(ErrorCode::unsupported, "the model names no 'eos_token_id', so no completion could end");
}

std::vector<RolloutGroup> RolloutSource::sample(const std::vector<Problem>& problems, const RolloutOptions& options,
                                                const std::function<std::uint64_t(std::size_t)>& seed_of) {
  const auto samples = static_cast<std::size_t>(options.samples);
  std::vector<Play> plays;  // by problem and sample
  plays.reserve(problems.size() * samples);
  for (const Problem& problem : problems)
    for (std::size_t j = 0; j < samples; ++j)
      plays.emplace_back(environment_, problem, tokenizer_, PlaySettings{.compact_at = options.compact_at, .train_summaries = options.train_summaries});
  const std::vector<std::int64_t> rolled_back =
      play_on(plays, options, [&](std::size_t k) { return PlayNoise{.seed = seed_of(k / samples), .sample = static_cast<std::int32_t>(k % samples)}; });
  std::vector<RolloutGroup> groups;
  for (const Problem& problem : problems) groups.push_back({.problem = problem, .rollouts = {}});
  for (std::size_t k = 0; k < plays.size(); ++k) {
    Rollout& rollout = groups[k / samples].rollouts.emplace_back(plays[k].take_rollout());
    rollout.rolled_back = rolled_back[k];
    if (options.temperature > 0) rollout.temperature = static_cast<float>(options.temperature);  // 0: the raw log-probability is the sampling one
  }
  return groups;
}

std::vector<std::int64_t> RolloutSource::play_on(std::vector<Play>& plays, const RolloutOptions& options,
                                                 const std::function<PlayNoise(std::size_t)>& noise_of) {
  std::vector<std::int64_t> rolled_back(plays.size());
  std::vector<std::size_t> open;
  for (std::size_t k = 0; k < plays.size(); ++k)
    if (!plays[k].over()) open.push_back(k);
  for (bool first = true; !open.empty(); first = false) {
    std::vector<SampleRequest> requests;
    for (const std::size_t k : open) {
      const PlayNoise noise = noise_of(k);
      const std::int64_t window = plays[k].window();
      requests.push_back({.prompt = plays[k].prompt(),
                          .temperature = static_cast<float>(options.temperature),
                          .top_p = static_cast<float>(options.top_p),
                          .top_k = static_cast<std::int32_t>(options.top_k),
                          .min_p = static_cast<float>(options.min_p),
                          .seed = window == 0 ? noise.seed : derived_seed(noise.seed, SeedUse::window, static_cast<std::uint64_t>(window)),
                          .sample_index = noise.sample,
                          .max_tokens = static_cast<std::int32_t>(options.max_tokens),
                          .stop_tokens = end_tokens_,
                          .kept_tokens = options.kept_tokens,
                          .check = check_of(plays[k])});
    }
    std::vector<SampleResult> results = sampler_.sample(requests);
    if (results.size() != requests.size()) fail(ErrorCode::internal, "the sampler gave {} completions for {} requests", results.size(), requests.size());
    if (first) version_ = results.front().weights_version;
    std::vector<std::size_t> still;
    for (std::size_t r = 0; r < results.size(); ++r) {
      Play& play = plays[open[r]];
      rolled_back[open[r]] += results[r].rolled_back;
      const std::vector<std::uint8_t> put_in = results[r].put_in;
      play.take(turn_of(std::move(results[r]), play), put_in);
      if (!play.over()) still.push_back(open[r]);
    }
    open = std::move(still);
  }
  return rolled_back;
}

// The episode's check, over tokens; null if it checks nothing.
std::shared_ptr<const SampleCheck> RolloutSource::check_of(Play& play) const {
  const std::vector<std::string> strings = play.episode().checked_at();
  if (strings.empty()) return nullptr;
  const auto decide = [this, episode = &play.episode()](const Hold& hold) {
    const AnswerCheck said = episode->check(tokenizer_.decode(hold.tokens, false));
    if (said.kind == AnswerCheck::Kind::stop) return HoldAction{.kind = HoldAction::Kind::stop};
    if (said.kind == AnswerCheck::Kind::go_on) return HoldAction{};
    HoldAction back{.kind = HoldAction::Kind::roll_back, .position = 0, .tokens = {}, .text = said.put_in};
    std::size_t bytes = 0;
    for (const std::int32_t id : hold.tokens) {
      bytes += tokenizer_.token_bytes(id).size();
      if (bytes > said.keep) break;
      ++back.position;
    }
    return back;
  };
  return std::make_shared<const SampleCheck>(SampleCheck{{.every = 0, .strings = strings}, decide});
}

Turn RolloutSource::turn_of(SampleResult&& result, Play& play) const {
  if (result.finish == SampleFinish::failed) fail(ErrorCode::numeric, "the completion of '{}' failed: {}", play.episode().task(), result.error);
  if (result.mixed_versions || result.weights_version != version_)
    fail(ErrorCode::internal, "the weights changed during sampling, from version {} to {}", version_, result.weights_version);
  Turn turn;
  turn.tokens = std::move(result.tokens);
  turn.sampling_logprobs = std::move(result.sampling_logprobs);
  turn.kept_tokens = std::move(result.kept_tokens);
  turn.weights_version = result.weights_version;
  // A check may have stopped it: such an answer is cut off.
  turn.ended =
      result.finish == SampleFinish::stop && !turn.tokens.empty() && std::find(end_tokens_.begin(), end_tokens_.end(), turn.tokens.back()) != end_tokens_.end();
  return turn;
}

}  // namespace lockstep
