// What is computed is what the configuration implies, measured where it happens: expert rows, keys touched, bytes of the cache,
// logits that never stand whole; and an exported folder that reloads to the bits of the live model.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

#include "checkpoint/model_folder.h"
#include "engine/engine.h"
#include "parity/engine_ways.h"
#include "system/golden_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

using Tokens = std::vector<std::int32_t>;

// Counts from the device's own integers: the selections that attention reads, the slots that experts compute.
class Counts : public OperationObserver {
 public:
  std::int64_t rows = 0, keys = 0, expert_rows = 0, largest_selection = 0;

  void begin_forward(Backend& backend, const Batch& batch) override {
    backend_ = &backend;
    rows += batch.count();
  }
  void operation(const Operation& op) override {
    if (op.name == "index_select") {
      selected_ = 0;
      const std::vector<std::int32_t> positions = backend_->stream().read_ints(op.output).get();
      for (std::int64_t row = 0; row < op.output.rows; ++row) {
        std::set<std::int32_t> distinct;
        for (std::int64_t j = 0; j < op.output.cols; ++j)
          if (const std::int32_t p = positions[static_cast<std::size_t>(row * op.output.cols + j)]; p >= 0) distinct.insert(p);
        selected_ += static_cast<std::int64_t>(distinct.size());
        largest_selection = std::max(largest_selection, static_cast<std::int64_t>(distinct.size()));
      }
    }
    if (op.name == "attention") keys += selected_;  // its own selection, or the one it shares
    if (op.name == "expert_gather") {
      const std::vector<std::int32_t> slots = backend_->stream().read_ints(op.slot_of).get();
      EXPECT_EQ(std::set<std::int32_t>(slots.begin(), slots.end()).size(), slots.size()) << "two rows share a slot";
      EXPECT_EQ(static_cast<std::int64_t>(slots.size()), op.output.rows);
      expert_rows += op.output.rows;
    }
  }

 private:
  Backend* backend_ = nullptr;
  std::int64_t selected_ = 0;
};

TEST(Counters, ExpertRowsAndKeysTouchedAreThoseOfTheConfiguration) {
  for (const std::string name : {"glm_moe_dsa/sharing", "glm_moe_dsa/wide"}) {
    const std::shared_ptr<const Model> model = make_model(golden_config(name));
    Runtime runtime({.threads = 1}, model, profile_by_name("cpu-bf16w"));
    Engine engine(runtime, make_weight_set(runtime.backend, model->manifest(), golden_weights(model->manifest(), 1), runtime.profile, 0), {.page_size = 4});
    Counts counts;
    runtime.observer = &counts;
    RandomSequence draws(3, RandomStream::fuzz);
    for (ScoreKind kind : {ScoreKind::prefill, ScoreKind::decode, ScoreKind::preempted})
      engine_score(engine, random_tokens(draws, 40, model->facts().vocabulary), {.kind = kind, .seed = 9, .neighbours = 2});
    runtime.observer = nullptr;
    const EngineCounters& c = engine.counters();
    EXPECT_EQ(counts.rows, c.rows);
    EXPECT_EQ(counts.keys * model->facts().attention_heads, c.work.pairs_read) << name;
    EXPECT_EQ(counts.largest_selection, model->facts().select_top_k);
    EXPECT_EQ(3 * counts.expert_rows, c.work.expert_rows) << name << ": gate, up and down";
    const Json& config = model->config();
    std::int64_t sparse_layers = 0;
    for (const auto& kind : config["mlp_layer_types"]) sparse_layers += kind == "sparse";
    EXPECT_EQ(counts.expert_rows, counts.rows * config["num_experts_per_tok"].get<std::int64_t>() * sparse_layers);
  }
}

