// Every family against transformers in float64 (tests/golden, made by tools/make_goldens.py): logits within 1e-5 and gradients within
// 1e-4 of the largest value of each tensor, in cpu-f32 and, where a family has latent attention over all keys, cpu-f32-expanded.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/comparison_test_tools.h"
#include "kernels/launch.h"
#include "system/golden_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

class GoldenTest : public testing::TestWithParam<std::string> {};

void expect_golden_logits(const Golden& golden, const std::string& profile) {
  Runtime runtime({.kind = BackendKind::cpu, .threads = 2}, golden.model, profile_by_name(profile));
  const auto weights = make_weight_set(runtime.backend, golden.model->manifest(), golden.weights, runtime.profile, 0);
  KvCache cache(runtime.backend, golden.model->cache_shapes(runtime.profile), runtime.profile, 64, 16);
  SequenceSlice slice{golden.tokens, 0, {}};
  for (std::int32_t page = 0; page * 16 < static_cast<std::int32_t>(golden.tokens.size()); ++page) slice.pages.push_back(63 - page);
  const Batch batch(runtime.backend, {slice}, 16, false);
  Context ctx = runtime.context(*weights, cache, batch);
  const Tensor hidden = golden.model->forward(ctx);
  std::vector<std::int32_t> rows;
  for (std::size_t i = 0; i < golden.tokens.size(); ++i) rows.push_back(static_cast<std::int32_t>(i));
  const Buffer index = runtime.backend.device().upload(rows, batch.count(), 1, MemoryCategory::activations);
  const Buffer logits = ctx.allocate(DType::f32, batch.count(), golden.model->facts().vocabulary);
  runtime.backend.launch(&KernelTable::head_logits, HeadLogits{logits.view(), hidden.view(), index.view(), ctx.packed(golden.model->facts().head)});
  EXPECT_LE(relative_error(runtime.backend.stream().read(logits.view()).get(), golden.tensors.at("logits")), 1e-5) << profile;
}

TEST_P(GoldenTest, LogitsAgreeWithTransformers) { expect_golden_logits(load_golden(GetParam()), "cpu-f32"); }

// The gradients of the sum of the data's losses, and their hash.
std::uint64_t expect_golden_gradients(const Golden& golden, const std::vector<TrainSequence>& data, const TrainerOptions& options,
                                      const std::string& profile = "cpu-f32") {
  Runtime runtime({.kind = BackendKind::cpu, .threads = 2}, golden.model, profile_by_name(profile));
  Trainer trainer(runtime, golden.weights, options);
  LossOptions sum;
  sum.normaliser = 1;
  trainer.forward_backward(data, sum);
  const WeightImages gradients = trainer.gradient_images();
  int compared = 0;
  for (const FileTensor& file : golden.model->manifest().files()) {
    std::vector<float> values(static_cast<std::size_t>(file.size()));
    golden.model->manifest().gather(file, gradients, values.data());
    const auto expected = golden.tensors.find("grad." + file.name);
    if (expected == golden.tensors.end()) {
      // The indexer and the correction bias get no gradient from the language-model loss.
      EXPECT_TRUE(file.name.find("indexer") != std::string::npos || file.fp32) << file.name;
      for (const float v : values) EXPECT_EQ(v, 0.0f) << file.name;
      continue;
    }
    ++compared;
    bool any = false;
    for (const float v : expected->second) any |= v != 0.0f;
    if (any) EXPECT_LE(relative_error(values, expected->second), 1e-4) << file.name;
    else
      for (const float v : values) EXPECT_EQ(v, 0.0f) << file.name;
  }
  EXPECT_GE(compared, 12);
  return images_hash(golden.model->manifest(), gradients);
}

TEST_P(GoldenTest, GradientsAgreeWithTransformers) {
  const Golden golden = load_golden(GetParam());
  expect_golden_gradients(golden, {TrainSequence::next_token(golden.tokens)}, {});
}

