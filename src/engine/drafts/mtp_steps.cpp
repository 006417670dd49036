#include "engine/drafts/mtp_steps.h"

#include <algorithm>

#include "base/error.h"
#include "engine/drafts/verified_rows.h"
#include "engine/draw_table.h"
#include "kernels/launch.h"
#include "model/operations/head.h"

namespace lockstep {

namespace {
constexpr std::int64_t kLayerLogits = std::int64_t{1} << 21;  // at a time

const MtpLayer& layer_of(const Runtime& runtime, const WeightSet* weights) {
  const MtpLayer* layer = runtime.model->mtp();
  const std::size_t wanted = layer ? layer->manifest().parameters().size() : 0;
  if (!layer || !weights || weights->parameters.size() != wanted)
    fail(ErrorCode::invalid_argument, "weights of a layer of multi-token prediction have {} parameters, allowed are the {} of the model's",
         weights ? weights->parameters.size() : 0, wanted);
  return *layer;
}
}  // namespace

void MtpSteps::check(const Runtime& runtime, const WeightSet* weights) { layer_of(runtime, weights); }

MtpSteps::MtpSteps(Runtime& runtime, std::shared_ptr<const WeightSet> weights, std::int64_t pages, std::int64_t page_size, std::int64_t sequences,
                   const Sharding* sharding, const HeldShares* shares)
    : runtime_(runtime),
      layer_(layer_of(runtime, weights.get())),
      weights_(std::move(weights)),
      pages_(pages),
      page_size_(page_size),
      spare_(layer_.shares_keys() ? 0 : (DraftOptions::kMostTokens - 1 + page_size - 1) / page_size),
      sharding_(sharding),
      shares_(shares),
      cache_(runtime.backend, runtime.mtp_cache_shapes(), runtime.profile, pages + spare_ * sequences, page_size),
      states_(runtime.backend.device().allocate_zero(DType::f32, pages, runtime.model->facts().hidden, MemoryCategory::cache)) {}

void MtpSteps::set_weights(std::shared_ptr<const WeightSet> weights) {
  layer_of(runtime_, weights.get());
  weights_ = std::move(weights);
}

std::int64_t MtpSteps::page_bytes(const Model& model, const Profile& profile, std::int64_t page_size) {
  return KvCache::bytes_a_position({model.mtp()->cache_shape(profile)}, profile) * page_size + 4 * model.facts().hidden;
}

std::int64_t cache_bytes_a_position(const Model& model, const Profile& profile, const EngineOptions& options) {
  const std::int64_t bytes = KvCache::bytes_a_position(model.cache_shapes(profile), profile);
  if (!model.mtp() || !options.drafts.has(DraftKind::mtp)) return bytes;
  return bytes + (MtpSteps::page_bytes(model, profile, options.page_size) + options.page_size - 1) / options.page_size;
}

// Embedding and head alone, which turn nothing and reach no cache.
Context MtpSteps::of_model(const WeightSet& weights, const Batch& batch) {
  return Context(runtime_.backend, sharding_ ? sharding_->manifest() : runtime_.model->manifest(), runtime_.profile, weights, cache_, batch, {}, {}, nullptr,
                 sharding_);
}

View MtpSteps::upload(const std::vector<std::int32_t>& values) {
  uploads_.push_back(runtime_.backend.device().upload(values, static_cast<std::int64_t>(values.size()), 1, MemoryCategory::activations));
  return uploads_.back().view();
}

// As entries of a cache with one position a page.
void MtpSteps::write_states(const std::vector<PageState>& states) {
  if (states.empty()) return;
  const auto count = static_cast<std::int64_t>(states.size());
  std::vector<std::int32_t> row, table(states.size()), sequence;
  for (const PageState& one : states) {
    table[row.size()] = static_cast<std::int32_t>(table.size());
    table.push_back(one.page);
    sequence.push_back(static_cast<std::int32_t>(row.size()));
    row.push_back(one.row);
  }
  const Buffer values = runtime_.backend.device().allocate(DType::f32, count, states_.view().cols, MemoryCategory::activations);
  runtime_.backend.launch(&KernelTable::gather_rows, GatherRows{values.view(), last_hidden_.view(), upload(row)});
  Rows rows;
  rows.position = upload(std::vector<std::int32_t>(states.size(), 0));
  rows.sequence = upload(sequence);
  rows.page_table = upload(table);
  rows.page_size = 1;
  rows.longest = 1;
  runtime_.backend.launch(&KernelTable::cache_write, CacheWrite{states_.view(), 0, values.view(), rows});
}

void MtpSteps::read_states(const View& y, const std::vector<std::int32_t>& pages) {
  runtime_.backend.launch(&KernelTable::gather_rows, GatherRows{y, states_.view(), upload(pages)});
}

void MtpSteps::follow(const WeightSet& model_weights, const Batch& batch, const std::vector<SequenceSlice>& slices, const Tensor& hidden) {
  Backend& backend = runtime_.backend;
  uploads_.clear();
  last_hidden_ = hidden.buffer;
  const std::int64_t rows = batch.count(), count = static_cast<std::int64_t>(slices.size()), width = hidden.view().cols;
  std::vector<PageState> full;
  // Of each row, where the state of the position before stands in `all`: the rows of this forward, then for each slice what the page of that position keeps
  // before full pages are written, and behind them. A slice that begins inside a page needs the former, since its own rows may fill it; one that begins
  // with a page the latter, since another may fill the page before it in this forward.
  std::vector<std::int32_t> before, page_before;
  std::int32_t row = 0;
  for (const SequenceSlice& slice : slices) {
    const std::int64_t kept = rows + static_cast<std::int64_t>(page_before.size()) + (slice.begin % page_size_ == 0 ? count : 0);
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(slice.tokens.size()); ++i, ++row) {
      const std::int64_t position = slice.begin + i;
      if ((position + 1) % page_size_ == 0) full.push_back({row, slice.pages[static_cast<std::size_t>(position / page_size_)]});
      before.push_back(i > 0 ? row - 1 : static_cast<std::int32_t>(kept));
    }
    // The row of position 0 is no row: any state will do.
    page_before.push_back(slice.pages[static_cast<std::size_t>(std::max<std::int64_t>(slice.begin - 1, 0) / page_size_)]);
  }
  const Buffer all = backend.device().allocate(DType::f32, rows + 2 * count, width, MemoryCategory::activations);
  backend.stream().copy(all.view().row_range(0, rows), hidden.view());
  read_states(all.view().row_range(rows, count), page_before);
  write_states(full);
  read_states(all.view().row_range(rows + count, count), page_before);
  const Tensor previous{backend.device().allocate(DType::f32, rows, width, MemoryCategory::activations)};
  backend.launch(&KernelTable::gather_rows, GatherRows{previous.view(), all.view(), upload(before)});
  Context model = of_model(model_weights, batch), ctx = runtime_.mtp_context(*weights_, cache_, batch, 0, {.counts = false});
  layer_.enter(ctx, runtime_.model->embed(model), previous);
}