TEST(Counters, APrefillTouchesMinOfKAndVisibleKeys) {
  const std::shared_ptr<const Model> model = make_model(golden_config("glm_moe_dsa/sharing"));
  Runtime runtime({.threads = 2}, model, profile_by_name("cpu-f32"));
  Trainer trainer(runtime, golden_weights(model->manifest(), 1), {});
  RandomSequence draws(4, RandomStream::fuzz);
  const std::int64_t n = 50, k = model->facts().select_top_k;
  Counts counts;
  runtime.observer = &counts;
  trainer.score({TrainSequence::next_token(random_tokens(draws, n + 1, model->facts().vocabulary))});
  runtime.observer = nullptr;
  std::int64_t expected = 0;
  for (std::int64_t visible = 1; visible <= n; ++visible) expected += std::min(k, visible);
  EXPECT_EQ(counts.keys, expected * model->facts().layers);
  EXPECT_EQ(trainer.ranks().work().pairs_read, counts.keys * model->facts().attention_heads);
}

// A row sees its window alone: counted by the kernel where it scores, against min(window, position + 1) by hand.
TEST(Counters, KeysOutsideAWindowAreNotTouched) {
  for (const std::string name : {"mistral/window", "mistral/wide", "mistral/whole", "gpt_oss/window", "gpt_oss/wide"}) {
    const std::shared_ptr<const Model> model = make_model(golden_config(name));
    Runtime runtime({.threads = 2}, model, profile_by_name("cpu-f32"));
    const WeightImages images = golden_weights(model->manifest(), 1);
    Trainer trainer(runtime, images, {});
    RandomSequence draws(4, RandomStream::fuzz);
    const std::map<std::string, std::int64_t> windows = {{"mistral/window", 20}, {"mistral/wide", 70}, {"gpt_oss/window", 17}, {"gpt_oss/wide", 70}};
    const std::int64_t n = 100, layers = model->facts().layers, window = windows.contains(name) ? windows.at(name) : n;
    // gpt_oss' windows are on two of three layers, and on one of two; mistral's on all.
    const std::int64_t whole = name.starts_with("gpt_oss") ? 1 : 0;
    const Tokens tokens = random_tokens(draws, n, model->facts().vocabulary);
    const auto expected = [&](std::int64_t rows) {
      std::int64_t keys = 0;
      for (std::int64_t visible = 1; visible <= rows; ++visible) keys += std::min(window, visible) * (layers - whole) + visible * whole;
      return keys * model->facts().attention_heads;
    };
    trainer.score({TrainSequence::next_token(tokens)});
    EXPECT_EQ(trainer.ranks().work().pairs_read, expected(n - 1)) << name;
    Engine engine(runtime, make_weight_set(runtime.backend, model->manifest(), images, runtime.profile, 0), {.page_size = 4});
    engine_score(engine, tokens, {.kind = ScoreKind::decode, .seed = 9});
    EXPECT_EQ(engine.counters().work.pairs_read, expected(n)) << name;
  }
}

TEST(Counters, RouterLoadsAddUpToTokensTimesK) {
  const std::shared_ptr<const Model> model = make_model(golden_config("glm_moe_dsa/wide"));
  Runtime runtime({.threads = 2}, model, profile_by_name("cpu-bf16w"));
  const auto weights = make_weight_set(runtime.backend, model->manifest(), golden_weights(model->manifest(), 1), runtime.profile, 0);
  RandomSequence draws(5, RandomStream::fuzz);
  const Tokens tokens = random_tokens(draws, 33, model->facts().vocabulary);
  KvCache cache(runtime.backend, model->cache_shapes(runtime.profile), runtime.profile, 3, 16);
  const Batch batch(runtime.backend, {{tokens, 0, {0, 1, 2}}}, 16, true);
  std::vector<Buffer> loads;
  for (std::size_t i = 0; i < model->facts().router_biases.size(); ++i)
    loads.push_back(runtime.backend.device().allocate_zero(DType::i32, 1, model->facts().expert_count, MemoryCategory::workspace));
  ForwardOptions options;
  options.router_loads = &loads;
  Context ctx = runtime.context(*weights, cache, batch, options);
  model->forward(ctx);
  ASSERT_EQ(loads.size(), 3u);
  for (const Buffer& load : loads) {
    std::int64_t total = 0;
    for (std::int32_t rows : runtime.backend.stream().read_ints(load.view()).get()) total += rows;
    EXPECT_EQ(total, 33 * model->facts().experts_a_token);
  }
}

