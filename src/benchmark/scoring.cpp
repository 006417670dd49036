#include "benchmark/scoring.h"

#include "base/philox.h"
#include "train/trainer.h"

namespace lockstep {

ScoringTiming time_scoring(const ScoringCase& c, const BackendOptions& machine, const std::string& profile, const TimeBudget& budget) {
  const std::shared_ptr<const Model> model = make_model({{"model_type", "llama"},
                                                         {"vocab_size", c.vocabulary},
                                                         {"hidden_size", c.hidden},
                                                         {"num_hidden_layers", 1},
                                                         {"num_attention_heads", 1},
                                                         {"head_dim", 16},
                                                         {"intermediate_size", 16},
                                                         {"max_position_embeddings", c.tokens + 1}});
  Runtime runtime(machine, model, profile_by_name(profile), c.tokens + 1);
  Trainer trainer(runtime, initial_weights(model->manifest(), 1, 0.02), {});
  RandomSequence draws(1, RandomStream::shuffle, 0);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(c.tokens + 1));
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(draws.uniform() * static_cast<double>(c.vocabulary));
  const std::vector<TrainSequence> data = {TrainSequence::next_token(tokens)};
  MemoryAccounts& memory = runtime.backend.device().memory();
  memory.reset_peaks();
  const std::int64_t before = memory.peak_of_all();
  ScoringTiming result;
  result.time = time_repeated(budget, [&] { trainer.score(data); });
  result.tokens_per_second = static_cast<double>(c.tokens) / result.time.median;
  result.bytes = memory.peak_of_all() - before;
  result.logits_bytes = c.tokens * c.vocabulary * 4;
  return result;
}

}  // namespace lockstep
