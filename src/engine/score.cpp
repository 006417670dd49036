#include "engine/score.h"

#include <algorithm>

#include "base/error.h"
#include "engine/engine.h"

namespace lockstep {

namespace {
constexpr std::string_view kNames[] = {"prefill", "chunked", "decode", "prefix", "preempted"};
}  // namespace

std::string_view score_kind_name(ScoreKind kind) { return kNames[static_cast<int>(kind)]; }

namespace {
// Requests that keep an engine busy: short random prompts, more submitted as they end. Cancelled when this goes away.
class Company {
 public:
  Company(Engine& engine, const ScoreMode& mode)
      : engine_(engine), draws_(mode.seed, RandomStream::fuzz, 1), wanted_(mode.company) {}
  ~Company() {
    wanted_ = 0;
    for (std::uint64_t id : std::vector<std::uint64_t>(ids_)) {
      try {
        engine_.cancel(id);
      } catch (...) {  // a callback of another request threw: that request has been told, and ours is cancelled
      }
    }
  }
  void keep() {
    while (static_cast<std::int32_t>(ids_.size()) < wanted_) {
      const RequestLimits& limits = engine_.limits();
      const std::int64_t longest = std::min(limits.max_positions, limits.cache_positions);
      Request request;
      request.prompt.resize(1 + draws_.below(static_cast<std::uint32_t>(std::clamp<std::int64_t>(longest / 2, 1, 24))));
      for (std::int32_t& token : request.prompt)
        token = static_cast<std::int32_t>(draws_.below(static_cast<std::uint32_t>(limits.vocabulary)));
      request.sampling.seed = draws_.next();
      request.prefix_owner = request.sampling.seed & 1;
      const std::int64_t room = longest - static_cast<std::int64_t>(request.prompt.size());
      request.sampling.max_tokens =
          static_cast<std::int32_t>(draws_.below(static_cast<std::uint32_t>(std::min<std::int64_t>(room, 12) + 1)));
      ids_.push_back(engine_.submit(std::move(request), {}, [this](Generation&& g) { std::erase(ids_, g.id); }));
    }
  }

 private:
  Engine& engine_;
  RandomSequence draws_;
  std::int32_t wanted_;
  std::vector<std::uint64_t> ids_;
};
}  // namespace

std::vector<float> Engine::score(const std::vector<std::int32_t>& tokens, const ScoreMode& mode) {
  RandomSequence draws(mode.seed, RandomStream::fuzz);
  Company company(*this, mode);
  // One pass over the tokens; `set_up` chooses its way, `interrupt` may preempt it before each step.
  const auto pass = [&](const auto& set_up, const auto& interrupt) {
    company.keep();
    Request request;
    request.prompt = tokens;
    request.sampling.max_tokens = 0;
    request.prompt_logprobs = true;
    request.weights = mode.weights;
    request.adapter = mode.adapter;
    request.prefix_owner = mode.seed & 1;
    Generation result;
    bool done = false;
    Sequence& s = add(std::move(request), {}, [&](Generation&& g) {
      result = std::move(g);
      done = true;
    });
    const std::uint64_t id = s.id;
    set_up(s);
    try {
      while (!done) {
        interrupt(s);
        if (!step()) fail(ErrorCode::internal, "the engine is idle before a score is done");
        if (!done) company.keep();
      }
    } catch (...) {
      cancel(id);
      throw;
    }
    if (result.finish == FinishReason::error) fail(ErrorCode::numeric, "{}", result.error);
    return std::move(result.prompt_logprobs);
  };
  const auto nothing = [](Sequence&) {};
  const auto whole = [&](Sequence& s) { s.chunk = s.known(); };
  const auto odd_chunks = [&](Sequence& s) {
    s.chunk_draws = draws;
    s.chunk = 1 + 2 * s.chunk_draws.below(8);
    s.random_chunks = true;
  };
  switch (mode.kind) {
    case ScoreKind::prefill:
      return pass(whole, nothing);
    case ScoreKind::chunked:
      return pass(odd_chunks, nothing);
    case ScoreKind::decode:
      return pass([](Sequence& s) { s.chunk = 1, s.decode_from = 1; }, nothing);
    case ScoreKind::prefix: {
      std::vector<float> first = pass(whole, nothing);
      const std::int64_t full = (static_cast<std::int64_t>(tokens.size()) - 1) / options_.page_size;
      const std::int64_t most = draws.below(2) || full == 0 ? full : 1 + draws.below(static_cast<std::uint32_t>(full));
      const std::vector<float> second = pass(
          [&](Sequence& s) {
            s.most_hit_pages = most;
            std::fill(s.generation.prompt_logprobs.begin(), s.generation.prompt_logprobs.end(),
                      std::numeric_limits<float>::quiet_NaN());
          },
          nothing);
      // What came from the cache was not computed again and is still NaN.
      for (std::size_t i = 0; i < first.size(); ++i)
        if (second[i] == second[i]) first[i] = second[i];
      return first;
    }
    case ScoreKind::preempted: {
      std::int64_t steps = 0, times = 1 + draws.below(2), at = 1 + draws.below(3);
      return pass(odd_chunks, [&](Sequence& s) {
        if (!s.running || times == 0 || steps++ < at) return;
        // What has been scored may come from the prefix cache when it goes on, or be computed again.
        s.most_hit_pages = draws.below(2) ? s.computed / options_.page_size : 0;
        scheduler_->preempt(s);
        at = steps + 1 + draws.below(3);
        --times;
      });
    }
  }
  fail(ErrorCode::internal, "a way to score without a case");
}

}  // namespace lockstep