TEST(Counters, TheCacheCostsWhatTheConfigurationImplies) {
  for (const std::string profile : {"cpu-bf16w", "cpu-f32", "cpu-bf16w-expanded", "cpu-f32-expanded"})
    for (const std::string name :
         {"glm_moe_dsa/sharing", "glm_moe_dsa/wide", "glm_moe_dsa/dense-range", "llama/scaled", "qwen3/tied", "mistral/window", "qwen2/biased",
          "qwen3_moe/between", "minimax_m2/norms", "gpt_oss/window", "deepseek_v3/groups", "kimi_k2/small", "deepseek_v32/indexed"}) {
      const std::shared_ptr<const Model> model = make_model(golden_config(name));
      if (!model->profile_refusal(profile_by_name(profile)).empty()) continue;
      const Json& config = model->config();
      std::int64_t values = 0;
      const auto key = [&](const char* of) { return config.at(of).get<std::int64_t>(); };
      for (std::int64_t i = 0; i < key("num_hidden_layers"); ++i) {
        if (!config.contains("kv_lora_rank")) {
          values += 2 * key("num_key_value_heads") * (config.contains("head_dim") ? key("head_dim") : key("hidden_size") / key("num_attention_heads"));
          continue;
        }
        if (profile.ends_with("expanded")) {
          values += key("num_attention_heads") * (key("qk_nope_head_dim") + key("qk_rope_head_dim") + key("v_head_dim"));
          continue;
        }
        const bool indexed =
            config.contains("indexer_types") ? config["indexer_types"][static_cast<std::size_t>(i)] == "full" : config.contains("index_head_dim");
        values += key("kv_lora_rank") + key("qk_rope_head_dim") + (indexed ? key("index_head_dim") : 0);
      }
      Runtime runtime({.threads = 1}, model, profile_by_name(profile));
      const auto weights = make_weight_set(runtime.backend, model->manifest(), golden_weights(model->manifest(), 1), runtime.profile, 0);
      const MemoryAccounts& memory = runtime.backend.device().memory();
      EXPECT_EQ(memory.current(MemoryCategory::cache), 0);
      {
        Engine engine(runtime, weights, {.page_size = 8, .cache_pages = 25});
        EXPECT_EQ(memory.current(MemoryCategory::cache), 8 * 25 * values * (profile.starts_with("cpu-f32") ? 4 : 2)) << name << ", " << profile;
        engine.generate({{.prompt = {1, 2, 3}, .sampling = {.max_tokens = 20}}});
        EXPECT_EQ(memory.peak(MemoryCategory::cache), memory.current(MemoryCategory::cache)) << "serving takes no more of it";
      }
      EXPECT_EQ(memory.current(MemoryCategory::cache), 0);
    }
}

TEST(Counters, TheLogitsOfABatchNeverStandWhole) {
  const std::shared_ptr<const Model> model = make_model(golden_config("glm_moe_dsa/dense-range"));
  const std::int64_t vocabulary = model->facts().vocabulary;
  Runtime runtime({.threads = 2}, model, profile_by_name("cpu-bf16w"));
  MemoryAccounts& memory = runtime.backend.device().memory();
  RandomSequence draws(6, RandomStream::fuzz);
  const std::int64_t sequences = 160, length = 40, rows = sequences * length;
  std::vector<TrainSequence> data;
  for (std::int64_t i = 0; i < sequences; ++i) data.push_back(TrainSequence::next_token(random_tokens(draws, length + 1, vocabulary)));
  Trainer trainer(runtime, golden_weights(model->manifest(), 1), {});
  memory.reset_peaks();
  const std::int64_t before = memory.current(MemoryCategory::workspace), activations_before = memory.current(MemoryCategory::activations);
  trainer.forward_backward(data, {});
  const std::int64_t whole = rows * vocabulary * 4;
  EXPECT_LT(memory.peak(MemoryCategory::workspace) - before, whole / 2) << "training";
  // Nor is it hidden among the activations: one more matrix of that size would show.
  const std::int64_t trained = memory.peak(MemoryCategory::activations) - activations_before;
  std::vector<TrainSequence> half(data.begin(), data.begin() + sequences / 2);
  trainer.optim_step({});
  memory.reset_peaks();
  trainer.forward_backward(half, {});
  EXPECT_LE(trained, 2 * (memory.peak(MemoryCategory::activations) - activations_before) + 4096);

  Engine engine(runtime, trainer.weights(), {.max_batch_rows = 8192, .prefill_chunk = 512});
  std::vector<Request> requests(64);
  for (Request& r : requests) r = {.prompt = random_tokens(draws, 80, vocabulary), .sampling = {.max_tokens = 1}, .prompt_logprobs = true};
  memory.reset_peaks();
  const std::int64_t serving_before = memory.current(MemoryCategory::workspace);
  engine.generate(requests);
  EXPECT_GE(engine.counters().largest_batch, 64 * 80);
  EXPECT_LT(memory.peak(MemoryCategory::workspace) - serving_before, 64 * 80 * vocabulary * 4 / 8) << "serving";
}

