// The negative control: a forward with another leaf count must be detected, first at the operation that the manifest predicts.
#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "numerics/form.h"
#include "numerics/low_bit.h"
#include "parity/parity_run.h"

namespace lockstep {

namespace {
// Its hidden size, 256, is summed in 8 leaves, or in 2, of numbers and of groups of integers.
constexpr const char* kInternalConfig = R"({
  "model_type": "glm_moe_dsa", "vocab_size": 96, "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 2,
  "num_key_value_heads": 2, "max_position_embeddings": 256, "q_lora_rank": 24, "kv_lora_rank": 24, "qk_nope_head_dim": 8,
  "qk_rope_head_dim": 8, "v_head_dim": 12, "intermediate_size": 40, "moe_intermediate_size": 16, "n_routed_experts": 6,
  "num_experts_per_tok": 2, "n_shared_experts": 1, "norm_topk_prob": true, "routed_scaling_factor": 1.5, "rms_norm_eps": 1e-5,
  "index_n_heads": 4, "index_head_dim": 16, "index_topk": 8, "indexer_types": ["full", "shared", "full"],
  "mlp_layer_types": ["dense", "sparse", "sparse"], "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
  "hidden_act": "silu", "scoring_func": "sigmoid", "topk_method": "noaux_tc", "n_group": 1, "topk_group": 1})";

}  // namespace

ParityModel control_model(const Profile& profile) {
  Json config = Json::parse(kInternalConfig);
  if (profile.expanded_latents) {  // such a profile has no indexers: a family whose rows attend to all keys
    config["model_type"] = "deepseek_v3";
    for (const char* key : {"index_n_heads", "index_head_dim", "index_topk", "indexer_types"}) config.erase(key);
  }
  ParityModel model;
  model.model = make_model(config);
  model.masters = initial_weights(model.model->manifest(), 1, 0.08);
  model.kind = ParityModel::Kind::control;
  return model;
}

namespace {
constexpr std::string_view kTwin = "study-leaves of ";

// Parameters whose sum is cut into another number of leaves, from the manifest alone. The head stands behind the last operation.
std::set<std::string> affected_parameters(const Model& model, const Profile& profile, const Profile& other) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < model.manifest().parameters().size(); ++i) {
    const Parameter& p = model.manifest().parameters()[i];
    if (p.layout == ParameterLayout::packed && static_cast<ParameterId>(i) != model.facts().head && input_leaves(p, profile) != input_leaves(p, other))
      names.insert(p.name);
  }
  return names;
}

// The published profile and its twin with another leaf count.
std::pair<const Profile*, const Profile*> control_pair(const Profile& profile) {
  if (is_low_bit_format(profile.weight_bits) || profile.expanded_latents) {
    // A twin of the same form: no name of a profile is worth one that controls alone use.
    static std::map<std::string, Profile> twins;
    Profile& twin = twins[profile.name] = profile;
    twin.name = std::string(kTwin) + profile.name;
    twin.maximum_leaves = 2;
    twin.study = true;
    return {&profile, &twin};
  }
  if (profile.weight_bits) {
    const bool wide = profile.weight_bits == 8;
    return {&profile_by_name(wide ? "cpu-int8w" : "cpu-int4w"), &profile_by_name(wide ? "study-leaves-int8" : "study-leaves-int4")};
  }
  if (profile.bf16_weights) return {&profile_by_name("cpu-bf16w"), &profile_by_name("study-leaves")};
  return {&profile_by_name("cpu-f32"), &profile_by_name("study-leaves-f32")};
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](float x, float y) { return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y); });
}

// An engine under the changed profile: every way must differ from training under the right one, and the first operation that does is
// the manifest's. An engine under the right profile is the control of this control: it must not differ.
void run_serving_control(ParityScene& scene, const Profile& profile, const Profile& other, const Tokens& tokens, const std::vector<float>& want) {
  ParityControl& control = scene.report.control;
  ParityBench right(scene, parity_reference(), profile, true);
  std::optional<ParityBench> changed(std::in_place, scene, parity_reference(), other, true);
  const auto different = [&](const std::vector<float>& got) { return got.size() == want.size() && !same_bits(got, want); };
  control.serving_missed.clear();
  for (const ScoreKind kind : {ScoreKind::prefill, ScoreKind::chunked, ScoreKind::decode, ScoreKind::prefix, ScoreKind::preempted}) {
    const ScoreMode mode{kind, scene.options.seed + 1, 2};
    if (!different(engine_score(*changed->engine, tokens, mode)) || different(engine_score(*right.engine, tokens, mode)))
      control.serving_missed = std::string(score_kind_name(kind));
  }
  changed.reset();  // two benches at a time
  const auto found = first_operation_mismatch(
      tokens, [&](OperationObserver& o) { right.observed(o, [&] { right.trainer->score({TrainSequence::next_token(tokens)}); }); },
      [&](OperationObserver& o) {
        ParityBench fresh(scene, parity_reference(), other, true);  // no cached prefix: every row is seen
        fresh.observed(o, [&] { engine_score(*fresh.engine, tokens, {ScoreKind::chunked, scene.options.seed + 1, 0}); });
      });
  if (!found || found->operation != control.expected_operation)
    control.serving_missed = fmt::format("chunked: found '{}', expected '{}'", found ? found->operation : "", control.expected_operation);
  control.serving_detected = control.serving_missed.empty();
}

