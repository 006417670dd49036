#include "parity/parity_step_ways.h"

#include <algorithm>
#include <iterator>

namespace lockstep {

namespace {
constexpr std::string_view kModes[] = {"cross-entropy", "policy", "indexer", "value", "adapter", "pieces", "adapter_pieces", "pairs", "divergence"};

ParityPlace on_cpu(InstructionSet isa, int threads, std::int64_t page) { return {BackendKind::cpu, isa, threads, page}; }
ParityPlace over_ranks(ParityPlace place, const char* ranks) {
  place.ranks = rank_layout(ranks);
  return place;
}
ParityPlace deferred_on(InstructionSet isa, int threads, std::int64_t page) { return {BackendKind::deferred, isa, threads, page}; }

// Of all weights.
std::vector<StepWay> whole_ways(const ParityScene& scene, StepMode mode) {
  const InstructionSet widest = widest_instruction_set();
  std::vector<StepWay> ways = {
      {on_cpu(widest, 1, 16), 1},
      {on_cpu(widest, 2, 4), 2, true},
      {on_cpu(widest, 3, 1), 3, false, true},
      {on_cpu(widest, 1, 16), 0, true},
      {on_cpu(widest, 2, 16), 0, false, true},
      {deferred_on(widest, 2, 16), 0, true},
      {deferred_on(widest, 4, 4), 2, false, true},
      {on_cpu(InstructionSet::scalar, 2, 16), 2, true},
  };
  if (const std::optional<BackendKind> device = parity_device(scene.options)) {
    ways.push_back({ParityPlace{*device, widest, 1, 16}, 1});
    ways.push_back({ParityPlace{*device, widest, 1, 4}, 0, true, true});
  }
  if (widest == InstructionSet::avx512) {
    ways.push_back({on_cpu(InstructionSet::avx2, 2, 4), 1, true});
    ways.push_back({deferred_on(InstructionSet::avx2, 1, 16), 0, false, true});
  }
  // One backend per rank; deferred ones in turn with direct ones.
  const std::vector<RankLayout> layouts = parity_layouts(scene.options);
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    ParityPlace place = ways.size() % 2 ? deferred_on(widest, 1, 16) : on_cpu(widest, 1, 16);
    place.ranks = layouts[i];
    place.over_processes = scene.options.lead && i == 0;
    ways.push_back({place, static_cast<std::int64_t>(ways.size() % 3), true, ways.size() % 2 == 0});
  }
  // The indexer's loss is a mean over the rows of a call: two calls are another loss.
  if (mode != StepMode::indexer) ways.push_back({on_cpu(widest, 2, 16), 2, true, false, true, true});
  if (mode == StepMode::cross_entropy || mode == StepMode::policy) {  // of others no forward is kept
    ways.push_back({on_cpu(widest, 2, 4), 2, true, true, false, false, RowValues::segments});
    ways.push_back({deferred_on(widest, 1, 16), 0, false, false, false, false, RowValues::operations});
    if (mode == StepMode::cross_entropy) ways.push_back({over_ranks(on_cpu(widest, 1, 4), "tp=2,dp=2"), 2, true, true, false, false, RowValues::segments});
    else ways.push_back({over_ranks(on_cpu(widest, 1, 16), "dp=2"), 0, false, false, false, false, RowValues::operations});
  }
  if (mode != StepMode::value) {  // whose model samples nothing
    ways.push_back({.place = on_cpu(widest, 2, 16), .micro_batch = 3, .gives_way = true});
    ways.push_back({.place = on_cpu(widest, 1, 4), .shuffle = true, .checkpoint = true, .gives_way = true});
  }
  return ways;
}

// Of an adapter: fewer, since what computes the forward and its gradient is what whole_ways() goes through.
std::vector<StepWay> adapter_ways(const ParityScene& scene) {
  const InstructionSet widest = widest_instruction_set();
  std::vector<StepWay> ways = {
      {on_cpu(widest, 2, 4), 1},
      {on_cpu(InstructionSet::scalar, 2, 16), 2, true},
      {deferred_on(widest, 2, 16), 2, true, true},
      {on_cpu(widest, 2, 16), 2, true, false, true, true},
      {on_cpu(widest, 2, 4), 2, true, true, false, false, RowValues::segments},
      {.place = on_cpu(widest, 2, 16), .micro_batch = 3, .gives_way = true},
  };
  if (const std::optional<BackendKind> device = parity_device(scene.options)) ways.push_back({ParityPlace{*device, widest, 1, 16}, 1});
  if (widest == InstructionSet::avx512) ways.push_back({on_cpu(InstructionSet::avx2, 2, 4), 1, true});
  std::vector<RankLayout> layouts = {rank_layout("tp=2"), rank_layout("ep=2"), rank_layout("tp=2,dp=2,ep=2")};
  if (scene.profile.weight_bits != 0) layouts.push_back(rank_layout("tp=3"));             // cuts other groups that share scales
  if (!scene.options.ranks.empty()) layouts.push_back(rank_layout(scene.options.ranks));  // as threads
  for (const RankLayout& ranks : layouts) {
    ParityPlace place = ways.size() % 2 ? deferred_on(widest, 1, 16) : on_cpu(widest, 1, 16);
    place.ranks = ranks;
    ways.push_back({place, static_cast<std::int64_t>(ways.size() % 3), true, ways.size() % 2 == 0});
  }
  ways.push_back({over_ranks(on_cpu(widest, 1, 4), "tp=2"), 2, true, true, false, false, RowValues::segments});
  return ways;
}

// Of pairs, and with a teacher: fewer, since the forward and its gradient are those of whole_ways(). A teacher's head is in memory of the CPU, and ranks that
// share the vocabulary have sixteens of it.
std::vector<StepWay> taught_ways(const ParityScene& scene, StepMode mode) {
  const InstructionSet widest = widest_instruction_set();
  std::vector<StepWay> ways = {
      {on_cpu(widest, 2, 4), 1},
      {on_cpu(InstructionSet::scalar, 2, 16), 2, true},
      {on_cpu(widest, 3, 16), 2, true, true},
      {on_cpu(widest, 2, 16), 2, true, false, true, true},
  };
  if (widest == InstructionSet::avx512) ways.push_back({on_cpu(InstructionSet::avx2, 2, 4), 1, true});
  if (mode == StepMode::pairs) ways.push_back({deferred_on(widest, 2, 16), 0, true});
  std::vector<RankLayout> layouts = {rank_layout("dp=2")};
  if (mode == StepMode::pairs || scene.model.model->facts().vocabulary % 32 == 0)
    for (const char* text : {"tp=2", "ep=2"}) layouts.push_back(rank_layout(text));
  for (const RankLayout& ranks : layouts) {
    StepWay& way = ways.emplace_back(StepWay{on_cpu(widest, 1, 16), static_cast<std::int64_t>(ways.size() % 3), true});
    way.place.ranks = ranks;
  }
  return ways;
}

// Of sequences in pieces, which are long: the requested layout alone.
std::vector<StepWay> ways_in_pieces(const ParityScene& scene, StepMode mode) {
  const InstructionSet widest = widest_instruction_set();
  std::vector<StepWay> ways = {{on_cpu(widest, 1, 16), 1, true}, {deferred_on(InstructionSet::avx2, 1, 4), 0, false, true}};
  for (StepWay& way : ways) way.place.ranks = rank_layout(scene.options.ranks);
  ways[0].place.over_processes = scene.options.lead && mode == StepMode::pieces;
  return ways;
}
}  // namespace