// 4,096 log-probabilities under a vocabulary of 150,000, as training and serving compute them: 2.5 GB of logits, of which a few rows are
// there at a time. What a call takes may grow by its rows of hidden size, and by nothing of the vocabulary's.
TEST(Counters, LogprobsUnderALargeVocabularyTakeNoMemoryOfTheirCount) {
  constexpr std::int64_t kVocabulary = 150'000, kHidden = 16;
  const std::shared_ptr<const Model> model = make_model({{"model_type", "llama"},
                                                         {"vocab_size", kVocabulary},
                                                         {"hidden_size", kHidden},
                                                         {"num_hidden_layers", 1},
                                                         {"num_attention_heads", 1},
                                                         {"head_dim", 8},
                                                         {"intermediate_size", 8},
                                                         {"max_position_embeddings", 8192}});
  Runtime runtime({.threads = 2}, model, profile_by_name("cpu-bf16w"), 8192);
  MemoryAccounts& memory = runtime.backend.device().memory();
  Trainer trainer(runtime, initial_weights(model->manifest(), 1, 0.3), {});
  Engine engine(runtime, trainer.weights(), {.cache_pages = 600, .max_batch_rows = 4096, .prefill_chunk = 4096, .prefix_cache = false});
  RandomSequence draws(8, RandomStream::fuzz);
  const std::vector<std::int32_t> tokens = random_tokens(draws, 4097, kVocabulary), some(tokens.begin(), tokens.begin() + 1025);
  const auto resident = [] {
    std::ifstream status("/proc/self/statm");
    std::int64_t pages = 0, in_memory = 0;
    status >> pages >> in_memory;
    return in_memory * sysconf(_SC_PAGESIZE);
  };
  std::vector<float> trained, served;
  const auto taken = [&](const auto& work) {
    memory.reset_peaks();
    const std::int64_t before = memory.peak_of_all();
    work();
    return memory.peak_of_all() - before;
  };
  const std::int64_t of_whole = 4096 * kVocabulary * 4;
  const std::int64_t resident_before = resident();
  const std::int64_t train_some = taken([&] { trained = trainer.score({TrainSequence::next_token(some)})[0]; });
  const std::int64_t train_all = taken([&] { trained = trainer.score({TrainSequence::next_token(tokens)})[0]; });
  const auto serve = [&](const std::vector<std::int32_t>& prompt) {
    served = engine.generate({{.prompt = prompt, .sampling = {.max_tokens = 0}, .prompt_logprobs = true}})[0].prompt_logprobs;
  };
  const std::int64_t serve_some = taken([&] { serve(some); }), serve_all = taken([&] { serve(tokens); });
  const std::int64_t resident_after = resident();
  RecordProperty("training_bytes", std::to_string(train_all));
  RecordProperty("serving_bytes", std::to_string(serve_all));
  std::printf(
      "4096 logprobs of a vocabulary of 150000 took %.1f MB in training (1024: %.1f), %.1f MB in serving (1024: %.1f), of %.1f MB of logits; resident memory "
      "grew by %.1f MB\n",
      static_cast<double>(train_all) / 1e6, static_cast<double>(train_some) / 1e6, static_cast<double>(serve_all) / 1e6, static_cast<double>(serve_some) / 1e6,
      static_cast<double>(of_whole) / 1e6, static_cast<double>(resident_after - resident_before) / 1e6);
  constexpr std::int64_t kOfARow = 64 * kHidden * 4;  // far more than one row's activations, far less than its logits
  EXPECT_LE(train_all - train_some, 3072 * kOfARow);
  EXPECT_LE(serve_all - serve_some, 3072 * kOfARow);
  EXPECT_LT(train_all, of_whole / 8);
  EXPECT_LT(serve_all, of_whole / 8);
  EXPECT_LT(resident_after - resident_before, of_whole / 4);  // what no account knows of would show
  ASSERT_EQ(trained.size(), 4096u);
  ASSERT_EQ(served.size(), 4096u);
  for (std::size_t i = 0; i < trained.size(); ++i) {
    ASSERT_TRUE(std::isfinite(trained[i]) && trained[i] < 0) << i;
    ASSERT_EQ(std::bit_cast<std::uint32_t>(trained[i]), std::bit_cast<std::uint32_t>(served[i])) << i;
  }
}

