#include "engine/step_runner.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace lockstep {

namespace {
// Logits at a time: the matrix of all rows never stands whole, however large the vocabulary.
constexpr std::int64_t kLogitsChunk = std::int64_t{1} << 21;
constexpr std::int64_t kScoredChunkRows = 64;
}  // namespace

// What a step reads back: one buffer of [token | raw | sampling | flags] a sampled row, then the scored
// log-probabilities. On the traced backend numbers have another size than integers and stand in a buffer of their own.
struct StepRunner::Record {
  std::int64_t samples, scored;
  bool traced;
  Buffer words, numbers;

  Record(Device& device, std::int64_t sample_rows, std::int64_t scored_rows)
      : samples(sample_rows), scored(scored_rows), traced(device.traced()) {
    words = device.allocate_zero(DType::i32, 1, 2 * samples + (traced ? 0 : 2 * samples + scored),
                                 MemoryCategory::activations);
    if (traced) numbers = device.allocate(DType::f32, 1, 2 * samples + scored, MemoryCategory::activations);
  }
  View token() const { return column(words.view(), 0, samples); }
  View flags() const { return column(words.view(), samples, samples); }
  View raw() const { return number(0, samples); }
  View sampling() const { return number(samples, samples); }
  View logprobs() const { return number(2 * samples, scored); }

  void read(Stream& stream, StepResult& result) const {
    const std::vector<std::int32_t> w = stream.read_ints(words.view()).get();
    std::vector<float> n;
    if (traced) n = stream.read(numbers.view()).get();
    const auto at = [&](std::int64_t i) {
      return traced ? n[static_cast<std::size_t>(i)]
                    : std::bit_cast<float>(w[static_cast<std::size_t>(2 * samples + i)]);
    };
    result.sampled.resize(static_cast<std::size_t>(samples));
    for (std::int64_t i = 0; i < samples; ++i)
      result.sampled[static_cast<std::size_t>(i)] = {w[static_cast<std::size_t>(i)],
                                                     w[static_cast<std::size_t>(samples + i)], at(i), at(samples + i)};
    result.prompt_logprobs.resize(static_cast<std::size_t>(scored));
    for (std::int64_t i = 0; i < scored; ++i) result.prompt_logprobs[static_cast<std::size_t>(i)] = at(2 * samples + i);
  }

 private:
  static View column(const View& v, std::int64_t begin, std::int64_t count) {
    return v.column_range(begin, count).reshape(count, 1);
  }
  View number(std::int64_t begin, std::int64_t count) const {
    if (traced) return column(numbers.view(), begin, count);
    View v = column(words.view(), 2 * samples + begin, count);
    v.dtype = DType::f32;
    return v;
  }
};

StepRunner::StepRunner(Runtime& runtime, std::int64_t pages, std::int64_t page_size)
    : runtime_(runtime), cache_(runtime.backend, runtime.model->cache_shapes(), runtime.profile, pages, page_size) {}

void StepRunner::run(const WeightSet& weights, const std::vector<PlannedSlice>& plan, StepResult& result) {
  std::int64_t sampled = 0, scored = 0;
  slices_.resize(plan.size());
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const PlannedSlice& p = plan[i];
    const auto first = p.sequence->tokens.begin() + p.begin;
    slices_[i].tokens.assign(first, first + p.count);
    slices_[i].begin = p.begin;
    slices_[i].pages.assign(p.sequence->pages.begin(), p.sequence->pages.end());
    sampled += samples(p);
    scored += scored_rows(p);
  }
  Backend& backend = runtime_.backend;
  const Batch batch(backend, slices_, cache_.page_size, false);
  Context context = runtime_.context(weights, cache_, batch);
  const Tensor hidden = runtime_.model->forward(context);
  const Record record(backend.device(), sampled, scored);
  if (scored > 0) score_prompts(weights, plan, hidden.view(), context.flags(), record.logprobs());
  if (sampled > 0) sample(weights, plan, hidden.view(), record);
  result.row_flags = backend.stream().read_ints(context.flags()).get();
  record.read(backend.stream(), result);
}

