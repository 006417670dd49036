#include "parity/parity_case.h"

#include <algorithm>

#include "base/choice.h"
#include "base/error.h"
#include "parity/parity_case_bench.h"

namespace lockstep {

namespace {
// The run's own configuration; the backend by its name.
ParityPlace place_of_run(const DifferenceCase& one) {
  for (const BackendKind kind : {BackendKind::cpu, BackendKind::deferred, BackendKind::emulated, BackendKind::cuda})
    if (backend_kind_name(kind) == one.backend)
      return {.backend = kind, .isa = instruction_set_by_name(one.isa), .threads = static_cast<int>(one.threads), .ranks = rank_layout(one.ranks)};
  fail_choice("the case's backend", one.backend.substr(0, 60), {"cpu", "deferred", "emulated", "cuda"});
}

// After it the reference, and what parity visits without ranks.
std::vector<ParityPlace> places_of_case(const DifferenceCase& one) {
  std::vector<ParityPlace> places{place_of_run(one)};
  const auto add = [&](ParityPlace place) {
    place.serve_defaults = false;
    const auto same = [&](const ParityPlace& other) { return other.text() == place.text(); };
    if (place.ranks.size() == 1 && std::none_of(places.begin(), places.end(), same)) places.push_back(place);
  };
  add(parity_reference());
  for (const ParityPlace& place : parity_places({}).all) add(place);
  return places;
}

// Computes the ways of a case, one configuration after another, and fills the report.
class CaseRun {
 public:
  CaseRun(const LoadedCase& loaded, const CaseOptions& options, CaseReport& report)
      : loaded_(loaded), options_(options), report_(report), progress_({.label = "parity", .unit = "tokens", .quiet = options.quiet}) {}

  void visit(const ParityPlace& place) {
    CaseBench bench(loaded_, place);
    const std::string where = place.text();
    // Before anything is kept: these are computed.
    add("training", where, false, [&] { return bench.trained(); });
    if (loaded_.steps()) add("training with a gradient", where, false, [&] { return bench.with_a_gradient(); });
    add("sampling, decoded", where, true, [&] { return bench.sampled(); });
    add("sampling, prefilled", where, true, [&] { return bench.prefilled(); });
    if (!bench.keeps_forwards() || !loaded_.steps()) return;
    const std::int64_t before = bench.rows_read();
    add("training over kept forwards", where, false, [&] { return bench.with_a_gradient(); });
    if (bench.rows_read() == before) report_.notes.push_back(fmt::format("on {} sampling kept no row that training could read", where));
  }

 private:
  template <class F>
  void add(const char* name, const std::string& where, bool samples, const F& compute) {
    options_.stop.throw_if_stopped();
    const CaseNumbers numbers = with_context(fmt::format("repeating the case: {} on {}", name, where), compute);
    const DifferenceCase& one = loaded_.one;
    report_.ways.push_back({.way = name,
                            .place = where,
                            .samples = samples,
                            .from_sampler = compare_bits(one, one.sampler_bits, numbers.bits),
                            .from_trainer = compare_bits(one, one.trainer_bits, numbers.bits),
                            .other_kept_sets = numbers.other_kept_sets});
    if (first_.empty()) first_ = numbers.bits;
    if (const CaseCount other = compare_bits(one, first_, numbers.bits); other.first && !report_.finding)
      report_.finding = CaseFinding{*other.first, 0, report_.ways.size() - 1};
    progress_.advance(1, static_cast<double>(numbers.bits.size()));
  }

  const LoadedCase& loaded_;
  const CaseOptions& options_;
  CaseReport& report_;
  Progress progress_;
  std::vector<std::uint32_t> first_;  // the bits of the first way
};
}  // namespace

CaseCount compare_bits(const DifferenceCase& one, const std::vector<std::uint32_t>& expected, const std::vector<std::uint32_t>& got) {
  CaseCount count;
  for (std::size_t i = 0; i < one.positions.size(); ++i) {
    if (expected.at(i) == got.at(i)) continue;
    ++count.different;
    if (!count.first) count.first = CasePoint{one.positions[i], one.tokens[static_cast<std::size_t>(one.positions[i])], expected[i], got[i]};
  }
  return count;
}

CaseReport repeat_case(const std::filesystem::path& file, const CaseOptions& options) {
  const LoadedCase loaded = load_case(file);
  const std::vector<ParityPlace> places = places_of_case(loaded.one);
  CaseReport report;
  report.file = file.string();
  report.one = loaded.one;
  report.recorded = compare_bits(loaded.one, loaded.one.sampler_bits, loaded.one.trainer_bits);
  CaseRun run(loaded, options, report);
  for (std::size_t i = 0; i < places.size(); ++i) {
    try {
      run.visit(places[i]);
    } catch (const Error& e) {
      if (i > 0 || e.code() != ErrorCode::unsupported) throw;  // the run may have had another machine
      report.notes.push_back(fmt::format("the run's own configuration ({}) could not be tried: {}", places[i].text(), e.what()));
    }
  }
  return report;
}

}  // namespace lockstep