class ExportTest : public testing::TestWithParam<std::string> {};

TEST_P(ExportTest, AnExportedFolderReloadsToTheBitsOfTheLiveModel) {
  const std::shared_ptr<const Model> model = make_model(tiny_config(GetParam()));
  const Manifest& manifest = model->manifest();
  Runtime runtime({.threads = 2}, model, profile_by_name("cpu-bf16w"));
  Trainer trainer(runtime, golden_weights(manifest, 2), {.train_indexer = true});
  RandomSequence draws(7, RandomStream::fuzz);
  // Two steps: masters that are no bf16 numbers, a correction bias that has moved.
  for (int step = 0; step < 2; ++step) {
    trainer.forward_backward({TrainSequence::next_token(random_tokens(draws, 30, 37)), TrainSequence::next_token(random_tokens(draws, 20, 37))}, {},
                             {.index_loss = true});
    trainer.optim_step({.learning_rate = 1e-3, .router_bias_rate = 1e-3});
  }
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / fmt::format("lockstep_export_{}", ::getpid());
  save_model_folder(folder, *model, trainer.state().masters(), {.dtype = DType::bf16, .overwrite = true});
  const LoadedModel loaded = load_model_folder(folder);
  std::filesystem::remove_all(folder);
  EXPECT_EQ(loaded.file_dtype, DType::bf16);

  const auto reloaded = make_weight_set(runtime.backend, loaded.model->manifest(), loaded.masters, runtime.profile, 0);
  Stream& stream = runtime.backend.stream();
  ASSERT_EQ(reloaded->parameters.size(), trainer.weights()->parameters.size());
  for (std::size_t i = 0; i < reloaded->parameters.size(); ++i) {
    const std::vector<float> live = stream.read(trainer.weights()->parameters[i].view()).get(), again = stream.read(reloaded->parameters[i].view()).get();
    ASSERT_EQ(live.size(), again.size());
    std::size_t different = 0;
    for (std::size_t k = 0; k < live.size(); ++k) different += std::bit_cast<std::uint32_t>(live[k]) != std::bit_cast<std::uint32_t>(again[k]);
    EXPECT_EQ(different, 0u) << manifest.parameters()[i].name;
  }
  Runtime second({.threads = 1}, loaded.model, runtime.profile);
  Trainer from_file(second, loaded.masters, {});
  const std::vector<TrainSequence> data = {TrainSequence::next_token(random_tokens(draws, 60, 37))};
  const std::vector<float> live = trainer.score(data)[0], again = from_file.score(data)[0];
  for (std::size_t i = 0; i < live.size(); ++i) EXPECT_EQ(std::bit_cast<std::uint32_t>(live[i]), std::bit_cast<std::uint32_t>(again[i])) << i;
  EXPECT_NE(weights_sha256(manifest, trainer.state().masters()), weights_sha256(manifest, loaded.masters)) << "the masters themselves are not bf16";
}

INSTANTIATE_TEST_SUITE_P(Families, ExportTest, testing::ValuesIn(all_families()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lockstep