// On the ranks that processes share: under the right profile the bits of one rank, under the changed one others, first at the manifest's operation of
// those that the first rank sees.
void run_processes_control(ParityScene& scene, const Profile& profile, const Profile& other, const Tokens& tokens, const std::vector<float>& want) {
  ParityControl& control = scene.report.control;
  control.over_processes = true;
  ParityPlace place = parity_reference();
  place.ranks = rank_layout(scene.options.ranks);
  place.over_processes = true;
  std::vector<std::string> missed;
  const auto run = [&](const Profile& under) {
    return [&](OperationObserver& o) {
      ParityBench bench(scene, place, under, true);  // one at a time: the processes that follow have one
      const std::vector<float> trained = bench.observed(o, [&] { return bench.trainer->score({TrainSequence::next_token(tokens)})[0]; });
      const std::vector<float> served = engine_score(*bench.engine, tokens, {ScoreKind::chunked, scene.options.seed + 1, 2});
      const bool right = &under == &profile;
      if (same_bits(trained, want) != right) missed.push_back(fmt::format("training under {} on {}", under.name, place.text()));
      if (same_bits(served, want) != right) missed.push_back(fmt::format("serving under {} on {}", under.name, place.text()));
    };
  };
  const auto found = first_operation_mismatch(tokens, run(profile), run(other));
  if (!found || found->operation != control.expected_operation)
    missed.push_back(fmt::format("found '{}', expected '{}', on {}", found ? found->operation : "", control.expected_operation, place.text()));
  control.processes_missed = missed.empty() ? "" : missed[0];
  control.processes_detected = missed.empty();
}
}  // namespace

void run_parity_control(ParityScene& scene) {
  const auto [profile, other] = control_pair(scene.profile);
  ParityControl& control = scene.report.control;
  control.profile = other->name;
  if (affected_parameters(*scene.model.model, *profile, *other).empty()) {
    control.internal_model = true;
    const ParityModel small = control_model(*profile);
    ParityScene inner{small, scene.options, scene.profile, scene.report, scene.progress, 64, 64, {}};
    if (affected_parameters(*small.model, *profile, *other).empty()) fail(ErrorCode::internal, "the control's own model has no sum with another leaf count");
    return run_parity_control(inner);
  }
  const std::set<std::string> affected = affected_parameters(*scene.model.model, *profile, *other);
  std::optional<ParityBench> reference(std::in_place, scene, parity_reference(), *profile, false),
      changed(std::in_place, scene, parity_reference(), *other, false);
  RandomSequence draws = scene.draws(6'000'000'000);
  const Tokens tokens = scene.random_tokens(draws, std::min<std::int64_t>(scene.longest, 65));
  const std::vector<TrainSequence> data = {TrainSequence::next_token(tokens)};
  std::vector<float> want, got;
  const auto run_reference = [&](OperationObserver& o) { reference->observed(o, [&] { want = reference->trainer->score(data)[0]; }); };
  const auto run_changed = [&](OperationObserver& o) { changed->observed(o, [&] { got = changed->trainer->score(data)[0]; }); };
  // What the manifest expects: of the operations in the order of the forward, the first that uses an affected parameter.
  OperationRecording order(tokens);
  run_reference(order);
  for (const auto& operation : order.operations())
    if (control.expected_operation.empty() && affected.contains(operation.parameter)) control.expected_operation = operation.text();
  const auto found = first_operation_mismatch(tokens, run_reference, run_changed);
  // Sums of products of four-digit numbers are exact in any order while their exponents lie near, so where rows are rounded too the manifest cannot say
  // which sum is the first to change: it may be of any affected parameter, and serving and processes have to find the same one.
  if (found && (profile->weight_bits & kLowBitRows))
    for (const auto& operation : order.operations())
      if (operation.text() == found->operation && affected.contains(operation.parameter)) control.expected_operation = found->operation;
  for (std::size_t i = 0; i < want.size(); ++i) control.different += std::bit_cast<std::uint32_t>(want[i]) != std::bit_cast<std::uint32_t>(got[i]);
  if (found) {
    control.operation = found->operation;
    control.layer = found->layer;
    control.detected = control.different > 0 && control.operation == control.expected_operation;
  }
  reference.reset();
  changed.reset();
  run_serving_control(scene, *profile, *other, tokens, want);
  if (scene.options.lead) run_processes_control(scene, *profile, *other, tokens, want);
  if (scene.steps()) run_step_control(scene, *profile, *other);
}

const Profile& profile_of_bench(const std::string& name) {
  return name.starts_with(kTwin) ? *control_pair(profile_by_name(name.substr(kTwin.size()))).second : profile_by_name(name);
}

}  // namespace lockstep