std::vector<MtpSteps::PageState> MtpSteps::states_of(const std::vector<PlannedSlice>& plan, std::int64_t page_size) {
  std::vector<PageState> states;
  std::int64_t row = 0;
  for (const PlannedSlice& p : plan) {
    const Sequence& s = *p.sequence;
    const std::int64_t last = s.computed - 1, at = last - p.begin;
    if (s.running && at >= 0 && at < p.count && s.computed % page_size != 0)
      states.push_back({static_cast<std::int32_t>(row + at), s.pages[static_cast<std::size_t>(last / page_size)]});
    row += p.count;
  }
  return states;
}

void MtpSteps::store(const std::vector<PageState>& states) {
  write_states(states);
  last_hidden_ = Buffer();
}

std::vector<std::vector<std::int32_t>> MtpSteps::guess(const WeightSet& model_weights, std::span<Sequence* const> sequences, std::int64_t tokens) {
  Backend& backend = runtime_.backend;
  uploads_.clear();
  std::vector<SequenceSlice> slices;
  std::vector<std::int32_t> pages;
  for (const Sequence* s : sequences) {
    const std::int64_t position = s->known() - 1;
    pages.push_back(s->pages[static_cast<std::size_t>((position - 1) / page_size_)]);
    slices.push_back({{s->tokens.back()}, position, s->pages});
    for (std::int64_t spare = 0; spare < spare_; ++spare)
      slices.back().pages.push_back(static_cast<std::int32_t>(pages_ + (static_cast<std::int64_t>(pages.size()) - 1) * spare_ + spare));
  }
  const Batch rows(backend, slices, page_size_, false);
  Tensor carried{backend.device().allocate(DType::f32, rows.count(), states_.view().cols, MemoryCategory::activations)};
  read_states(carried.view(), pages);
  std::vector<std::vector<std::int32_t>> said(sequences.size());
  std::vector<bool> ended(sequences.size(), false);
  MtpLayer::Keys keys;
  for (std::int64_t ahead = 0; ahead < tokens; ++ahead) {
    const Batch spoken(backend, slices, page_size_, false);  // the rows with this depth's tokens
    Context model = of_model(model_weights, spoken);
    const Tensor embedded = runtime_.model->embed(model);
    MtpLayer::Depth depth;
    if (layer_.shares_keys()) {
      Context ctx = runtime_.mtp_context(*weights_, cache_, rows, ahead, {.counts = false});
      depth = ahead == 0 ? layer_.first(ctx, embedded, carried, keys) : layer_.next(ctx, embedded, carried, keys);
    } else {
      Context ctx = runtime_.mtp_context(*weights_, cache_, spoken, 0, {.counts = false});
      depth = layer_.own_depth(ctx, embedded, carried);
      for (SequenceSlice& slice : slices) ++slice.begin;
    }
    carried = layer_.state(depth);
    const std::vector<std::int32_t> drawn = sample(model, depth.normed.view(), sequences, ahead);
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      ended[i] = ended[i] || drawn[i] < 0;  // a NaN
      slices[i].tokens[0] = ended[i] ? 0 : drawn[i];
      if (ended[i]) continue;
      said[i].push_back(drawn[i]);
      if (first() && sequences[i]->drafting->rejects) sequences[i]->drafting->layer_laws.push_back(laws_[i]);
    }
  }
  return said;
}