// The golden's targets dealt to sequences that declare the first third of its tokens as their shared prefix, and one without that scores
// the prefix: their losses, and so their gradients, are the golden's in sum. The bits are a golden of their own.
TEST_P(GoldenTest, GradientsThroughADeclaredPrefixAgreeWithTransformers) {
  const Golden golden = load_golden(GetParam());
  const TrainSequence whole = TrainSequence::next_token(golden.tokens);
  const auto prefix = static_cast<std::int64_t>(whole.tokens.size() / 3);
  std::vector<TrainSequence> data(4, whole);
  for (std::size_t i = 0; i < whole.tokens.size(); ++i)
    for (std::size_t s = 0; s < data.size(); ++s)
      if (s != (static_cast<std::int64_t>(i) < prefix ? 3 : i % 3)) data[s].targets[i] = -1;
  for (std::size_t s = 0; s < 3; ++s) data[s].prefix_group = 0, data[s].shared_prefix = prefix;
  const std::uint64_t hash = expect_golden_gradients(golden, data, {.declared_prefixes = true});
  const std::map<std::string, std::uint64_t> pinned = {{"glm_moe_dsa/sharing", 0xe1e02a53136ee9c5},
                                                       {"glm_moe_dsa/wide", 0xff2fb59ee1b4ac11},
                                                       {"glm_moe_dsa/dense-range", 0x1856b828713abce0},
                                                       {"llama/scaled", 0x9fdda42653dc89d9},
                                                       {"llama/wide", 0x653fc7a0cf4223af},
                                                       {"qwen3/yarn", 0x5bc3fb2364467693},
                                                       {"qwen3/tied", 0x3c5c9d0b8bffc1d0},
                                                       {"deepseek_v3/groups", 0x6b1c09116a382158},
                                                       {"deepseek_v3/halves", 0x4a0f472826d00a63},
                                                       {"deepseek_v32/indexed", 0xf32a3e54a01b2c20},
                                                       {"kimi_k2/small", 0xae0e3ebf22cff0ec},
                                                       {"gpt_oss/wide", 0x9636631dd58ec6c8},
                                                       {"gpt_oss/window", 0x9434970b984a8934},
                                                       {"minimax_m2/norms", 0x519c064ffcdfa10a},
                                                       {"minimax_m2/wide", 0x19f36b80b2f00afa},
                                                       {"mistral/whole", 0x0809ae09d94372f9},
                                                       {"mistral/wide", 0x77a5af3b01e8a6a4},
                                                       {"mistral/window", 0x281f1830aa6282f4},
                                                       {"qwen2/biased", 0x0d5d7b95eaedff05},
                                                       {"qwen2/wide", 0x7f61414c8d7f90f0},
                                                       {"qwen3_moe/between", 0xe532c08fe06bb4f1},
                                                       {"qwen3_moe/every-second", 0x3ea120dd8c944902}};
  const auto mine = pinned.find(GetParam());
  EXPECT_EQ(fmt::format("{:016x}", hash), mine == pinned.end() ? "none is pinned" : fmt::format("{:016x}", mine->second));
}

// Expanded latent attention: the same numbers by other sums, in cached entries of the size that the heads' keys and values have.
TEST_P(GoldenTest, ExpandedLatentAttentionAgreesWithTransformersToo) {
  const Golden golden = load_golden(GetParam());
  const Profile& expanded = profile_by_name("cpu-f32-expanded");
  const Json& config = golden.model->config();
  const bool dense = config.contains("kv_lora_rank") && golden.model->facts().select_top_k == 0;
  EXPECT_EQ(golden.model->profile_refusal(expanded).empty(), dense) << golden.model->profile_refusal(expanded);
  if (!dense) {
    EXPECT_THROW(Runtime({.threads = 1}, golden.model, expanded), Error);
    return;
  }
  const auto key = [&](const char* of) { return config.at(of).get<std::int64_t>(); };
  for (const CacheShape& shape : golden.model->cache_shapes(expanded))
    EXPECT_EQ(shape.entry, key("num_attention_heads") * (key("qk_nope_head_dim") + key("qk_rope_head_dim") + key("v_head_dim")));
  expect_golden_logits(golden, expanded.name);
  const std::vector<TrainSequence> data = {TrainSequence::next_token(golden.tokens)};
  EXPECT_NE(expect_golden_gradients(golden, data, {}, expanded.name), expect_golden_gradients(golden, data, {})) << "the sums are others";
}

TEST(Goldens, EveryFamilyHasSome) {
  for (const std::string& family : all_families({kToyFamily})) {
    const std::vector<std::string> names = all_goldens();
    EXPECT_TRUE(std::any_of(names.begin(), names.end(), [&](const std::string& name) { return name.starts_with(family + "/"); })) << family;
  }
}

// All together at most 6 MB; of one, at most 120 KB, but for those of the first three families, which are older than that bound.
TEST(Goldens, AreSmall) {
  std::uintmax_t all = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(golden_folder("")))
    if (entry.is_regular_file()) all += entry.file_size();
  EXPECT_LE(all, 6'000'000u);
  EXPECT_GT(all, 1'000'000u);
  for (const std::string& name : all_goldens()) {
    if (name.starts_with("glm_moe_dsa/") || name.starts_with("llama/") || name.starts_with("qwen3/")) continue;
    EXPECT_LE(std::filesystem::file_size(golden_folder(name) / "golden.safetensors"), 120u << 10) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenTest, testing::ValuesIn(all_goldens()), [](const auto& info) {
  std::string name = info.param;
  for (char& c : name)
    if (c == '-' || c == '/') c = '_';
  return name;
});

}  // namespace
}  // namespace lockstep