std::string_view step_mode_name(StepMode mode) { return kModes[static_cast<int>(mode)]; }

std::string StepWay::text() const {
  return fmt::format("micro-batch {}{}{}{}{}{} on {}", micro_batch > 0 ? std::to_string(micro_batch) : "all", shuffle ? ", shuffled" : "",
                     checkpoint ? ", checkpointed" : "", two_calls ? ", in two calls" : "", kept ? ", of a kept forward" : "",
                     gives_way ? ", beside live work" : "", place.text());
}

std::vector<StepMode> step_modes(const ParityScene& scene) {
  std::vector<StepMode> modes;
  if (scene.trains()) {
    modes = {StepMode::cross_entropy, StepMode::policy};
    if (scene.model.model->has_indexer()) modes.push_back(StepMode::indexer);
    modes.push_back(StepMode::value);
    if (scene.cut_length() > 0) modes.push_back(StepMode::pieces);
  }
  if (scene.adapts()) modes.push_back(StepMode::adapter);
  if (scene.adapts() && scene.cut_length() > 0) modes.push_back(StepMode::adapter_pieces);
  if (scene.trains()) modes.push_back(StepMode::pairs);  // behind the others, whose ways are dealt by their places here
  if (compares_teachers(scene)) modes.push_back(StepMode::divergence);
  return modes;
}

std::vector<StepWay> step_ways(const ParityScene& scene, StepMode mode) {
  if (in_pieces(mode)) return ways_in_pieces(scene, mode);
  if (mode == StepMode::adapter) return adapter_ways(scene);
  if (mode == StepMode::pairs || mode == StepMode::divergence) return taught_ways(scene, mode);
  const std::vector<StepMode> modes = step_modes(scene);
  const auto first = static_cast<std::uint64_t>(std::find(modes.begin(), modes.end(), mode) - modes.begin()) + scene.options.seed;
  const auto share = static_cast<std::uint64_t>(scene.options.step_share);
  const std::vector<StepWay> all = whole_ways(scene, mode);
  std::vector<StepWay> ways;
  for (std::size_t way = 0; way < all.size(); ++way)
    if (const bool of_few_kinds = all[way].kept || all[way].two_calls || all[way].gives_way; of_few_kinds || way % share == first % share)
      ways.push_back(all[way]);
  return ways;
}

std::int64_t step_rounds(const ParityScene& scene) { return 1 + scene.options.cases / 200; }

}  // namespace lockstep
