// Plans the memory of a parity run: its benches and steps run on a backend that counts memory and computes nothing
// (planning/memory_plan.h).
#include <algorithm>

#include "parity/parity_run.h"
#include "parity/parity_step_ways.h"
#include "parity/step_trainer.h"
#include "serving/loading.h"

namespace lockstep {

namespace {
// The program, and what its allocator holds for threads of ranks and for teachers that have ended: beside the accounts of devices a run took up to 67 MB on a
// busy machine.
constexpr std::int64_t kProgramBytes = std::int64_t{72} << 20;
constexpr int kCountedSteps = 2;  // the second has moments

std::int64_t all_ranks_of(const Trainer& trainer, const Engine* engine, const RankLayout& ranks) {
  std::int64_t bytes = 0;
  for (int r = 0; r < ranks.size(); ++r) bytes += trainer.ranks().memory(r).peak_of_all();
  if (engine)  // its first rank is on the trainer's device
    for (int r = 1; r < ranks.replica(); ++r) bytes += engine->rank_steps().memory(r).peak_of_all();
  return bytes;
}

// A trainer and an engine, and the longest forward of either.
std::int64_t bench_bytes(const ParityScene& scene, ParityPlace place, bool with_engine) {
  place.backend = BackendKind::counting;
  place.threads = 1;
  place.over_processes = false;
  ParityBench bench(scene, place, scene.profile, with_engine);
  std::vector<TrainSequence> data;
  for (const std::int64_t n : {scene.longest, std::int64_t{40}, std::int64_t{40}, std::int64_t{40}})
    data.push_back(TrainSequence::next_token(Tokens(static_cast<std::size_t>(std::min(n, scene.longest)))));
  bench.trainer->score(data);
  if (with_engine) engine_score(*bench.engine, Tokens(static_cast<std::size_t>(scene.longest)), {ScoreKind::prefill, 0, 4});
  return all_ranks_of(bench.trainer->own(), bench.engine.get(), place.ranks);
}

// The steps that are compared differ in much; what moves memory is the layout, and whether gradients come in two calls.
std::int64_t step_bytes(const ParityScene& scene, const RankLayout& ranks, bool two_calls, std::int64_t longest) {
  Runtime runtime({.kind = BackendKind::counting, .threads = 1}, scene.model.model, scene.profile, std::max(scene.longest, longest));
  Trainer trainer(runtime, scene.model.masters, {.accumulate = two_calls, .ranks = ranks});
  std::vector<TrainSequence> data;
  for (const std::int64_t n : {longest, std::int64_t{80}, std::int64_t{80}, std::int64_t{80}, std::int64_t{80}})
    data.push_back(TrainSequence::next_token(Tokens(static_cast<std::size_t>(std::min(n, longest)))));
  for (int step = 0; step < kCountedSteps; ++step) {
    for (int call = 0; call <= two_calls; ++call) trainer.forward_backward(data, {});
    trainer.optim_step({});
  }
  return all_ranks_of(trainer, nullptr, ranks);
}
// Of an adapter's steps, where these are the only ones: others take more.
std::int64_t adapter_step_bytes(const ParityScene& scene, const RankLayout& ranks, bool two_calls, std::int64_t longest) {
  Runtime runtime({.kind = BackendKind::counting, .threads = 1}, scene.model.model, scene.profile, std::max(scene.longest, longest));
  const auto trainer = adapter_step_trainer(runtime, scene.model, {.accumulate = two_calls, .ranks = ranks});
  std::vector<TrainSequence> data(4, TrainSequence::next_token(Tokens(static_cast<std::size_t>(std::min<std::int64_t>(81, longest)))));
  data.push_back(TrainSequence::next_token(Tokens(static_cast<std::size_t>(longest))));
  for (int step = 0; step < kCountedSteps; ++step) {
    for (int call = 0; call <= two_calls; ++call) trainer->forward_backward(data, {}, {});
    trainer->optim_step({});
  }
  return runtime.backend.device().memory().peak_of_all() * ranks.size();
}
}  // namespace

std::int64_t parity_memory(const ParityScene& scene) {
  const Manifest& manifest = scene.model.model->manifest();
  const ParityModel no_weights{scene.model.model, WeightImages(manifest.parameters().size()), WeightImages(scene.model.layer.size())};
  const ParityScene counting{no_weights, scene.options, scene.profile, scene.report, scene.progress, scene.longest, scene.longest_step, {}};
  const std::int64_t reference = bench_bytes(counting, parity_reference(), false);
  std::int64_t most = 0;
  // The control, and a mismatch that is looked for on a new engine: two of them beside the reference.
  for (const ParityPlace& place : parity_places(scene.options).all)
    most = std::max(most, reference + bench_bytes(counting, place, true) * (place.ranks.size() == 1 ? 2 : 1));
  std::vector<RankLayout> in_pieces;
  if (scene.cut_length() > 0) in_pieces = {RankLayout{}, rank_layout(scene.options.ranks)};
  if (scene.trains()) {
    std::vector<RankLayout> layouts = parity_layouts(scene.options);
    layouts.insert(layouts.begin(), RankLayout{});
    for (const RankLayout& ranks : layouts) most = std::max(most, step_bytes(counting, ranks, false, scene.longest_step));
    most = std::max(most, step_bytes(counting, {}, true, scene.longest_step));
    for (const RankLayout& ranks : in_pieces) most = std::max(most, step_bytes(counting, ranks, false, scene.cut_length()));
    if (compares_teachers(scene)) {  // which is made first, and then stands beside the steps
      const LoadedBytes teacher = loaded_bytes(*scene.model.model, scene.profile);
      const std::int64_t usual = std::min<std::int64_t>(81, scene.longest_step);
      most = std::max({most, teacher.masters + teacher.weights, step_bytes(counting, {}, true, usual) + teacher.weights});
      for (const char* ranks : {"dp=2", "tp=2", "ep=2"}) most = std::max(most, step_bytes(counting, rank_layout(ranks), false, usual) + teacher.weights);
    }
  } else if (scene.adapts()) {
    const std::int64_t usual = std::min<std::int64_t>(81, scene.longest_step);
    for (const bool two_calls : {false, true}) most = std::max(most, adapter_step_bytes(counting, {}, two_calls, usual));
    most = std::max(most, adapter_step_bytes(counting, rank_layout("dp=3"), false, usual));
    for (const RankLayout& ranks : in_pieces) most = std::max(most, adapter_step_bytes(counting, ranks, false, scene.cut_length()));
  }
  // The host's images of one step's gradients or weights, while they are hashed a tensor at a time.
  std::int64_t images = 0, largest = 0;
  for (const Parameter& p : manifest.parameters()) images += p.size() * static_cast<std::int64_t>(sizeof(float));
  for (const FileTensor& f : manifest.files()) largest = std::max(largest, f.size() * static_cast<std::int64_t>(sizeof(float)));
  return most + images + largest + kProgramBytes;
}

}  // namespace lockstep
