// Every config of shapes/configs: the tensors that its model declares have the names and shapes of transformers' own class, and the published
// number of parameters; nothing is allocated for them.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <charconv>
#include <chrono>
#include <set>

#include "base/error.h"
#include "checkpoint/json_file.h"
#include "model/archs/registry.h"
#include "planning/shape_catalog.h"
#include "planning/shape_configs.h"

namespace lockstep {
namespace {
using Tensors = std::map<std::string, std::vector<std::int64_t>>;

// "0-2,6" of a row's `layers`.
std::vector<int> numbers(std::string_view text) {
  std::vector<int> all;
  while (!text.empty()) {
    const std::string_view piece = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), piece.size() + 1));
    const std::size_t dash = piece.find('-');
    const int first = std::stoi(std::string(piece)), last = dash == piece.npos ? first : std::stoi(std::string(piece.substr(dash + 1)));
    for (int i = first; i <= last; ++i) all.push_back(i);
  }
  return all;
}

// Of tests/system/real_sizes.json, with the layers' numbers.
Tensors published_tensors(const Json& rows) {
  Tensors all;
  for (const auto& [name, row] : rows.items()) {
    const auto shape = row["shape"].get<std::vector<std::int64_t>>();
    const std::size_t star = name.find('*');
    if (star == name.npos) all[name] = shape;
    else
      for (const int layer : numbers(row["layers"].get<std::string>())) all[name.substr(0, star) + std::to_string(layer) + name.substr(star + 1)] = shape;
  }
  return all;
}

// Of the model, experts fused as files may hold them.
Tensors declared_tensors(const Manifest& manifest) {
  Tensors all;
  for (const FileTensor& file : manifest.files())
    if (file.fused < 0) all[file.name] = file.shape;
  for (const FusedTensor& fused : manifest.fused()) all[fused.name] = fused.shape;
  return all;
}

std::string first_difference(const Tensors& a, const Tensors& b) {
  for (const auto& [name, shape] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second != shape) return fmt::format("{} [{}]", name, fmt::join(shape, ", "));
  }
  return "";
}

double peak_megabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1e3;
}

TEST(RealSizes, AreThePublishedOnes) {
  const auto begin = std::chrono::steady_clock::now();
  const Json published = read_json_file(LOCKSTEP_SOURCE_DIR "/tests/system/real_sizes.json");
  // Section 18 of the project's reference on models: parameters, and those used a token; kimi-k2p5 is the text model alone.
  const std::map<std::string, std::pair<std::int64_t, std::int64_t>> counts = {
      {"glm-5p2", {743377000704, 40298928384}},     {"deepseek-v3", {671026404352, 36625603584}},     {"deepseek-v3p2", {671877929216, 37477128448}},
      {"kimi-k2", {1026408209408, 31687072768}},    {"kimi-k2p5", {1026408209408, 31687072768}},      {"llama-v3p3-70b", {70553706496, 69503033344}},
      {"llama-v3p1-8b", {8030261248, 7504924672}},  {"qwen3-8b", {8190735360, 7568405504}},           {"qwen3-32b", {32762123264, 31984210944}},
      {"qwen3-30b-a3b", {30532122624, 3041867776}}, {"qwen3-235b-a22b", {235093634560, 21568433664}}, {"minimax-m2p5", {228689748992, 10415940608}}};
  std::size_t counted = 0;
  EXPECT_EQ(published.size(), shape_configs().size()) << "tools/make_real_sizes.py writes real_sizes.json";
  for (const ShapeConfig& row : shape_configs()) {
    const std::string name(row.name);
    const auto model = make_model(Json::parse(row.json));
    const Manifest& manifest = model->manifest();
    const Json& expected = published.at(name);
    const Tensors theirs = published_tensors(expected["tensors"]), ours = declared_tensors(manifest);
    EXPECT_EQ(first_difference(theirs, ours), "") << name << " lacks it, or has it in another shape";
    EXPECT_EQ(first_difference(ours, theirs), "") << name << " alone has it";
    EXPECT_EQ(trained_size(manifest), expected["parameters"].get<std::int64_t>()) << name;
    EXPECT_EQ(model->facts().active_size, expected["active"].get<std::int64_t>()) << name;
    if (const auto known = counts.find(name); known != counts.end()) {
      EXPECT_EQ(std::pair(trained_size(manifest), model->facts().active_size), known->second) << name;
      ++counted;
    }
    // Files also hold each expert's three matrices alone, but for gpt_oss'.
    const std::int64_t fused = std::count_if(manifest.files().begin(), manifest.files().end(), [](const FileTensor& f) { return f.fused >= 0; });
    EXPECT_EQ(fused, model->family() == "gpt_oss" ? 0 : 3 * model->facts().sparse_layers * model->facts().expert_count) << name;
  }
  EXPECT_EQ(counted, counts.size());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_LT(seconds, 5);
#if !defined(__SANITIZE_ADDRESS__)  // which takes memory of its own
  EXPECT_LT(peak_megabytes(), 600);
#endif
}

