#include "train/teacher_head.h"

#include <algorithm>

#include "base/error.h"
#include "model/adapter_rows.h"
#include "model/model.h"

namespace lockstep {

TeacherHead teacher_head(std::shared_ptr<Runtime> runtime, std::shared_ptr<const WeightSet> weights) {
  const PackedWeight w = packed_weight(runtime->model->manifest(), *weights, runtime->model->facts().head, runtime->profile);
  const bool rounds = runtime->profile.bf16_activations;
  return {std::move(runtime), std::move(weights), w, rounds};
}

namespace {
// What is plain of a head.
struct HeadShape {
  std::int64_t outputs, inputs, count, rows, cols;
  std::int32_t maximum_leaves, bits, dtype, rounds;
};
}  // namespace

void put_teacher_head(ByteWriter& out, const TeacherHead& head) {
  const PackedWeight& w = head.w;
  out.value(HeadShape{w.outputs, w.inputs, w.count, w.data.rows, w.data.cols, w.maximum_leaves, w.bits, static_cast<std::int32_t>(w.data.dtype),
                      head.round_input_bf16 ? 1 : 0});
  Stream& stream = head.runtime->backend.stream();
  if (w.data.dtype == DType::u8) out.values(stream.read_bytes(w.data).get());
  else out.values(stream.read(w.data).get());
}

TeacherHead taken_teacher_head(ByteReader& in, std::shared_ptr<Runtime> runtime) {
  const auto shape = in.value<HeadShape>();
  const auto dtype = static_cast<DType>(shape.dtype);
  Device& device = runtime->backend.device();
  auto weights = std::make_shared<WeightSet>();
  if (dtype == DType::u8) {
    weights->parameters.push_back(device.allocate(dtype, shape.rows, shape.cols, MemoryCategory::weights));
    device.stream().write(weights->parameters.back().view(), in.values<std::uint8_t>());
  } else {
    weights->parameters.push_back(device.upload(in.values<float>(), shape.rows, shape.cols, MemoryCategory::weights, dtype));
  }
  device.stream().synchronize();  // ranks read it by streams of their own
  const PackedWeight w{weights->parameters.back().view(), shape.outputs, shape.inputs, shape.count, shape.maximum_leaves, shape.bits};
  return {std::move(runtime), std::move(weights), w, shape.rounds != 0};
}

namespace {
// The rows of each adapter.
std::vector<AdapterRows> adapter_rows(std::span<const TaughtText> texts, const Batch& batch) {
  std::vector<AdapterRows> adapters;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (!texts[i].adapter) continue;
    if (i == 0 || texts[i - 1].adapter != texts[i].adapter)
      adapters.push_back({texts[i].adapter, nullptr, batch.forward_begin()[i], 0, batch.row_begin()[i], 0});
    adapters.back().end = batch.forward_begin()[i + 1];
    adapters.back().tape_end = batch.row_begin()[i + 1];
  }
  return adapters;
}

void add_states(Runtime& runtime, const WeightSet& weights, std::span<const TaughtText> texts, std::vector<std::vector<float>>& states) {
  constexpr std::int64_t kPageSize = 16;
  Backend& backend = runtime.backend;
  const Model& model = *runtime.model;
  std::vector<SequenceSlice> slices;
  std::int64_t pages = 0;
  for (const TaughtText& text : texts) {
    const std::vector<std::int32_t>& tokens = text.tokens;
    if (std::ssize(tokens) > runtime.max_positions)
      fail(ErrorCode::invalid_argument, "a text has {} tokens, allowed are at most {}", tokens.size(), runtime.max_positions);
    SequenceSlice& slice = slices.emplace_back();
    slice.tokens = tokens;
    for (std::int64_t at = 0; at < std::ssize(tokens); at += kPageSize) slice.pages.push_back(static_cast<std::int32_t>(pages++));
  }
  KvCache cache(backend, model.cache_shapes(runtime.profile), runtime.profile, pages, kPageSize);
  const Batch batch(backend, slices, kPageSize, true);
  const std::vector<AdapterRows> adapters = adapter_rows(texts, batch);
  ForwardOptions options;
  if (!adapters.empty()) options.adapters = &adapters;
  Context context = runtime.context(weights, cache, batch, options);
  const Tensor hidden = model.forward(context);
  const std::vector<float> rows = backend.stream().read(hidden.view()).get();
  const std::vector<std::int32_t> flags = backend.stream().read_ints(context.flags()).get();
  if (std::any_of(flags.begin(), flags.end(), [](std::int32_t flag) { return flag != 0; })) fail(ErrorCode::numeric, "a value is not a number or not finite");
  const std::int64_t width = model.facts().hidden;
  for (std::size_t i = 0; i < texts.size(); ++i)
    states.emplace_back(rows.begin() + batch.row_begin()[i] * width, rows.begin() + batch.row_begin()[i + 1] * width);
}
}  // namespace

std::vector<std::vector<float>> teacher_states(Runtime& runtime, const WeightSet& weights, std::span<const TaughtText> texts,
                                               const std::function<void()>& between) {
  std::vector<std::vector<float>> states;
  for (std::size_t begin = 0, end = 0; begin < texts.size(); begin = end) {
    std::size_t rows = 0;
    for (; end < texts.size() && (end == begin || rows + texts[end].tokens.size() <= kTeacherRows); ++end) rows += texts[end].tokens.size();
    add_states(runtime, weights, texts.subspan(begin, end - begin), states);
    if (between) between();
  }
  return states;
}

}  // namespace lockstep
