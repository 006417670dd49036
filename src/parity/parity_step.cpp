// Compares gradients and weights of the same data over micro-batches, order of arrival, packing, checkpointing, threads, instruction
// sets, backends, calls and live work in the middle.
#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "parity/live_work.h"
#include "parity/parity_step_ways.h"
#include "parity/step_trainer.h"
#include "parity/taught_steps.h"
#include "train/value_loss.h"

namespace lockstep {

namespace {
constexpr int kSteps = 2;  // the second meets moments that are not zero; the indexer's first is its dense warm-up

// Hashes of the values of all tensors, in the manifest's order: two models' worth of values stay out of memory while a third one trains.
using TensorHashes = std::vector<std::uint64_t>;

struct StepOutcome {
  std::vector<std::vector<float>> logprobs;  // of all steps, by sequence as it came
  std::vector<TensorHashes> gradients;       // a step; none in two calls
  std::vector<TensorHashes> masters;         // a step
};

// One tensor of one step, whose values are wanted.
struct TensorPlace {
  std::size_t step = 0;
  bool gradient = false;
  std::size_t file = 0;
  std::vector<float> values = {};
};

class SegmentCounter : public OperationObserver {
 public:
  std::int64_t segments = 0;
  void begin_forward(Backend&, const Batch&) override {}
  void operation(const Operation&) override {}
  void replay_segment() override { ++segments; }
};

std::vector<TrainSequence> step_data(const ParityScene& scene, StepMode mode, std::int64_t round) {
  RandomSequence draws = scene.draws(3'000'000'000 + static_cast<std::uint64_t>(round) * 8 + static_cast<std::uint64_t>(mode));
  std::vector<TrainSequence> data;
  const std::int64_t usual = std::min<std::int64_t>(scene.longest - 1, 80);
  for (int i = 0; i < 5; ++i) {
    std::int64_t n = 1 + draws.below(static_cast<std::uint32_t>(usual));
    if (i == 1 && in_pieces(mode)) n = scene.cut_length();
    if (i == 2 && round == 0 && mode == StepMode::cross_entropy) n = scene.longest_step - 1;  // several blocks of gradient chains
    data.push_back(TrainSequence::next_token(scene.random_tokens(draws, n + 1)));
  }
  if (mode == StepMode::pairs) make_pairs(data);
  for (TrainSequence& d : data) {
    const std::size_t prompt = draws.below(static_cast<std::uint32_t>(d.tokens.size()));
    for (std::size_t i = 0; i < d.tokens.size(); ++i) {
      // Weights of many sizes: their sum must not depend on the order either.
      if (mode != StepMode::cross_entropy) d.weights[i] = i < prompt ? 0.0f : 1.0f;
      else if (draws.below(3) == 0) d.weights[i] = static_cast<float>(draws.uniform()) * (draws.below(8) == 0 ? 1e-12f : 1.0f);
    }
    if (mode == StepMode::policy || mode == StepMode::adapter) d.advantages.assign(d.tokens.size(), static_cast<float>(draws.uniform() * 4 - 2));
    for (std::size_t i = 0; mode == StepMode::value && i < d.tokens.size(); ++i) {  // returns, and values before
      d.advantages.push_back(static_cast<float>(draws.uniform() * 2 - 1));
      d.old_logprobs.push_back(static_cast<float>(draws.uniform() * 2 - 1));
    }
  }
  return data;
}

// Sampler's log-probabilities: those of the model, some far enough off to be clipped.
void add_old_logprobs(const ParityScene& scene, std::vector<TrainSequence>& data) {
  ParityBench bench(scene, parity_reference(), scene.profile, false);
  RandomSequence draws = scene.draws(4'000'000'000);
  const auto logprobs = bench.trainer->score(data);
  for (std::size_t s = 0; s < data.size(); ++s) {
    data[s].old_logprobs = logprobs[s];
    for (float& l : data[s].old_logprobs) l += static_cast<float>(draws.uniform() - 0.5);
  }
}

TensorHashes hashes_of(const Manifest& manifest, const WeightImages& images, TensorPlace* wanted) {
  TensorHashes hashes;
  std::vector<float> values;
  for (std::size_t f = 0; f < manifest.files().size(); ++f) {
    values.resize(static_cast<std::size_t>(manifest.files()[f].size()));
    manifest.gather(manifest.files()[f], images, values.data());
    hashes.push_back(xxh3(values.data(), values.size() * sizeof(float)));
    if (wanted && wanted->file == f) wanted->values = values;
  }
  return hashes;
}

// An engine computes all rows of the data, and keeps what it makes of them; the longest sequence is then scored again from what was kept
// (engine/kept_scores.h). Returns how many rows that read; none: its numbers have other bits. `adapter` null: none.
std::optional<std::int64_t> keep_forwards(Engine& engine, const std::vector<TrainSequence>& data, const std::shared_ptr<const AdapterWeights>& adapter) {
  std::vector<Request> requests;
  for (const TrainSequence& d : data) {
    Request& request = requests.emplace_back(Request{.prompt = d.tokens, .sampling = {.max_tokens = 0}, .prompt_logprobs = true});
    request.prompt.push_back(d.targets.back());
    request.keep_forward = true;
    request.adapter = adapter;
  }
  // It comes last, so that its pages are in the cache.
  std::stable_sort(requests.begin(), requests.end(), [](const Request& a, const Request& b) { return a.prompt.size() < b.prompt.size(); });
  const Request longest = requests.back();
  const std::vector<float> computed = engine.generate(std::move(requests)).back().prompt_logprobs;
  const std::int64_t before = engine.counters().work.segment_rows.read;
  const std::vector<float> again = engine.generate({longest})[0].prompt_logprobs;
  const auto same = [](float a, float b) { return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); };
  if (!std::equal(computed.begin(), computed.end(), again.begin(), again.end(), same)) return std::nullopt;
  return engine.counters().work.segment_rows.read - before;
}

// `wanted` null: no values, hashes alone.
StepOutcome run_steps(ParityScene& scene, const ParityModel& model, const StepWay& way, const std::vector<TrainSequence>& data, StepMode mode,
                      const Profile& profile, TensorPlace* wanted = nullptr) {
  const auto place = [&](int step, bool gradient) {
    return wanted && wanted->step == static_cast<std::size_t>(step) && wanted->gradient == gradient ? wanted : nullptr;
  };
  Runtime runtime({.kind = way.place.backend, .isa = way.place.isa, .threads = way.place.threads}, model.model, profile,
                  std::max({scene.longest, scene.longest_step, scene.cut_length() + 1}));
  SegmentCounter segments;
  constexpr std::int64_t kKeptBytes = std::int64_t{256} << 20;
  std::shared_ptr<KeptForwards> kept;
  if (way.kept)
    kept = std::make_shared<KeptForwards>(runtime, *way.kept, KeptForwards::Settings{.most_bytes = kKeptBytes, .page_positions = way.place.page_size});
  else runtime.observer = &segments;  // what is observed is computed
  const bool indexer = mode == StepMode::indexer;
  const TrainerOptions options{.micro_batch = way.micro_batch,
                               .checkpoint_activations = way.checkpoint,
                               .accumulate = way.two_calls,
                               .train_indexer = indexer,
                               .page_size = way.place.page_size,
                               .kept_forwards = kept,
                               .ranks = way.place.ranks};
  const auto trainer = of_adapter(mode) ? adapter_step_trainer(runtime, model, options) : whole_step_trainer(runtime, model, options, scene.lead(way.place));
  const Manifest& manifest = trainer->manifest();
  std::unique_ptr<Engine> engine;
  std::optional<LiveWork> live;
  if (way.gives_way) {
    RandomSequence draws = scene.draws(6'000'000'000);
    Request request{.prompt = scene.random_tokens(draws, 5), .sampling = {.temperature = 1, .seed = 3, .max_tokens = 3}};
    request.adapter = trainer->adapter();
    live.emplace(runtime, trainer->weights(), std::move(request), draws);
  }
  StepOutcome result;
  for (int step = 0; step < kSteps; ++step) {
    if (kept) {
      const EngineOptions serving{.page_size = way.place.page_size, .cache_pages = 2 * runtime.max_positions / way.place.page_size + 2, .kept_forwards = kept};
      if (!engine) engine = std::make_unique<Engine>(runtime, trainer->weights(), serving);
      engine->set_weights(trainer->weights());
      const std::optional<std::int64_t> read = keep_forwards(*engine, data, trainer->adapter());
      std::string fault = engine->counters().work.fault();
      if (!read) fault = "a prompt that is scored from what was kept has other bits than when it was computed";
      if (!fault.empty()) scene.report.miscounts.push_back(fmt::format("serving, {}: {}", way.text(), fault));
      scene.counters["kept_scores"] += read.value_or(0);
    }
    std::vector<std::size_t> order(data.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    RandomSequence draws = scene.draws(5'000'000'000 + static_cast<std::uint64_t>(step));
    const std::size_t together = mode == StepMode::pairs ? 2 : 1;  // sequences that stay side by side
    if (way.shuffle)
      for (std::size_t i = order.size() / together; i > 1; --i) {
        const std::size_t other = draws.below(static_cast<std::uint32_t>(i));
        for (std::size_t k = 0; k < together; ++k) std::swap(order[(i - 1) * together + k], order[other * together + k]);
      }
    std::vector<std::vector<float>> logprobs(data.size());
    LossOptions loss;
    if (mode == StepMode::value) loss = value_loss({{"averaging", std::string("token_mean")}, {"value_clip", 0.5}});
    else loss.kind = mode == StepMode::policy || mode == StepMode::adapter ? LossKind::policy : LossKind::cross_entropy;
    if (mode == StepMode::divergence) loss.kind = LossKind::divergence, loss.parameters.divergence = Divergence::jensen_shannon;
    if (mode == StepMode::pairs) loss.normaliser = 1;  // their weights may sum to anything
    if (way.fixed_normaliser) loss.normaliser = 64;
    const std::size_t cut = way.two_calls ? 2 : data.size();
    std::optional<LiveWork::Within> within;
    if (live) within.emplace(runtime, *live);
    for (const auto& [begin, end] : {std::pair{std::size_t{0}, cut}, std::pair{cut, data.size()}}) {
      if (begin == end) continue;
      std::vector<TrainSequence> part;
      for (std::size_t i = begin; i < end; ++i) part.push_back(data[order[i]]);
      if (mode == StepMode::pairs) weigh_pairs(part, trainer->score(part));
      const ForwardBackwardResult r = trainer->forward_backward(part, loss, {.dense_attention = indexer && step == 0, .index_loss = indexer});
      for (std::size_t i = begin; i < end; ++i) logprobs[order[i]] = r.logprobs[i - begin];
    }
    for (auto& row : logprobs) result.logprobs.push_back(std::move(row));
    result.gradients.push_back(way.two_calls ? TensorHashes() : hashes_of(manifest, trainer->gradient_images(), place(step, true)));
    AdamParameters adam;
    if (indexer) adam.router_bias_rate = 1e-3;
    try {
      trainer->optim_step(adam);
    } catch (const Error& e) {  // a process with another model can make gradients that are no numbers: the weights stay, and the gradient is told as different
      if (e.code() != ErrorCode::numeric || !way.place.over_processes) throw;
    }
    within.reset();
    result.masters.push_back(hashes_of(manifest, trainer->master_images(), place(step, false)));
  }
  scene.counters["checkpointed_segments"] += segments.segments;
  if (kept) {
    const ForwardCounts work = trainer->work();
    scene.counters["kept_rows"] += work.segment_rows.read;
    if (const std::string fault = work.fault(); !fault.empty()) scene.report.miscounts.push_back(fmt::format("training, {}: {}", way.text(), fault));
  }
  scene.counters["rank_bytes"] += trainer->traffic().bytes;
  if (live) {
    scene.counters["live_in_steps"] += live->times();
    if (live->other_bits() > 0) scene.report.miscounts.push_back(fmt::format("training, {}: live answers in its middle have other bits", way.text()));
  }
  return result;
}

// The first tensor of two sets that differs; from the last of the model to the first, the order of backward: what goes wrong in a
// layer's adjoint goes on to all layers below. None: the number of tensors.
std::size_t first_different(const TensorHashes& want, const TensorHashes& got) {
  for (std::size_t f = want.size(); f-- > 0;)
    if (want[f] != got[f]) return f;
  return want.size();
}

// Repeats both runs for the values of the tensor that differed; done only for the first mismatch, which is the one that is reported.
using RunAgain = std::function<void(TensorPlace& wanted)>;
ParityMismatch tensor_mismatch(const Manifest& manifest, TensorPlace place, const std::string& what, const RunAgain& want, const RunAgain& got) {
  const FileTensor& file = manifest.files()[place.file];
  TensorPlace expected = place;
  want(expected);
  got(place);
  ParityMismatch mismatch{what + " " + file.name, layer_of_parameter(file.name), {}, 0, 0, {}};  // no place: it does not differ again
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    const auto a = std::bit_cast<std::uint32_t>(expected.values[i]), b = std::bit_cast<std::uint32_t>(place.values[i]);
    if (a == b) continue;
    const auto at = static_cast<std::int64_t>(i);
    mismatch.coordinate = {at % file.columns()};
    if (file.shape.size() == 2) mismatch.coordinate.insert(mismatch.coordinate.begin(), at / file.columns());
    mismatch.expected = a, mismatch.got = b;
    break;
  }
  return mismatch;
}

std::optional<ParityMismatch> first_step_mismatch(const Manifest& manifest, const StepOutcome& want, const StepOutcome& got, std::size_t step, bool told,
                                                  const RunAgain& run_want, const RunAgain& run_got) {
  const std::size_t sequences = want.logprobs.size() / kSteps;
  for (std::size_t s = step * sequences; s < (step + 1) * sequences; ++s)
    for (std::size_t i = 0; i < want.logprobs[s].size(); ++i) {
      const auto expected = std::bit_cast<std::uint32_t>(want.logprobs[s][i]), found = std::bit_cast<std::uint32_t>(got.logprobs[s][i]);
      if (expected != found)
        return ParityMismatch{"log-probability", -1, {static_cast<std::int64_t>(s % sequences), static_cast<std::int64_t>(i)}, expected, found, {}};
    }
  const std::size_t none = manifest.files().size();
  if (!got.gradients[step].empty() && !want.gradients[step].empty())
    if (const std::size_t f = first_different(want.gradients[step], got.gradients[step]); f < none)
      return told ? tensor_mismatch(manifest, {step, true, f}, "gradient", run_want, run_got) : ParityMismatch{};
  if (const std::size_t f = first_different(want.masters[step], got.masters[step]); f < none)
    return told ? tensor_mismatch(manifest, {step, false, f}, "weight after the step", run_want, run_got) : ParityMismatch{};
  return {};
}
}  // namespace

std::int64_t parity_step_comparisons(const ParityScene& scene) {
  std::int64_t ways = 0;
  for (StepMode mode : step_modes(scene)) ways += static_cast<std::int64_t>(step_ways(scene, mode).size());
  return ways * kSteps * step_rounds(scene);
}

void fuzz_steps(ParityScene& scene) {
  std::optional<ParityModel> with_values;
  if (scene.trains()) with_values = with_value_head(scene.model);
  const std::shared_ptr<const AdapterLayout> adapted = scene.adapts() ? step_adapter(*scene.model.model) : nullptr;
  const StepWay alone{parity_reference()};
  for (std::int64_t round = 0; round < step_rounds(scene); ++round)
    for (StepMode mode : step_modes(scene)) {
      const ParityModel& model = mode == StepMode::value ? *with_values : scene.model;
      const Manifest& manifest = of_adapter(mode) ? adapted->manifest() : model.model->manifest();
      std::vector<TrainSequence> data = step_data(scene, mode, round);
      if (mode == StepMode::policy || mode == StepMode::adapter || mode == StepMode::pairs) add_old_logprobs(scene, data);
      if (mode == StepMode::pairs)
        for (TrainSequence& d : data) d.reference_logprobs = std::exchange(d.old_logprobs, {});
      if (mode == StepMode::divergence) teach(scene.model, scene.profile, data);
      const StepOutcome want = run_steps(scene, model, alone, data, mode, scene.profile);
      for (const StepWay& way : step_ways(scene, mode)) scene.visit(way.place).promises_steps = true;
      std::optional<StepOutcome> want_fixed;
      for (const StepWay& way : step_ways(scene, mode)) {
        scene.options.stop.throw_if_stopped();
        const StepOutcome got = run_steps(scene, model, way, data, mode, scene.profile);
        if (way.fixed_normaliser && !want_fixed) {
          StepWay fixed = alone;
          fixed.fixed_normaliser = true;
          want_fixed = run_steps(scene, model, fixed, data, mode, scene.profile);
        }
        for (std::size_t step = 0; step < kSteps; ++step) {
          StepWay expected = alone;
          expected.fixed_normaliser = way.fixed_normaliser;
          const auto again = [&](const StepWay& which) {
            return [&](TensorPlace& place) { run_steps(scene, model, which, data, mode, scene.profile, &place); };
          };
          if (auto found = first_step_mismatch(manifest, way.fixed_normaliser ? *want_fixed : want, got, step, scene.report.mismatches == 0, again(expected),
                                               again(way)))
            scene.mismatch([&] {
              found->run = fmt::format("{} step {}: {} against one batch on {}", step_mode_name(mode), step + 1, way.text(), alone.place.text());
              return *found;
            });
          ++scene.report.steps;
          ++scene.visit(way.place).steps;
          ++scene.counters[fmt::format("{}_steps", mode == StepMode::cross_entropy ? "cross_entropy" : step_mode_name(mode))];
          scene.counters["shuffled_steps"] += way.shuffle;
          scene.counters["micro_batch_steps"] += way.micro_batch > 0;
          scene.counters["rank_steps"] += way.place.ranks.size() > 1;
          if (way.place.backend != BackendKind::cpu) ++scene.counters[fmt::format("{}_steps", backend_kind_name(way.place.backend))];
          scene.progress.advance(1, 0);
        }
      }
    }
}

void run_step_control(ParityScene& scene, const Profile& profile, const Profile& other) {
  const StepWay alone{parity_reference()};
  const auto on_ranks = [](const std::string& ranks) {
    StepWay way{parity_reference()};
    way.place.ranks = rank_layout(ranks);
    return way;
  };
  scene.report.control.step_detected = true;
  const auto compare = [&](StepMode mode, const std::vector<StepWay>& ways) {
    std::vector<TrainSequence> data = step_data(scene, mode, 1);
    if (mode == StepMode::adapter) add_old_logprobs(scene, data);
    const StepOutcome want = run_steps(scene, scene.model, alone, data, mode, profile);
    for (const StepWay& way : ways)
      if (want.masters[0] == run_steps(scene, scene.model, way, data, mode, other).masters[0]) scene.report.control.step_detected = false;
  };
  compare(scene.trains() ? StepMode::cross_entropy : StepMode::adapter, {alone, on_ranks(scene.trains() ? "tp=2,dp=2" : "dp=2")});
  if (scene.cut_length() > 0) compare(scene.trains() ? StepMode::pieces : StepMode::adapter_pieces, {on_ranks(scene.options.ranks)});
}

}  // namespace lockstep