void StepRunner::score_prompts(const WeightSet& weights, const std::vector<PlannedSlice>& plan, const View& hidden,
                               const View& flags, const View& logprobs) {
  Backend& backend = runtime_.backend;
  const Model& model = *runtime_.model;
  integers_.clear();
  std::int64_t longest = 0;
  for (const PlannedSlice& p : plan) {
    const std::int64_t n = scored_rows(p);
    const auto first = p.sequence->tokens.begin() + p.begin + 1;
    integers_.insert(integers_.end(), first, first + n);
    longest = std::max(longest, n);
  }
  const Buffer targets =
      backend.device().upload(integers_, static_cast<std::int64_t>(integers_.size()), 1, MemoryCategory::activations);
  const Buffer chunk = backend.device().allocate(DType::f32, std::min(longest, kScoredChunkRows), model.vocabulary,
                                                 MemoryCategory::workspace);
  std::int64_t row = 0, out = 0;
  for (const PlannedSlice& p : plan) {
    const std::int64_t n = scored_rows(p);
    if (n > 0) {
      HeadLoss head;
      head.logprob = logprobs.row_range(out, n);
      head.flags = flags.row_range(row, n);
      head.x = hidden.row_range(row, n);
      head.w = packed_weight(model.manifest(), weights, model.head, runtime_.profile);
      head.target = targets.view().row_range(out, n);
      head.round_input_bf16 = runtime_.profile.bf16_activations;
      head.logits_chunk = chunk.view();
      backend.launch(&KernelTable::head_loss, head);
      out += n;
    }
    row += p.count;
  }
}

void StepRunner::sample(const WeightSet& weights, const std::vector<PlannedSlice>& plan, const View& hidden,
                        const Record& record) {
  Backend& backend = runtime_.backend;
  const Model& model = *runtime_.model;
  // Integers of a row: its row in `hidden`, top_k, sample, position, seed low, seed high; numbers: temperature, top_p.
  integers_.clear();
  floats_.clear();
  std::int32_t row = 0;
  for (const PlannedSlice& p : plan) {
    row += static_cast<std::int32_t>(p.count);
    if (!samples(p)) continue;
    const SamplingParameters& s = p.sequence->sampling;
    const auto seed_low = static_cast<std::uint32_t>(s.seed), seed_high = static_cast<std::uint32_t>(s.seed >> 32);
    for (std::int32_t value : {row - 1, s.top_k, s.sample_index, static_cast<std::int32_t>(p.sequence->known()),
                               std::bit_cast<std::int32_t>(seed_low), std::bit_cast<std::int32_t>(seed_high)})
      integers_.push_back(value);
    floats_.push_back(s.temperature);
    floats_.push_back(s.top_p);
  }
  const Buffer integers = backend.device().upload(integers_, record.samples, 6, MemoryCategory::activations);
  const Buffer floats = backend.device().upload(floats_, record.samples, 2, MemoryCategory::activations);
  const std::int64_t most =
      std::clamp<std::int64_t>(kLogitsChunk / model.vocabulary, 16, record.samples > 16 ? record.samples : 16);
  const Buffer logits = backend.device().allocate(DType::f32, std::min(most, record.samples), model.vocabulary,
                                                  MemoryCategory::workspace);
  for (std::int64_t begin = 0; begin < record.samples; begin += most) {
    const std::int64_t n = std::min(most, record.samples - begin);
    const View i = integers.view().row_range(begin, n), f = floats.view().row_range(begin, n),
               z = logits.view().row_range(0, n);
    HeadLogits head;
    head.y = z;
    head.x = hidden;
    head.index = i.column_range(0, 1);
    head.w = packed_weight(model.manifest(), weights, model.head, runtime_.profile);
    head.round_input_bf16 = runtime_.profile.bf16_activations;
    backend.launch(&KernelTable::head_logits, head);
    Sample sample;
    sample.token = record.token().row_range(begin, n);
    sample.raw_logprob = record.raw().row_range(begin, n);
    sample.sampling_logprob = record.sampling().row_range(begin, n);
    sample.flags = record.flags().row_range(begin, n);
    sample.logits = z;
    sample.temperature = f.column_range(0, 1);
    sample.top_p = f.column_range(1, 1);
    sample.top_k = i.column_range(1, 1);
    sample.sample = i.column_range(2, 1);
    sample.position = i.column_range(3, 1);
    sample.seed = i.column_range(4, 2);
    sample.maximum_leaves = runtime_.profile.maximum_leaves;
    backend.launch(&KernelTable::sample, sample);
  }
}

}  // namespace lockstep
