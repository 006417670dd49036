// Parity on a small model of every mechanism, and that it finds what is planted: another leaf count, another weight, a counter
// that stays 0.
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string>
#include <utility>

#include "engine/engine.h"
#include "numerics/low_bit.h"
#include "parity/engine_ways.h"
#include "parity/parity.h"
#include "parity/parity_recording.h"
#include "parity/parity_run.h"
#include "system/golden_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

ParityModel tiny_parity_model() {
  ParityModel model;
  model.model = make_model(tiny_config());
  model.masters = golden_weights(model.model->manifest(), 5);
  return model;
}

// A context short enough that a run costs little: of 40 positions blocks of 16 and the selection have their edges in it, of 72 blocks of 64 too and positions
// beyond the original context where RoPE is scaled.
ParityModel short_parity_model(const std::string& family = "glm_moe_dsa", int positions = 40) {
  Json config = tiny_config(family);
  config["max_position_embeddings"] = positions;
  ParityModel model;
  model.model = make_model(config);
  model.masters = golden_weights(model.model->manifest(), 5);
  return model;
}

// One run for the tests that look at a report.
const ParityReport& short_report() {
  static const ParityReport report = run_parity(short_parity_model(), {.cases = 0, .seed = 11});
  return report;
}

// Where steps were compared.
std::set<std::string> stepped(const ParityReport& report) {
  std::set<std::string> places;
  for (const ParityVisit& visit : report.visits)
    if (visit.steps > 0) places.insert(visit.place);
  return places;
}

// What these places are made of: instruction sets, threads, pages, layouts of ranks. Which of them come together is a machine's own.
std::set<std::string> parts_of(const std::set<std::string>& places) {
  std::set<std::string> parts;
  for (const std::string& place : places)
    for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 2) {
      end = place.find(", ", begin);
      parts.insert(place.substr(begin, end == std::string::npos ? end : end - begin));
    }
  return parts;
}

void expect_parity(const ParityReport& report) {
  EXPECT_TRUE(report.passed()) << to_text(report);
  EXPECT_EQ(report.mismatches, 0) << to_text(report);
  EXPECT_TRUE(report.idle().empty()) << to_text(report);
}

