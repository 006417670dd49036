#include "parity/engine_ways.h"

#include <algorithm>

#include "base/error.h"
#include "base/philox.h"

namespace lockstep {

namespace {
constexpr std::string_view kNames[] = {"prefill", "chunked", "decode", "prefix", "preempted"};

// Requests that keep an engine busy: short random prompts, more submitted as they end. Cancelled when this goes away.
class Neighbours {
 public:
  Neighbours(Engine& engine, const ScoreMode& mode) : engine_(engine), draws_(mode.seed, RandomStream::fuzz, 1), wanted_(mode.neighbours) {}
  ~Neighbours() {
    wanted_ = 0;
    for (std::uint64_t id : std::vector<std::uint64_t>(ids_)) {
      try {
        engine_.cancel(id);
      } catch (...) {  // a callback of another request threw: that request has been told, and ours is cancelled
      }
    }
  }
  void fill() {
    while (static_cast<std::int32_t>(ids_.size()) < wanted_) {
      const RequestLimits& limits = engine_.limits();
      const std::int64_t longest = std::min(limits.max_positions, limits.cache_positions);
      Request request;
      request.prompt.resize(1 + draws_.below(static_cast<std::uint32_t>(std::clamp<std::int64_t>(longest / 2, 1, 24))));
      for (std::int32_t& token : request.prompt) token = static_cast<std::int32_t>(draws_.below(static_cast<std::uint32_t>(limits.vocabulary)));
      request.sampling.seed = draws_.next();
      request.prefix_owner = request.sampling.seed & 1;
      const std::int64_t room = longest - static_cast<std::int64_t>(request.prompt.size());
      request.sampling.max_tokens = static_cast<std::int32_t>(draws_.below(static_cast<std::uint32_t>(std::min<std::int64_t>(room, 12) + 1)));
      ids_.push_back(engine_.submit(std::move(request), {}, [this](Generation&& g) { std::erase(ids_, g.id); }));
    }
  }

 private:
  Engine& engine_;
  RandomSequence draws_;
  std::int32_t wanted_;
  std::vector<std::uint64_t> ids_;
};

const Sequence* running(const Engine& engine, std::uint64_t id) {
  for (const Sequence* s : engine.scheduler().running())
    if (s->id == id) return s;
  return nullptr;
}

// Sets a new random odd chunk size after each chunk.
class OddChunks {
 public:
  explicit OddChunks(const RandomSequence& draws) : draws_(draws) {}
  std::int64_t next() { return 1 + 2 * static_cast<std::int64_t>(draws_.below(8)); }
  void follow(Engine& engine, std::uint64_t id, Pace& pace) {
    const Sequence* s = running(engine, id);
    const std::int64_t computed = s ? s->computed : 0;
    if (computed > computed_) {
      pace.rows = next();
      engine.set_pace(id, pace);
    }
    computed_ = computed;
  }

 private:
  RandomSequence draws_;
  std::int64_t computed_ = 0;
};
}  // namespace

std::string_view score_kind_name(ScoreKind kind) { return kNames[static_cast<int>(kind)]; }

std::vector<float> engine_score(Engine& engine, const std::vector<std::int32_t>& tokens, const ScoreMode& mode) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  const std::int64_t page_size = engine.options().page_size;
  RandomSequence draws(mode.seed, RandomStream::fuzz);
  Neighbours neighbours(engine, mode);
  // One pass over the tokens; `between` may change the pace or preempt it before each step.
  const auto pass = [&](Pace pace, const auto& between) {
    neighbours.fill();
    Request request;
    request.prompt = tokens;
    request.sampling.max_tokens = 0;
    request.prompt_logprobs = true;
    request.weights = mode.weights;
    request.adapter = mode.adapter;
    request.prefix_owner = mode.seed & 1;
    Generation result;
    bool done = false;
    const std::uint64_t id = engine.submit(std::move(request), {}, [&](Generation&& g) {
      result = std::move(g);
      done = true;
    });
    engine.set_pace(id, pace);
    try {
      while (!done) {
        between(id, pace);
        if (!engine.step()) fail(ErrorCode::internal, "the engine is idle before a score is done");
        if (!done) neighbours.fill();
      }
    } catch (...) {
      engine.cancel(id);
      throw;
    }
    if (result.finish == FinishReason::error) fail(ErrorCode::numeric, "{}", result.error);
    return std::move(result.prompt_logprobs);
  };
  const auto nothing = [](std::uint64_t, Pace&) {};
  const Pace whole{.rows = count, .cached_pages = 0};
  OddChunks chunks(draws);
  switch (mode.kind) {
    case ScoreKind::prefill:
      return pass(whole, nothing);
    case ScoreKind::chunked:
      return pass({.rows = chunks.next(), .cached_pages = 0}, [&](std::uint64_t id, Pace& pace) { chunks.follow(engine, id, pace); });
    case ScoreKind::decode:
      return pass({.rows = 1, .decodes = true, .cached_pages = 0}, nothing);
    case ScoreKind::prefix: {
      std::vector<float> first = pass(whole, nothing);
      const std::int64_t full = (count - 1) / page_size;
      const std::int64_t most = draws.below(2) || full == 0 ? full : 1 + draws.below(static_cast<std::uint32_t>(full));
      const std::vector<float> second = pass({.cached_pages = most}, nothing);
      // What came from the cache was not computed again and is NaN.
      for (std::size_t i = 0; i < first.size(); ++i)
        if (second[i] == second[i]) first[i] = second[i];
      return first;
    }
    case ScoreKind::preempted: {
      std::int64_t steps = 0, times = 1 + draws.below(2), at = 1 + draws.below(3);
      return pass({.rows = chunks.next(), .cached_pages = 0}, [&](std::uint64_t id, Pace& pace) {
        chunks.follow(engine, id, pace);
        const Sequence* s = running(engine, id);
        if (!s || times == 0 || steps++ < at) return;
        // What has been scored may come from the prefix cache when it goes on, or be computed again.
        pace.cached_pages = draws.below(2) ? s->computed / page_size : 0;
        engine.set_pace(id, pace);
        engine.preempt(id);
        at = steps + 1 + draws.below(3);
        --times;
      });
    }
  }
  fail(ErrorCode::internal, "a way to score without a case");
}

}  // namespace lockstep