// The rows of that section that no file of shapes/configs is: the nearest one with other dimensions.
TEST(RealSizes, OfRelativesAreThePublishedOnes) {
  const auto counted = [](const char* nearest, const Json& changes) {
    Json config = shape_config(nearest);
    for (const auto& [key, value] : changes.items()) config[key] = value;
    const auto model = make_model(config);
    return std::pair(trained_size(model->manifest()), model->facts().active_size);
  };
  const auto both = [](std::int64_t n) { return std::pair(n, n); };  // a tied table is the head, so all of it is used
  const auto of = [](Json sizes) {
    sizes["tie_word_embeddings"] = true;
    return sizes;
  };
  EXPECT_EQ(counted("llama-v3p1-8b", of({{"num_hidden_layers", 16}, {"hidden_size", 2048}, {"intermediate_size", 8192}, {"head_dim", 64}})), both(1235814400));
  EXPECT_EQ(counted("llama-v3p1-8b",
                    of({{"num_hidden_layers", 28}, {"hidden_size", 3072}, {"intermediate_size", 8192}, {"num_attention_heads", 24}, {"head_dim", 128}})),
            both(3212749824));
  EXPECT_EQ(counted("qwen3-8b", of({{"num_hidden_layers", 28}, {"hidden_size", 1024}, {"intermediate_size", 3072}, {"num_attention_heads", 16}})),
            both(596049920));
  EXPECT_EQ(counted("qwen3-8b", of({{"num_hidden_layers", 36}, {"hidden_size", 2560}, {"intermediate_size", 9728}, {"num_attention_heads", 32}})),
            both(4022468096));
  // GLM-5: an indexer on all 78 layers.
  EXPECT_EQ(counted("glm-5p2", {{"indexer_types", std::vector<std::string>(78, "full")}, {"index_topk_freq", nullptr}, {"index_skip_topk_offset", nullptr}}),
            std::pair(std::int64_t{743911199232}, std::int64_t{40833126912}));
}

TEST(RealSizes, EveryFamilyHasAConfig) {
  std::set<std::string> with;
  for (const ShapeConfig& row : shape_configs()) with.insert(Json::parse(row.json)["model_type"].get<std::string>());
  for (const Family& family : families()) EXPECT_TRUE(with.contains(family.model_type)) << family.model_type;
  EXPECT_EQ(shape_config("countdown-glm"), read_json_file(LOCKSTEP_SOURCE_DIR "/models/countdown-glm/config.json"));
  EXPECT_THROW(shape_config("deepseek-v9"), Error);
}

// The keys of a family are noted as it is made: those read, those of which certain values alone are allowed, and none of the objects inside.
TEST(RealSizes, KeysOfAFamily) {
  const std::map<std::string, ConfigKeyUse> keys = config_keys_of("qwen3_moe");
  for (const char* key : {"hidden_size", "mlp_only_layers", "num_local_experts", "rope_theta", "rope_scaling"}) EXPECT_TRUE(keys.at(key).read) << key;
  EXPECT_EQ(keys.at("n_shared_experts").allowed, std::vector<Json>{0});
  EXPECT_FALSE(keys.at("n_shared_experts").read);
  EXPECT_TRUE(keys.at("num_local_experts").allowed.empty());  // as num_experts, which differs by model
  for (const char* key : {"q_lora_rank", "rope_type", "quant_method", "vendor_key"}) EXPECT_FALSE(keys.contains(key)) << key;
  EXPECT_TRUE(config_keys_of("no such family").empty());
}

}  // namespace
}  // namespace lockstep
