#include "parity/parity.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/free_memory.h"
#include "checkpoint/model_reader.h"
#include "model/value_head.h"
#include "parallel/follow_calls.h"
#include "parallel/process_ranks.h"
#include "parity/parity_run.h"
#include "parity/parity_step_ways.h"

namespace lockstep {

namespace {
double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Comparisons at the places that `wanted` accepts: where both training and serving were compared, and of serving alone.
template <class F>
std::int64_t visits_of(const ParityScene& scene, const F& wanted) {
  std::int64_t visits = 0;
  for (const ParityPlace& place : parity_places(scene.options).all)
    if (const ParityVisit& v = scene.visit(place); wanted(place)) visits += v.training > 0 && v.serving > 0 ? v.training + v.serving : 0;
  return visits;
}
template <class F>
std::int64_t servings_of(const ParityScene& scene, const F& wanted) {
  std::int64_t visits = 0;
  for (const ParityPlace& place : parity_places(scene.options).all)
    if (wanted(place)) visits += scene.visit(place).serving;
  return visits;
}

// The counters in the order of the report, and which of them must not be 0 for this model.
std::vector<ParityCounter> engagement(const ParityScene& scene) {
  const Model& model = *scene.model.model;
  const bool long_enough = scene.longest >= 64;  // shorter contexts fill neither chunks nor pages
  const bool sparse = model.facts().most_keys() > 0 && model.facts().most_keys() < scene.longest;
  std::vector<ParityCounter> counters;
  const auto add = [&](const std::string& name, bool required) {
    const auto found = scene.counters.find(name);
    counters.push_back({name, found == scene.counters.end() ? 0 : found->second, required});
  };
  add("training_forwards", true);
  for (const char* name : {"chunks", "cache_hits", "preemptions", "evictions", "mixed_batches"}) add(name, long_enough);
  add("decode_tokens", true);
  // Sampled tokens that something was cut for, and how many of them have another number without their kept sets.
  for (const char* name : {"kept_set_tokens", "kept_set_control"}) add(name, model.facts().vocabulary >= 64);
  for (const char* prefix : {"", "layer_"}) {
    if (*prefix && scene.model.layer.empty()) continue;
    for (const char* name : {"drafts_right", "drafts_wrong", "rejection_right", "rejection_wrong", "rejection_other_tokens"})
      add(std::string(prefix) + name, long_enough);
  }
  for (const char* name : {"rank_forwards", "rank_servings"}) add(name, true);
  // Whatever the list of places says: these are what is promised.
  for (const int threads : {1, 2, 3, 4}) {
    const auto with_threads = [&](const ParityPlace& p) { return p.threads == threads; };
    counters.push_back({fmt::format("threads_{}_forwards", threads), visits_of(scene, with_threads), true});
  }
  counters.push_back({"default_servings", servings_of(scene, [](const ParityPlace& p) { return p.serve_defaults && p.ranks.size() == 1; }), true});
  for (const RankLayout& layout : parity_layouts(scene.options)) {
    const auto with_layout = [&](const ParityPlace& p) { return p.ranks == layout; };
    if (layout.size() > 1) counters.push_back({fmt::format("forwards {}", layout.text()), visits_of(scene, with_layout), true});
  }
  add("sparse_pairs_skipped", sparse);
  add("expert_rows", model.facts().experts_a_token > 0);
  add("deferred_comparisons", true);
  const bool device = parity_device(scene.options).has_value();
  if (device) add(scene.options.device + "_comparisons", true);
  for (InstructionSet isa : {InstructionSet::scalar, InstructionSet::avx2, InstructionSet::avx512})
    if (machine_has(isa))
      add(fmt::format("{}_comparisons", instruction_set_name(isa)), isa == InstructionSet::scalar || isa == widest_instruction_set() || long_enough);
  add("indexer_steps", model.has_indexer() && scene.trains());
  for (const char* name : {"cross_entropy_steps", "policy_steps", "value_steps", "pairs_steps"}) add(name, scene.trains());
  add("divergence_steps", compares_teachers(scene));
  for (const char* name : {"adapter_steps", "adapter_servings"}) add(name, scene.adapts());
  if (rank_layout(scene.options.ranks).cp > 1) {  // of a context that is too short for them nothing is in pieces
    add("pieces_steps", scene.trains() && scene.cut_length() > 0);
    add("adapter_pieces_steps", scene.adapts() && scene.cut_length() > 0);
  }
  for (const char* name : {"micro_batch_steps", "shuffled_steps", "checkpointed_segments", "deferred_steps", "rank_steps", "kept_rows", "live_in_steps"})
    add(name, scene.steps());
  add("kept_scores", scene.trains() && long_enough);
  if (device) add(scene.options.device + "_steps", scene.steps());
  add("rank_bytes", true);
  return counters;
}

std::string bits_text(std::uint32_t bits) { return fmt::format("{:08x}", bits); }
}  // namespace

std::vector<std::string> ParityReport::idle() const {
  std::vector<std::string> names;
  for (const ParityCounter& c : engagement)
    if (c.required && c.value == 0) names.push_back(c.name);
  for (const ParityVisit& v : visits)
    if (!v.visited()) names.push_back(v.place);
  return names;
}

ParityModel load_parity_model(const std::string& folder, double mla_norm_eps) {
  const std::shared_ptr<const ModelReader> reader = ModelReader::open(folder, {.mla_norm_eps = mla_norm_eps});
  refuse_value_head(*reader->model(), "there are no tokens to sample, and other models are compared with a value head too");
  return {reader->model(), reader->masters(), reader->has_mtp() ? reader->mtp_masters() : WeightImages()};
}

std::function<void(const std::string& call)> parity_follower(const ParityModel& model, ProcessMail& mail) {
  return [follower = std::make_shared<BenchFollower>(model, mail)](const std::string& call) { follower->perform(call); };
}

bool follow_parity(const ParityModel& model) {
  return follow_calls([&](ProcessMail& mail) { return parity_follower(model, mail); });
}

ParityReport run_parity(const ParityModel& model, const ParityOptions& options) {
  if (options.cases < 0 || options.cases > 10'000'000) fail(ErrorCode::invalid_argument, "fuzz is {}, allowed is 0 to 10000000", options.cases);
  if (model.model->facts().max_positions < 2)
    fail(ErrorCode::invalid_argument, "the model's context is {} position, parity needs at least 2", model.model->facts().max_positions);
  if (options.lead) ProcessRanks(rank_layout(options.ranks), *options.lead);  // refuses a layout with fewer ranks than processes, before all else
  ParityReport report;
  report.profile = options.profile;
  report.trains = profile_by_name(options.profile).trains_all_weights();
  report.seed = options.seed;
  const double begin = now();
  Progress::Options shown{.label = "parity", .unit = "tokens", .quiet = options.quiet};
  Progress unknown({.quiet = true});
  ParityScene scene{model,
                    options,
                    profile_by_name(options.profile),
                    report,
                    unknown,
                    std::min<std::int64_t>(200, model.model->facts().max_positions),
                    std::min<std::int64_t>(520, model.model->facts().max_positions),
                    {}};
  report.adapts = scene.adapts();
  check_memory(parity_memory(scene), fmt::format("comparing this model under the profile '{}'", options.profile));
  shown.total = parity_forward_comparisons(scene) + parity_step_comparisons(scene);
  Progress progress(shown);
  ParityScene running{model, options, scene.profile, report, progress, scene.longest, scene.longest_step, {}};
  run_parity_control(running);
  running.counters.clear();  // the control's runs are no evidence
  report.visits.clear();
  const double forward_begin = now();
  fuzz_forward(running);
  report.forward_seconds = now() - forward_begin;
  fuzz_steps(running);
  serve_adapter(running);
  progress.finish();
  report.engagement = engagement(running);
  report.seconds = now() - begin;
  return report;
}

nlohmann::ordered_json to_json(const ParityReport& report) {
  nlohmann::ordered_json json;
  json["passed"] = report.passed();
  json["cases"] = report.cases;
  json["tokens"] = report.tokens;
  json["mismatches"] = report.mismatches;
  json["first_mismatch"] = nullptr;
  if (report.first_mismatch) {
    const ParityMismatch& m = *report.first_mismatch;
    json["first_mismatch"] = {{"operation", m.operation},   {"layer", m.layer >= 0 ? nlohmann::ordered_json(m.layer) : nlohmann::ordered_json(nullptr)},
                              {"coordinate", m.coordinate}, {"expected_bits", bits_text(m.expected)},
                              {"bits", bits_text(m.got)},   {"run", m.run}};
  }
  for (const ParityCounter& c : report.engagement) json["engagement"][c.name] = c.value;
  json["idle"] = report.idle();
  const ParityControl& c = report.control;
  json["control"] = {{"detected", c.detected},
                     {"operation", c.operation},
                     {"layer", c.layer >= 0 ? nlohmann::ordered_json(c.layer) : nlohmann::ordered_json(nullptr)},
                     {"expected_operation", c.expected_operation},
                     {"different_bits", c.different},
                     {"step_detected", c.step_detected},
                     {"serving_detected", c.serving_detected},
                     {"over_processes", c.over_processes},
                     {"processes_detected", c.processes_detected},
                     {"profile", c.profile},
                     {"internal_model", c.internal_model}};
  json["comparisons"] = report.comparisons;
  json["steps"] = report.steps;
  for (const ParityVisit& v : report.visits)
    json["places"].push_back({{"place", v.place}, {"training", v.training}, {"serving", v.serving}, {"steps", v.steps}});
  json["miscounts"] = report.miscounts;
  json["profile"] = report.profile;
  json["seed"] = report.seed;
  json["tokens_per_second"] = report.tokens_per_second();
  json["seconds"] = report.seconds;
  return json;
}

std::string to_text(const ParityReport& report) {
  std::string text = fmt::format("{} sequences in {} comparisons, {} log-probabilities, {} optimiser steps: {} mismatches\n", report.cases, report.comparisons,
                                 report.tokens, report.steps, report.mismatches);
  text += fmt::format("profile {}, seed {}, {} tokens/s, {}\n", report.profile, report.seed, format_rate(report.tokens_per_second()),
                      format_duration(report.seconds));
  if (report.first_mismatch) {
    const ParityMismatch& m = *report.first_mismatch;
    text += fmt::format("first mismatch: {}{}, [{}]: expected bits {}, got {}\n  {}\n", m.operation, m.layer >= 0 ? fmt::format(" (layer {})", m.layer) : "",
                        fmt::join(m.coordinate, ", "), bits_text(m.expected), bits_text(m.got), m.run);
  }
  text += "engagement:\n";
  for (const ParityCounter& c : report.engagement)
    text += fmt::format("  {:<30}{:>14}{}\n", c.name, c.value, c.value > 0 ? "" : c.required ? "   DID NOT RUN" : "   (this model cannot)");
  text += "places (forwards of training, ways of serving, optimiser steps):\n";
  for (const ParityVisit& v : report.visits)
    text += fmt::format("  {:<64}{:>5}{:>5}{:>5}{}\n", v.place, v.training, v.serving, v.steps, v.visited() ? "" : "   PROMISED, AND NOT VISITED");
  for (const std::string& miscount : report.miscounts) text += fmt::format("other work than was asked for: {}\n", miscount);
  const ParityControl& c = report.control;
  text += fmt::format(
      "control (profile {}{}): {}\n", c.profile, c.internal_model ? ", on a small model of our own: no sum here is long enough" : "",
      c.detected && !c.serving_detected                         ? fmt::format("NOT DETECTED in serving, {}", c.serving_missed)
      : c.detected && c.over_processes && !c.processes_detected ? fmt::format("NOT DETECTED over processes, {}", c.processes_missed)
      : c.detected && !report.trains && !report.adapts
          ? fmt::format("detected at {}, {} log-probabilities and every way of serving differ; this profile is for serving alone, and no step was compared",
                        c.operation, c.different)
      : c.detected && c.step_detected ? fmt::format("detected at {}, {} log-probabilities, every way of serving and the step differ", c.operation, c.different)
      : c.detected                    ? std::string("NOT DETECTED in the step")
                                      : fmt::format("NOT DETECTED: found '{}', expected '{}'", c.operation, c.expected_operation));
  if (c.over_processes && c.processes_detected) text += fmt::format("the same over processes: detected at {}\n", c.operation);
  return text + (report.passed() ? "parity holds\n" : "PARITY FAILED\n");
}

}  // namespace lockstep
