#include "parity/self_check.h"

#include "base/hash.h"
#include "base/thread_pool.h"
#include "engine/engine.h"
#include "train/trainer.h"

namespace lockstep {
namespace {
// The same on every machine and instruction set tried so far. A change of the contract changes them.
struct Published {
  const char* profile;
  const char* hash;
};
constexpr Published kPublished[] = {{"cpu-f32", "67fd3d4bddc10079"}, {"cpu-bf16w", "e58729854417b70d"}};

constexpr const char* kConfig = R"({
  "model_type": "glm_moe_dsa", "vocab_size": 97, "hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 3,
  "num_key_value_heads": 3, "q_lora_rank": 40, "kv_lora_rank": 24, "qk_head_dim": 20, "qk_nope_head_dim": 12,
  "qk_rope_head_dim": 8, "v_head_dim": 20, "index_head_dim": 16, "index_n_heads": 16, "index_topk": 5,
  "indexer_types": ["full", "full", "shared", "full"], "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
  "first_k_dense_replace": 1, "intermediate_size": 300, "moe_intermediate_size": 7, "n_routed_experts": 12,
  "n_shared_experts": 2, "num_experts_per_tok": 3, "n_group": 1, "topk_group": 1, "norm_topk_prob": true,
  "routed_scaling_factor": 1.7, "rms_norm_eps": 1e-5, "hidden_act": "silu", "attention_bias": false,
  "tie_word_embeddings": false, "max_position_embeddings": 128,
  "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}})";

std::uint64_t sampled(Engine& engine, std::uint64_t hash) {
  std::vector<Request> requests;
  for (std::int32_t i = 0; i < 6; ++i) {
    Request request;
    for (std::int32_t t = 0; t < 9 + 7 * i; ++t) request.prompt.push_back((t * t + 31 * i + 5 * t) % 97);
    request.sampling = {.temperature = i % 3 == 0 ? 0.0f : 0.9f, .top_p = 0.95f, .top_k = i % 2 ? 20 : 0, .seed = 7, .max_tokens = 12, .sample_index = i};
    requests.push_back(std::move(request));
  }
  for (const Generation& generation : engine.generate(std::move(requests)))
    for (const GeneratedToken& token : generation.tokens) {
      hash = xxh3(&token.id, sizeof token.id, hash);
      hash = xxh3(&token.raw_logprob, sizeof token.raw_logprob, hash);
      hash = xxh3(&token.sampling_logprob, sizeof token.sampling_logprob, hash);
    }
  return hash;
}

// Micro-batches and pages differ between one thread and several: they must not show either.
std::string self_test_hash(std::shared_ptr<const Model> model, const Profile& profile, InstructionSet isa, int threads) {
  Runtime runtime({.isa = isa, .threads = threads}, model, profile);
  Trainer trainer(runtime, initial_weights(model->manifest(), kSelfTestSeed, kSelfTestDeviation), {.micro_batch = threads == 1 ? 0 : 2});
  Engine engine(runtime, trainer.weights(), {.page_size = threads == 1 ? 16 : 4});
  std::uint64_t hash = sampled(engine, 0);
  std::vector<TrainSequence> data;
  for (std::int32_t i = 0; i < 5; ++i) {
    std::vector<std::int32_t> tokens;
    for (std::int32_t t = 0; t < 40 - 6 * i; ++t) tokens.push_back((3 * t * t + 17 * i + t) % 97);
    data.push_back(TrainSequence::next_token(tokens));
  }
  const ForwardBackwardResult result = trainer.forward_backward(data, {});
  for (const std::vector<float>& row : result.logprobs) hash = xxh3(row.data(), row.size() * sizeof(float), hash);
  trainer.optim_step({});
  const std::uint64_t weights = trainer.state().master_hash();
  hash = xxh3(&weights, sizeof weights, hash);
  engine.set_weights(trainer.weights());
  return hex64(sampled(engine, hash));
}
}  // namespace

std::shared_ptr<const Model> self_test_model() { return make_model(Json::parse(kConfig)); }

std::vector<SelfTestRow> run_self_test(int threads) {
  if (threads <= 0) threads = available_processors();
  const std::shared_ptr<const Model> model = self_test_model();
  std::vector<SelfTestRow> rows;
  for (const Published& published : kPublished)
    for (const InstructionSet isa : {InstructionSet::scalar, InstructionSet::avx2, InstructionSet::avx512}) {
      if (!machine_has(isa)) continue;
      for (const int count : threads == 1 ? std::vector<int>{1} : std::vector<int>{1, threads})
        rows.push_back({published.profile, std::string(instruction_set_name(isa)), count, self_test_hash(model, profile_by_name(published.profile), isa, count),
                        published.hash});
    }
  return rows;
}

}  // namespace lockstep