// As StepRunner::sample draws, but for what changes logits.
std::vector<std::int32_t> MtpSteps::sample(Context& ctx, const View& hidden, std::span<Sequence* const> sequences, std::int64_t ahead) {
  Backend& backend = runtime_.backend;
  const ModelFacts& facts = runtime_.model->facts();
  const auto count = static_cast<std::int64_t>(sequences.size());
  DrawTable table;
  std::vector<float> min_p, temperature;
  std::vector<bool> checked;
  laws_.clear();
  for (const Sequence* sequence : sequences) {
    const bool rejects = sequence->drafting->rejects;  // drawn from a stream of its own
    table.add(table.rows(), sequence->sampling, sequence->known() + ahead, rejects ? RandomStream::draft : RandomStream::sampling);
    min_p.push_back(sequence->sampling.min_p);
    temperature.push_back(sequence->sampling.temperature);
    checked.push_back(rejects && first());
  }
  table.upload(backend);
  const bool cuts = std::any_of(min_p.begin(), min_p.end(), [](float least) { return least > 0; });
  const Buffer cut = cuts ? backend.device().upload(min_p, count, 1, MemoryCategory::activations) : Buffer();
  const std::int64_t most = std::clamp<std::int64_t>(kLayerLogits / facts.vocabulary, 16, std::max<std::int64_t>(count, 16));
  const auto allocate = [&](DType dtype, std::int64_t n, std::int64_t cols) { return backend.device().allocate(dtype, n, cols, MemoryCategory::workspace); };
  const Buffer chunk = allocate(DType::f32, std::min(most, count), facts.vocabulary), token = allocate(DType::i32, count, 1),
               logprob = allocate(DType::f32, count, 2), flags = backend.device().allocate_zero(DType::i32, count, 1, MemoryCategory::workspace);
  for (std::int64_t begin = 0; begin < count; begin += most) {
    const std::int64_t n = std::min(most, count - begin);
    const View z = chunk.view().row_range(0, n), row_of = table.hidden(begin, n);
    head_logits(ctx, z, hidden, row_of, facts.head);
    for (std::int64_t row = 0, end = 0; row < n; row = end) {  // sequences of one adapter stand together
      const auto adapter_of = [&](std::int64_t r) { return sequences[static_cast<std::size_t>(begin + r)]->adapter.get(); };
      for (end = row + 1; end < n && adapter_of(end) == adapter_of(row);) ++end;
      const AdapterWeights* whole = adapter_of(row);
      add_adapter_logits(ctx, z.row_range(row, end - row), hidden, row_of.row_range(row, end - row), facts.head,
                         whole && shares_ ? &shares_->of(*whole) : whole);
    }
    Sample sample = table.sample(begin, n, z);
    sample.token = token.view().row_range(begin, n);
    sample.raw_logprob = logprob.view().row_range(begin, n).column_range(0, 1);
    sample.sampling_logprob = logprob.view().row_range(begin, n).column_range(1, 1);
    sample.flags = flags.view().row_range(begin, n);
    if (cuts) sample.min_p = cut.view().row_range(begin, n);
    sample.maximum_leaves = runtime_.profile.maximum_leaves;
    const LawRows laws(backend, std::vector<bool>(checked.begin() + begin, checked.begin() + begin + n), facts.vocabulary);
    laws.attach(sample);
    backend.launch(&KernelTable::sample, sample);
    for (TokenLaw& law : laws.read(sample, std::span<const float>(temperature).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(n))))
      laws_.push_back(std::make_shared<const TokenLaw>(std::move(law)));
  }
  return backend.stream().read_ints(token.view()).get();
}

}  // namespace lockstep
