// An adapter that was trained for a step is served: every way of serving has the trainer's log-probabilities, among neighbours without an adapter.
#include <algorithm>
#include <bit>

#include "parity/parity_run.h"
#include "parity/step_trainer.h"

namespace lockstep {

namespace {
constexpr std::uint64_t kAdapterDraws = 7'000'000'000;
}  // namespace

void serve_adapter(ParityScene& scene) {
  if (!scene.adapts()) return;
  const ParityPlace place = parity_reference();
  Runtime runtime({.kind = place.backend, .isa = place.isa, .threads = place.threads}, scene.model.model, scene.profile,
                  std::max(scene.longest, scene.longest_step));
  const auto trainer = adapter_step_trainer(runtime, scene.model, {.page_size = place.page_size});
  RandomSequence draws = scene.draws(kAdapterDraws);
  const Tokens tokens = scene.random_tokens(draws, std::min<std::int64_t>(scene.longest, 65));
  const std::vector<TrainSequence> data = {TrainSequence::next_token(tokens)};
  trainer->forward_backward(data, {}, {});
  trainer->optim_step({});
  const std::vector<float> want = trainer->score(data)[0];
  constexpr std::int64_t kPage = 4;
  Engine engine(runtime, trainer->weights(), {.page_size = kPage, .cache_pages = (scene.longest + 48) / kPage + 1, .max_batch_rows = 96, .prefill_chunk = 32});
  const auto first_different = [&](const std::vector<float>& got) {
    std::size_t i = 0;
    while (i < want.size() && i < got.size() && std::bit_cast<std::uint32_t>(got[i]) == std::bit_cast<std::uint32_t>(want[i])) ++i;
    return i;
  };
  for (const ScoreKind kind : {ScoreKind::prefill, ScoreKind::chunked, ScoreKind::decode, ScoreKind::prefix, ScoreKind::preempted}) {
    scene.options.stop.throw_if_stopped();
    const ScoreMode mode{.kind = kind, .seed = scene.options.seed + 1, .neighbours = 2, .adapter = trainer->adapter()};
    const std::vector<float> got = engine_score(engine, tokens, mode);
    if (const std::size_t at = first_different(got); at < want.size())
      scene.mismatch([&] {
        return ParityMismatch{
            "log-probability",
            -1,
            {static_cast<std::int64_t>(at)},
            std::bit_cast<std::uint32_t>(want[at]),
            at < got.size() ? std::bit_cast<std::uint32_t>(got[at]) : 0,
            fmt::format("{} of {} tokens under a trained adapter on {} against its trainer", score_kind_name(kind), tokens.size(), place.text())};
      });
    ++scene.report.comparisons;
    scene.report.tokens += static_cast<std::int64_t>(got.size());
    ++scene.counters["adapter_servings"];
  }
  // The control: the weights alone have other numbers.
  if (first_different(engine_score(engine, tokens, {.seed = scene.options.seed + 1})) == want.size())
    scene.report.miscounts.push_back("serving under a trained adapter: it changes no log-probability");
}

}  // namespace lockstep
