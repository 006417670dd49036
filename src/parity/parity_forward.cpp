// Compares log-probabilities of the same tokens over every way of computing them, among random batch neighbours, in every configuration.
#include <algorithm>
#include <bit>

#include "base/error.h"
#include "parity/parity_run.h"

namespace lockstep {

namespace {
// Training, then the engine's ways in the order of ScoreKind.
constexpr int kWays = 6;
constexpr std::size_t kScalarEvery = 7;  // one comparison of this many is made at a scalar place

std::string way_name(int way) { return way == 0 ? "training" : std::string(score_kind_name(static_cast<ScoreKind>(way - 1))); }

// Lengths at which blocks, pages and the selection begin and end.
std::vector<std::int64_t> edge_lengths(const ParityScene& scene) {
  std::vector<std::int64_t> lengths = {15, 16, 17, 63, 64, 65, scene.longest};
  const std::int64_t k = scene.model.model->facts().most_keys();
  for (std::int64_t n : {k, k + 1, k + 2}) lengths.push_back(n);
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  std::erase_if(lengths, [&](std::int64_t n) { return n < 2 || n > scene.longest; });
  return lengths;
}

struct Case {
  Tokens tokens;
  std::vector<float> logprobs;  // of the reference: training, alone
};

std::vector<Case> make_cases(const ParityScene& scene) {
  std::vector<Case> cases;
  for (std::int64_t n : edge_lengths(scene)) {
    RandomSequence draws = scene.draws(1000 + cases.size());
    cases.push_back({scene.random_tokens(draws, n), {}});
  }
  for (std::int64_t i = 0; i < scene.options.cases; ++i) {
    RandomSequence draws = scene.draws(1'000'000 + static_cast<std::uint64_t>(i));
    cases.push_back({scene.random_tokens(draws, 2 + draws.below(static_cast<std::uint32_t>(scene.longest - 1))), {}});
  }
  return cases;
}

struct Comparison {
  std::size_t sequence, place;
  int way;
  std::uint64_t item;  // of its draws
};

// Every sequence in every way, dealt to the places in turn; then what a place has not had of training or of serving.
std::vector<Comparison> comparisons_of(const ParityScene& scene, std::size_t sequences, const ParityPlaces& places) {
  const std::size_t scalar = places.all.size() - places.fast;
  std::vector<Comparison> list;
  std::vector<bool> trains(places.all.size()), serves(places.all.size());
  const auto add = [&](std::size_t sequence, int way, std::size_t place) {
    list.push_back({sequence, place, way, 2'000'000'000 + list.size()});
    (way == 0 ? trains : serves)[place] = true;
  };
  for (std::size_t s = 0; s < sequences; ++s)
    for (int way = 0; way < kWays; ++way) {
      const std::size_t at = list.size(), turn = at / kScalarEvery;
      add(s, way, at % kScalarEvery == kScalarEvery - 1 ? places.fast + turn % scalar : (s + static_cast<std::size_t>(way)) % places.fast);
    }
  for (std::size_t p = 0; p < places.all.size(); ++p) {
    if (!trains[p]) add(p % sequences, 0, p);
    if (!serves[p]) add(p % sequences, 1 + static_cast<int>((p + scene.options.seed) % (kWays - 1)), p);
  }
  return list;
}

std::vector<float> run_way(const ParityScene& scene, ParityBench& bench, const Tokens& tokens, int way, std::uint64_t item) {
  RandomSequence draws = scene.draws(item);
  if (way > 0) return engine_score(*bench.engine, tokens, {static_cast<ScoreKind>(way - 1), draws.next(), static_cast<std::int32_t>(draws.below(5))});
  std::vector<TrainSequence> data;
  for (std::uint32_t others = draws.below(4); others > 0; --others)
    data.push_back(
        TrainSequence::next_token(scene.random_tokens(draws, 2 + draws.below(static_cast<std::uint32_t>(std::min<std::int64_t>(scene.longest - 1, 40))))));
  const std::size_t at = draws.below(static_cast<std::uint32_t>(data.size() + 1));
  data.insert(data.begin() + static_cast<std::ptrdiff_t>(at), TrainSequence::next_token(tokens));
  return bench.trainer->score(data)[at];
}

void compare(ParityScene& scene, ParityBench& reference, ParityBench& bench, const Case& c, int way, std::uint64_t item) {
  const std::vector<float> got = run_way(scene, bench, c.tokens, way, item);
  std::size_t first = c.logprobs.size();
  for (std::size_t i = c.logprobs.size(); i-- > 0;)
    if (got.size() != c.logprobs.size() || std::bit_cast<std::uint32_t>(got[i]) != std::bit_cast<std::uint32_t>(c.logprobs[i])) first = i;
  if (first < c.logprobs.size())
    scene.mismatch([&] {
      const auto alone = [&](OperationObserver& o) { reference.observed(o, [&] { reference.trainer->score({TrainSequence::next_token(c.tokens)}); }); };
      const auto again = [&](ParityBench& b, OperationObserver& o) { b.observed(o, [&] { run_way(scene, b, c.tokens, way, item); }); };
      // On a new engine everything can be seen; where it needs what the old one holds in its cache, what can be seen there.
      std::optional<ParityMismatch> found;
      const bool whole = bench.place.ranks.size() == 1;  // an observer sees one rank's operations
      if (whole)
        found = first_operation_mismatch(c.tokens, alone, [&](OperationObserver& o) {
          ParityBench fresh(scene, bench.place, scene.profile, true);
          again(fresh, o);
        });
      if (!found && whole) found = first_operation_mismatch(c.tokens, alone, [&](OperationObserver& o) { again(bench, o); });
      if (!found)
        found = ParityMismatch{"log-probability",
                               -1,
                               {static_cast<std::int64_t>(first)},
                               std::bit_cast<std::uint32_t>(c.logprobs[first]),
                               first < got.size() ? std::bit_cast<std::uint32_t>(got[first]) : 0,
                               {}};
      found->run =
          fmt::format("{} of {} tokens on {} against training alone on {}", way_name(way), c.tokens.size(), bench.place.text(), reference.place.text());
      return *found;
    });
  const auto tokens = static_cast<std::int64_t>(got.size());
  ++scene.report.comparisons;
  scene.report.tokens += tokens;
  ++scene.counters[fmt::format("{}_comparisons", instruction_set_name(bench.place.isa))];
  ParityVisit& visit = scene.visit(bench.place);
  ++(way == 0 ? visit.training : visit.serving);
  if (way == 0) ++scene.counters["training_forwards"];
  if (bench.place.ranks.size() > 1) ++scene.counters[way == 0 ? "rank_forwards" : bench.place.ranks.replica() > 1 ? "rank_servings" : "plain_servings"];
  if (bench.place.backend != BackendKind::cpu) ++scene.counters[fmt::format("{}_comparisons", backend_kind_name(bench.place.backend))];
  scene.progress.advance(1, static_cast<double>(tokens));
}
}  // namespace

std::int64_t parity_forward_comparisons(const ParityScene& scene) {
  const std::size_t sequences = edge_lengths(scene).size() + static_cast<std::size_t>(scene.options.cases);
  return static_cast<std::int64_t>(comparisons_of(scene, sequences, parity_places(scene.options)).size());
}

void fuzz_forward(ParityScene& scene) {
  std::vector<Case> cases = make_cases(scene);
  ParityBench reference(scene, parity_reference(), scene.profile, false);
  for (Case& c : cases) {
    scene.options.stop.throw_if_stopped();
    c.logprobs = reference.trainer->score({TrainSequence::next_token(c.tokens)})[0];
  }
  scene.report.cases = static_cast<std::int64_t>(cases.size());
  const ParityPlaces places = parity_places(scene.options);
  for (const ParityPlace& place : places.all) scene.visit(place).promises_forward = true;
  const std::vector<Comparison> comparisons = comparisons_of(scene, cases.size(), places);
  // Place by place: the memory of one bench at a time.
  for (std::size_t p = 0; p < places.all.size(); ++p) {
    ParityBench bench(scene, places.all[p], scene.profile, true);
    for (const Comparison& c : comparisons) {
      if (c.place != p) continue;
      scene.options.stop.throw_if_stopped();
      compare(scene, reference, bench, cases[c.sequence], c.way, c.item);
    }
    compare_sampling(scene, bench, 3'000'000'000 + p);
    const EngineCounters& n = bench.engine->counters();
    // Of an engine over processes only they could tell: its followers know no such call.
    scene.counters["rank_bytes"] += (bench.place.over_processes ? 0 : bench.engine->rank_steps().traffic().bytes) + bench.trainer->traffic().bytes;
    scene.counters["chunks"] += n.chunks;
    scene.counters["cache_hits"] += n.cache_hit_tokens;
    scene.counters["preemptions"] += n.preemptions;
    scene.counters["evictions"] += n.evictions;
    scene.counters["mixed_batches"] += n.mixed_batches;
    scene.counters["decode_tokens"] += n.decode_tokens;
    for (const auto& [whose, work] : {std::pair{"serving", n.work}, std::pair{"training", bench.trainer->work()}}) {
      scene.counters["sparse_pairs_skipped"] += work.pairs_skipped();
      scene.counters["expert_rows"] += work.expert_rows;
      if (const std::string fault = work.fault(); !fault.empty())
        scene.report.miscounts.push_back(fmt::format("{} on {}: {}", whose, bench.place.text(), fault));
    }
  }
}

}  // namespace lockstep
