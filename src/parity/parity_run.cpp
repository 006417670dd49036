#include "parity/parity_run.h"

#include <algorithm>

#include "base/choice.h"
#include "model/context_pieces.h"
#include "numerics/form.h"
#include "numerics/low_bit.h"
#include "parallel/mail.h"

namespace lockstep {

std::string ParityPlace::text() const {
  return fmt::format("{} {}, {} thread{}, pages of {}{}{}{}", backend_kind_name(backend), instruction_set_name(isa), threads, threads == 1 ? "" : "s",
                     page_size, ranks.size() > 1 ? ", ranks " + ranks.text() : "", over_processes ? ", over processes" : "",
                     serve_defaults ? ", as served by default" : "");
}

ParityPlace parity_reference() { return {BackendKind::cpu, widest_instruction_set(), 1, 16}; }

std::optional<BackendKind> parity_device(const ParityOptions& options) {
  for (const BackendKind kind : {BackendKind::emulated, BackendKind::cuda})
    if (options.device == backend_kind_name(kind)) return kind;
  if (options.device != "cpu") fail_choice("device", options.device, {"cpu", "emulated", "cuda"});
  return std::nullopt;
}

ParityPlaces parity_places(const ParityOptions& options) {
  const InstructionSet widest = widest_instruction_set();
  ParityPlaces places;
  std::vector<ParityPlace>& all = places.all;
  all = {
      {BackendKind::cpu, widest, 2, 16, {}, true}, {BackendKind::cpu, widest, 1, 4}, {BackendKind::cpu, widest, 4, 4}, {BackendKind::deferred, widest, 3, 1}};
  if (widest == InstructionSet::avx512) {
    all.push_back({BackendKind::cpu, InstructionSet::avx2, 2, 1});
    all.push_back({BackendKind::deferred, InstructionSet::avx2, 3, 16});
  }
  if (parity_device(options) == BackendKind::cuda)
    for (const std::int64_t page : {16, 4, 1}) all.push_back({BackendKind::cuda, widest, 1, page});
  // Half of the layouts with AVX2, also where there is AVX-512; the seed says which.
  const ParityPlace with_ranks[] = {{BackendKind::cpu, widest, 1, 4},
                                    {BackendKind::deferred, widest, 2, 16},
                                    {BackendKind::cpu, InstructionSet::avx2, 2, 1},
                                    {BackendKind::deferred, InstructionSet::avx2, 1, 4}};
  const std::vector<RankLayout> layouts = parity_layouts(options);
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    all.push_back(with_ranks[i % std::size(with_ranks)]);
    const std::size_t which = (i + options.seed % layouts.size()) % layouts.size();
    all.back().ranks = layouts[which];
    all.back().over_processes = options.lead && which == 0;
  }
  places.fast = all.size();
  all.push_back({BackendKind::cpu, InstructionSet::scalar, 2, 16});
  all.push_back({BackendKind::deferred, InstructionSet::scalar, 1, 1, layouts[options.seed % layouts.size()]});
  if (parity_device(options) == BackendKind::emulated) all.push_back({BackendKind::emulated, InstructionSet::scalar, 1, 4});
  return places;
}

std::vector<RankLayout> parity_layouts(const ParityOptions& options) {
  std::vector<RankLayout> layouts;
  if (!options.ranks.empty()) layouts.push_back(rank_layout(options.ranks));
  for (const char* text : {"tp=2", "dp=2", "tp=3", "ep=2", "pp=2", "tp=2,dp=2,ep=2", "dp=3", "tp=8", "ep=3"}) layouts.push_back(rank_layout(text));
  return layouts;
}

bool ParityScene::adapts() const { return profile.weight_bits == 0 || is_low_bit_format(profile.weight_bits); }

std::int64_t ParityScene::cut_length() const {
  const int cp = rank_layout(options.ranks).cp;
  const std::int64_t length = kGradientBlock * (2 * cp - 1) + 33;  // the last block is not full
  return is_cut(length, cp) && length + 1 <= model.model->facts().max_positions ? length : 0;
}

ParityVisit& ParityScene::visit(const ParityPlace& place) const {
  for (ParityVisit& v : report.visits)
    if (v.place == place.text()) return v;
  return report.visits.emplace_back(ParityVisit{.place = place.text()});
}

Tokens ParityScene::random_tokens(RandomSequence& draws, std::int64_t n) const {
  Tokens tokens(static_cast<std::size_t>(n));
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(draws.below(static_cast<std::uint32_t>(model.model->facts().vocabulary)));
  return tokens;
}

void ParityScene::mismatch(const std::function<ParityMismatch()>& describe) {
  if (report.mismatches++ == 0) report.first_mismatch = describe();
}

ProcessMail* ParityScene::engine_lead(const ParityPlace& place) const {
  ProcessMail* mail = lead(place);
  return mail && place.ranks.replica() >= mail->processes() ? mail : nullptr;
}

ParityBench::ParityBench(const ParityScene& scene, const ParityPlace& at, const Profile& profile, bool with_engine)
    : place(at), runtime({.kind = at.backend, .isa = at.isa, .threads = at.threads}, scene.model.model, profile, std::max(scene.longest, scene.longest_step)) {
  TrainerOptions options;
  options.page_size = at.page_size;
  options.ranks = at.ranks;
  trainer = std::make_unique<BenchTrainer>(runtime, scene.model, options, scene.lead(at));
  if (!with_engine) return;
  std::shared_ptr<const WeightSet> layer;
  if (!scene.model.layer.empty() && at.ranks.size() == 1)
    layer = make_weight_set(runtime.backend, scene.model.model->mtp()->manifest(), scene.model.layer, runtime.profile, 0);
  if (at.serve_defaults) {
    engine = std::make_unique<Engine>(runtime, trainer->weights(), EngineOptions{}, layer);
    return;
  }
  const std::int64_t positions = scene.longest + 48;
  // Small forwards where pages are small: prompts then meet others on the way.
  engine = std::make_unique<Engine>(runtime, trainer->weights(),
                                    EngineOptions{.page_size = at.page_size,
                                                  .cache_pages = (positions + at.page_size - 1) / at.page_size,
                                                  .max_batch_rows = at.page_size == 16  ? 512
                                                                    : at.page_size == 4 ? 96
                                                                                        : 40,
                                                  .prefill_chunk = 32,
                                                  .ranks = at.ranks,
                                                  .lead = scene.engine_lead(at)},
                                    layer);
}

std::optional<ParityMismatch> first_operation_mismatch(const Tokens& tokens, const ObservedRun& expected, const ObservedRun& got) {
  std::optional<ParityMismatch> found;
  int keep = OperationRecording::kNone;
  for (int pass = 0; pass < 2; ++pass) {
    OperationRecording a(tokens, nullptr, keep);
    expected(a);
    OperationRecording b(tokens, &a, keep);
    got(b);
    const auto& first = b.first_difference();
    if (!first) return found;
    const OperationRecording::RecordedOperation& operation = b.operations()[static_cast<std::size_t>(first->operation)];
    found = ParityMismatch{operation.text(), operation.layer, {first->position}, first->expected, first->got, {}};
    if (first->column >= 0) found->coordinate.push_back(first->column);
    keep = first->operation;
  }
  return found;
}

}  // namespace lockstep