TEST(Parity, HoldsOnTheTinyModel) {
  const ParityReport report = run_parity(tiny_parity_model(), {.cases = 12, .seed = 1, .step_share = 3});  // all kinds of steps at all places: short_report()
  expect_parity(report);
  EXPECT_FALSE(report.control.internal_model);
  EXPECT_EQ(report.control.operation, "linear model.layers.0.self_attn.q_a_proj.weight");
  EXPECT_EQ(report.control.layer, 0);
  const auto json = to_json(report);
  for (const char* key : {"cases", "tokens", "mismatches", "first_mismatch", "engagement", "control", "tokens_per_second"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_TRUE(json["first_mismatch"].is_null());
  EXPECT_TRUE(json["control"]["detected"].get<bool>());
  EXPECT_GT(json["engagement"]["preemptions"].get<int>(), 0);
  EXPECT_TRUE(json["control"]["serving_detected"].get<bool>());
  EXPECT_TRUE(json["miscounts"].empty());
  for (const char* name : {"rejection_right", "rejection_wrong", "rejection_other_tokens"}) EXPECT_GT(json["engagement"][name].get<int>(), 20) << name;
}

// Every run visits every layout, one to four threads, and what `lockstep serve` runs by default, in training and in serving; the seed
// only says which layout meets which threads.
TEST(Parity, EveryPromisedPlaceIsVisited) {
  const ParityReport& report = short_report();
  expect_parity(report);
  const auto visited = [&](const std::string& part) {
    return std::any_of(report.visits.begin(), report.visits.end(),
                       [&](const ParityVisit& v) { return v.place.find(part) != std::string::npos && v.training > 0 && v.serving > 0; });
  };
  for (const char* part :
       {"tp=2,dp=1,ep=1", "tp=1,dp=2,ep=1", "tp=3,dp=1,ep=1", "tp=1,dp=1,ep=2", "tp=1,dp=1,ep=1,pp=2", "tp=2,dp=2,ep=2", "tp=1,dp=3,ep=1", "tp=8,dp=1,ep=1",
        "tp=1,dp=1,ep=3", "1 thread,", "2 threads", "3 threads", "4 threads", "2 threads, pages of 16, as served by default"})
    EXPECT_TRUE(visited(part)) << part << "\n" << to_text(report);
  for (std::size_t i = 0; i < report.visits.size(); ++i) {
    if (!report.visits[i].promises_forward) continue;
    ParityReport missed = report;
    missed.visits[i].serving = 0;
    EXPECT_FALSE(missed.passed()) << missed.visits[i].place;
    EXPECT_EQ(missed.idle(), std::vector<std::string>{missed.visits[i].place});
    EXPECT_NE(to_text(missed).find("PROMISED, AND NOT VISITED"), std::string::npos);
  }
  ParityReport blind = report;
  blind.control.serving_detected = false;
  EXPECT_FALSE(blind.passed());
  ParityReport miscounted = report;
  miscounted.miscounts.push_back("one");
  EXPECT_FALSE(miscounted.passed());
}

// The seeds of the tests of this file, 1, 4 and 11, bring every layout to AVX2; nine seeds in a row bring it to every kind of place.
TEST(Parity, EveryLayoutMeetsAvx2) {
  const auto met = [](std::initializer_list<std::uint64_t> seeds, BackendKind backend, InstructionSet isa) {
    std::set<std::string> layouts;
    for (const std::uint64_t seed : seeds)
      for (const ParityPlace& place : parity_places({.cases = 0, .seed = seed}).all)
        if (place.backend == backend && place.isa == isa && place.ranks.size() > 1) layouts.insert(place.ranks.text());
    return layouts;
  };
  std::set<std::string> all;
  for (const RankLayout& layout : parity_layouts({})) all.insert(layout.text());
  ASSERT_GE(all.size(), 9u);
  std::set<std::string> with_tests = met({1, 4, 11}, BackendKind::cpu, InstructionSet::avx2);
  with_tests.merge(met({1, 4, 11}, BackendKind::deferred, InstructionSet::avx2));
  EXPECT_EQ(with_tests, all);
  for (const BackendKind backend : {BackendKind::cpu, BackendKind::deferred})
    for (const InstructionSet isa : {InstructionSet::avx2, widest_instruction_set()}) EXPECT_EQ(met({0, 1, 2, 3, 4, 5, 6, 7, 8}, backend, isa), all);
}

class ParityFamily : public testing::TestWithParam<std::string> {};

TEST_P(ParityFamily, HoldsToo) {
  const ParityModel model = short_parity_model(GetParam(), 72);
  const bool bf16 = GetParam() != "qwen3";
  const ParityReport report = run_parity(model, {.cases = 2, .seed = 4, .profile = bf16 ? "cpu-bf16w" : "cpu-f32", .step_share = 3});
  expect_parity(report);
  EXPECT_FALSE(report.control.internal_model);
  const std::vector<FileTensor>& files = model.model->manifest().files();
  const bool latent = std::any_of(files.begin(), files.end(), [](const FileTensor& f) { return f.name == "model.layers.0.self_attn.q_a_proj.weight"; });
  EXPECT_EQ(report.control.operation, fmt::format("linear model.layers.0.self_attn.{}.weight", latent ? "q_a_proj" : "q_proj"));
  const ModelFacts& facts = model.model->facts();
  for (const ParityCounter& c : report.engagement) {
    const bool mechanism = c.name == "expert_rows"            ? facts.sparse_layers > 0
                           : c.name == "sparse_pairs_skipped" ? facts.most_keys() > 0
                                                              : model.model->has_indexer();
    if (!mechanism && (c.name == "expert_rows" || c.name == "indexer_steps" || c.name == "sparse_pairs_skipped")) {
      EXPECT_EQ(c.value, 0) << c.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ParityFamily, testing::ValuesIn(all_families({"glm_moe_dsa"})), [](const auto& info) { return info.param; });

// Guesses of a layer of multi-token prediction are compared on every place without ranks; without such a layer nothing is. The second is latent attention in
// its expanded form in fp32, too.
TEST(Parity, HoldsForGuessesOfAModelsOwnLayer) {
  for (const std::string profile : {"cpu-bf16w", "cpu-f32-expanded"}) {
    Json config = tiny_config(profile == "cpu-bf16w" ? "glm_moe_dsa" : "deepseek_v3");
    config["num_nextn_predict_layers"] = 1;
    config["max_position_embeddings"] = 72;
    ParityModel model;
    model.model = make_model(config);
    model.masters = golden_weights(model.model->manifest(), 5);
    model.layer = golden_weights(model.model->mtp()->manifest(), 6);
    const ParityReport report = run_parity(model, {.cases = 1, .seed = 4, .profile = profile, .step_share = 3});
    expect_parity(report);
    EXPECT_EQ(report.control.profile, profile == "cpu-bf16w" ? "study-leaves" : "study-leaves of " + profile);
    EXPECT_EQ(report.control.operation, fmt::format("linear model.layers.0.self_attn.{}.weight", profile == "cpu-bf16w" ? "q_a_proj" : "q_proj"));
    const auto json = to_json(report);
    for (const char* name : {"layer_drafts_right", "layer_drafts_wrong", "layer_rejection_right", "layer_rejection_wrong", "layer_rejection_other_tokens"})
      EXPECT_GT(json["engagement"][name].get<int>(), 20) << name;
  }
  EXPECT_FALSE(to_json(short_report())["engagement"].contains("layer_drafts_right"));
}

// In bf16; in fp32 in the test above.
TEST(Parity, HoldsForExpandedLatentAttention) {
  const std::string profile = "cpu-bf16w-expanded";
  const ParityReport report = run_parity(short_parity_model("deepseek_v3", 72), {.cases = 2, .seed = 4, .profile = profile, .step_share = 3});
  expect_parity(report);
  EXPECT_EQ(report.control.profile, "study-leaves of " + profile);
  EXPECT_EQ(report.control.operation, "linear model.layers.0.self_attn.q_proj.weight");
}

// Trained, published after each step and served in few bits, over ranks too.
TEST(Parity, HoldsForWeightsThatAreQuantisedAfterEachStep) {
  for (const auto& [family, profile] : std::vector<std::pair<std::string, std::string>>{{"glm_moe_dsa", "cpu-int4-qat"},
                                                                                        {"llama", "cpu-int4-qat"},
                                                                                        {"glm_moe_dsa", "cpu-mxfp8"},
                                                                                        {"glm_moe_dsa", "cpu-mxfp8-experts"},
                                                                                        {"llama", "cpu-fp8"}}) {
    SCOPED_TRACE(family + ", " + profile);
    const ParityReport report = run_parity(short_parity_model(family), {.cases = 1, .seed = 4, .profile = profile, .step_share = 3});
    expect_parity(report);
    EXPECT_TRUE(report.trains);
    EXPECT_EQ(parts_of(stepped(report)), parts_of(stepped(short_report()))) << "each of three kinds of steps takes a third of them";
    EXPECT_TRUE(report.control.detected && report.control.serving_detected);
    EXPECT_TRUE(report.control.step_detected);
    EXPECT_EQ(report.control.profile, "study-leaves of " + profile);
  }
}

// Every profile with weights in few bits: frozen ones, of all matrices or of experts alone, and those for serving alone. The control has another leaf
// count, as cpu-f32's: it is found at the first operation whose sum is long enough.
TEST(Parity, HoldsInFewBitsAndFindsEachControlAtItsOperation) {
  const ParityModel model = short_parity_model();
  int packed = 0;
  for (const Profile& profile : profiles()) {
    if (profile.study || profile.weight_bits == 0 || profile.trains_all_weights()) continue;
    SCOPED_TRACE(profile.name);
    ++packed;
    const ParityReport report = run_parity(model, {.cases = 0, .seed = 3, .profile = profile.name});
    expect_parity(report);
    EXPECT_TRUE(report.control.detected && report.control.serving_detected);
    EXPECT_FALSE(report.trains);
    // Adapters train over weights that are frozen in few bits: steps, over data-parallel ranks too, and every way of serving.
    EXPECT_EQ(report.adapts, is_low_bit_format(profile.weight_bits));
    EXPECT_EQ(report.control.step_detected, report.adapts);
    const auto counters = to_json(report)["engagement"];
    EXPECT_EQ(counters["cross_entropy_steps"].get<int>(), 0);
    EXPECT_EQ(counters["adapter_servings"].get<int>(), report.adapts ? 5 : 0);
    for (const char* name : {"adapter_steps", "rank_steps", "kept_rows", "live_in_steps"}) EXPECT_EQ(counters[name].get<int>() > 0, report.adapts) << name;
    if (report.adapts) {
      ParityReport missed = report;
      missed.control.step_detected = false;
      EXPECT_FALSE(missed.passed());
    }
    EXPECT_FALSE(report.control.internal_model);
    EXPECT_EQ(report.control.operation, "linear model.layers.0.self_attn.q_a_proj.weight");
    EXPECT_EQ(report.control.layer, 0);
    EXPECT_GT(report.control.different, 10);
    ParityReport blind = report;
    blind.control.detected = false;
    EXPECT_FALSE(blind.passed());
    EXPECT_NE(to_text(blind).find("NOT DETECTED"), std::string::npos);
  }
  EXPECT_EQ(packed, 2 + 2 * 4);
}

TEST(Parity, HoldsInFp32OnAGoldenWhoseControlNeedsAnotherModel) {
  Json config = golden_config("glm_moe_dsa/sharing");
  config["max_position_embeddings"] = 72;
  config["num_hidden_layers"] = 7;  // three with indexers of their own, three that share the last of these, and one with its own
  for (const char* of_layers : {"indexer_types", "layer_types", "mlp_layer_types"}) config[of_layers].get_ref<Json::array_t&>().resize(7);
  ParityModel model;
  model.model = make_model(config);
  model.masters = golden_weights(model.model->manifest(), 1);
  const ParityReport report = run_parity(model, {.cases = 1, .seed = 2, .profile = "cpu-f32", .step_share = 3});
  expect_parity(report);
  EXPECT_TRUE(report.control.internal_model);
  EXPECT_EQ(report.control.profile, "study-leaves-f32");
}

TEST(Parity, HoldsExpandedOnAGoldenWhoseControlNeedsAnotherModel) {
  Json config = golden_config("deepseek_v3/groups");
  config["max_position_embeddings"] = 72;
  ParityModel model;
  model.model = make_model(config);
  model.masters = golden_weights(model.model->manifest(), 1);
  const ParityReport report = run_parity(model, {.cases = 1, .seed = 2, .profile = "cpu-f32-expanded", .step_share = 3});
  expect_parity(report);
  EXPECT_TRUE(report.control.internal_model);
}

TEST(Parity, ACounterThatStaysZeroFails) {
  ParityReport report = short_report();
  EXPECT_TRUE(report.passed()) << to_text(report);
  for (ParityCounter& c : report.engagement)
    if (c.name == "expert_rows") c.value = 0;
  EXPECT_FALSE(report.passed());
  EXPECT_EQ(report.idle(), std::vector<std::string>{"expert_rows"});
  EXPECT_NE(to_text(report).find("DID NOT RUN"), std::string::npos);
}

// The weights of one operation of layer 1 are changed: serving with neighbours, in chunks, with preemption must name that operation.
TEST(Parity, ARecordingNamesTheOperationThatDiffers) {
  const ParityModel model = tiny_parity_model();
  const Manifest& manifest = model.model->manifest();
  Runtime runtime({.threads = 1}, model.model, profile_by_name("cpu-f32"));
  Trainer trainer(runtime, model.masters, {});
  RandomSequence draws(8, RandomStream::fuzz);
  const std::vector<std::int32_t> tokens = random_tokens(draws, 40, 37);
  OperationRecording training(tokens);
  runtime.observer = &training;
  trainer.score({TrainSequence::next_token(tokens)});
  runtime.observer = nullptr;
  EXPECT_EQ(training.rows(), 39);

  for (const std::string name :
       {"model.layers.1.self_attn.o_proj.weight", "model.layers.1.mlp.experts.up", "model.layers.1.self_attn.kv_b_proj.weight (keys)"}) {
    WeightImages changed = model.masters;
    for (std::size_t i = 0; i < changed.size(); ++i)
      if (manifest.parameters()[i].name == name)
        for (float& w : changed[i]) w *= 1.0078125f;
    const auto weights = make_weight_set(runtime.backend, manifest, changed, runtime.profile, 1);
    for (ScoreKind kind : {ScoreKind::prefill, ScoreKind::chunked, ScoreKind::decode, ScoreKind::prefix, ScoreKind::preempted}) {
      Engine engine(runtime, weights, {.page_size = 4, .cache_pages = 24});
      OperationRecording serving(tokens, &training);
      runtime.observer = &serving;
      engine_score(engine, tokens, {.kind = kind, .seed = 5, .neighbours = 3});
      runtime.observer = nullptr;
      EXPECT_GE(serving.rows(), 40);
      ASSERT_TRUE(serving.first_difference()) << name << ", " << score_kind_name(kind);
      const auto& operation = serving.operations()[static_cast<std::size_t>(serving.first_difference()->operation)];
      EXPECT_EQ(operation.parameter, name) << score_kind_name(kind);
      EXPECT_EQ(operation.layer, 1);
    }
  }
  // Unchanged weights: no operation differs, whatever the way.
  for (ScoreKind kind : {ScoreKind::prefill, ScoreKind::chunked, ScoreKind::decode, ScoreKind::prefix, ScoreKind::preempted}) {
    Engine engine(runtime, trainer.weights(), {.page_size = 4, .cache_pages = 24});
    OperationRecording serving(tokens, &training);
    runtime.observer = &serving;
    engine_score(engine, tokens, {.kind = kind, .seed = 6, .neighbours = 3});
    runtime.observer = nullptr;
    EXPECT_FALSE(serving.first_difference()) << score_kind_name(kind) << ": "
                                             << serving.operations()[static_cast<std::size_t>(serving.first_difference()->operation)].text();
  }
}

}  // namespace
}  // namespace lockstep
