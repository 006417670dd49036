#include "engine/step_calls.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {

namespace {
struct SliceNumbers {
  std::int64_t begin, count, drafted, decode, last, targets_per_row, draws;
};

struct GuessNumbers {
  std::int64_t known;
  std::uint64_t seed, adapter;
  std::int32_t token, top_k, sample_index, attempt, rejects;
  float temperature, top_p, min_p;
};

// Elements [begin, end) of a list, as far as it has them, so that the reader finds each at its own place.
template <class T>
void put_part(ByteWriter& out, const std::vector<T>& list, std::int64_t begin, std::int64_t end) {
  const std::int64_t size = std::ssize(list), first = std::min(begin, size);
  out.value(first);
  out.values(std::vector<T>(list.begin() + first, list.begin() + std::clamp(end, first, size)));
}
template <class T>
std::vector<T> taken_part(ByteReader& in) {
  std::vector<T> list(static_cast<std::size_t>(in.value<std::int64_t>()));
  const std::vector<T> part = in.values<T>();
  list.insert(list.end(), part.begin(), part.end());
  return list;
}
template <class T>
std::shared_ptr<const T> known_as(const std::map<std::uint64_t, std::shared_ptr<const T>>& known, std::uint64_t identity) {
  if (identity == 0) return nullptr;
  const auto at = known.find(identity);
  if (at == known.end()) fail(ErrorCode::internal, "process 0 makes a step with weights or an adapter ({}) that it has not sent", identity);
  return at->second;
}
}  // namespace

void put_adapter(ByteWriter& out, const AdapterWeights& adapter, const WeightImages& images) {
  out.value(adapter.identity);
  out.value(adapter.version);
  out.value(adapter.layout->settings());
  for (const std::vector<float>& image : images) out.values(image);
}

std::pair<std::shared_ptr<const AdapterWeights>, WeightImages> taken_adapter(ByteReader& in, const Manifest& model, StandIns& known) {
  const auto identity = in.value<std::uint64_t>();
  auto adapter = std::make_shared<AdapterWeights>();
  adapter->version = in.value<std::uint64_t>();
  adapter->layout = std::make_shared<const AdapterLayout>(model, in.value<AdapterSettings>());
  WeightImages images(adapter->layout->manifest().parameters().size());
  for (std::vector<float>& image : images) image = in.values<float>();
  known.adapters[identity] = adapter;
  return {adapter, std::move(images)};
}

void put_parameter(ByteWriter& out, const HostParameter& values) {
  out.values(values.numbers);
  out.values(values.bytes);
}

HostParameter taken_parameter(ByteReader& in) {
  HostParameter values;
  values.numbers = in.values<float>();
  values.bytes = in.values<std::uint8_t>();
  return values;
}

void put_changes(ByteWriter& out, const ParameterChanges& changes) {
  out.value(static_cast<std::uint64_t>(changes.blocks().size()));
  for (const ParameterChanges::Block& block : changes.blocks()) out.value(block.first), out.values(block.offsets), out.values(block.bits);
}

ParameterChanges taken_changes(ByteReader& in) {
  ParameterChanges changes;
  for (auto blocks = in.value<std::uint64_t>(); blocks > 0; --blocks) {
    const auto first = in.value<std::int64_t>();
    const auto offsets = in.values<std::int32_t>(), bits = in.values<std::int32_t>();
    for (std::size_t i = 0; i < offsets.size(); ++i) changes.add(first + offsets[i], static_cast<std::uint32_t>(bits[i]));
  }
  return changes;
}

void put_engine_options(ByteWriter& out, const EngineOptions& options) {
  out.value(options.page_size);
  out.value(options.cache_pages);
  out.value(options.max_sequences);
  out.value(options.ranks.tp);
  out.value(options.ranks.ep);
  out.value(options.ranks.pp);
}

EngineOptions taken_engine_options(ByteReader& in) {
  EngineOptions options;
  options.page_size = in.value<std::int64_t>();
  options.cache_pages = in.value<std::int64_t>();
  options.max_sequences = in.value<std::int64_t>();
  options.ranks.tp = in.value<int>();
  options.ranks.ep = in.value<int>();
  options.ranks.pp = in.value<int>();
  return options;
}

void put_step(ByteWriter& out, const std::vector<PlannedSlice>& plan, const StepWants& wants) {
  out.value(static_cast<std::uint64_t>(plan.size()));
  out.value(plan[0].sequence->weights ? plan[0].sequence->weights->identity : std::uint64_t{0});  // of all
  for (const PlannedSlice& p : plan) {
    const Sequence& s = *p.sequence;
    out.value(SliceNumbers{p.begin, p.count, p.drafted, p.decode, p.last, s.prompt_targets_per_row, s.prompt_draws});
    put_part(out, s.tokens, p.begin, p.begin + p.count + 1);  // a scored row reads the token after it
    put_part(out, s.prompt_targets, p.begin * s.prompt_targets_per_row, (p.begin + p.count) * s.prompt_targets_per_row);
    out.values(s.pages);
    out.value(s.adapter ? s.adapter->identity : std::uint64_t{0});
  }
  for (std::size_t i = 0; i < plan.size(); ++i)
    for (std::size_t column = 0; column < kColumns; ++column) {
      const StepWants::Rows own = wants.of(i, static_cast<Column>(column));
      out.value(own.width);
      out.values(std::vector<std::int32_t>(own.rows.begin(), own.rows.end()));
    }
}

TakenStep taken_step(ByteReader& in, const StandIns& known) {
  TakenStep step;
  step.sequences.resize(static_cast<std::size_t>(in.value<std::uint64_t>()));
  const auto weights = known_as(known.weights, in.value<std::uint64_t>());
  for (Sequence& s : step.sequences) {
    const auto numbers = in.value<SliceNumbers>();
    s.prompt_targets_per_row = numbers.targets_per_row;
    s.prompt_draws = numbers.draws;
    s.tokens = taken_part<std::int32_t>(in);
    s.prompt_targets = taken_part<std::int32_t>(in);
    s.pages = in.values<std::int32_t>();
    s.weights = weights;
    s.adapter = known_as(known.adapters, in.value<std::uint64_t>());
    step.plan.push_back({&s, numbers.begin, numbers.count, numbers.decode != 0, numbers.last != 0, numbers.drafted});
  }
  step.wants.begin(step.plan);
  for (std::size_t i = 0; i < step.plan.size(); ++i) {
    for (std::size_t column = 0; column < kColumns; ++column) {
      const auto width = in.value<std::int64_t>();
      for (const std::int32_t row : in.values<std::int32_t>()) step.wants.want(static_cast<Column>(column), row, width);
    }
    step.wants.end_slice();
  }
  return step;
}

void put_guess(ByteWriter& out, std::span<Sequence* const> sequences, std::int64_t tokens) {
  out.value(tokens);
  out.value(static_cast<std::uint64_t>(sequences.size()));
  out.value(sequences.front()->weights ? sequences.front()->weights->identity : std::uint64_t{0});  // of all
  for (const Sequence* s : sequences) {
    const SamplingParameters& by = s->sampling;
    out.value(GuessNumbers{s->known(), by.seed, s->adapter ? s->adapter->identity : 0, s->tokens.back(), by.top_k, by.sample_index, by.attempt,
                           s->drafting->rejects ? 1 : 0, by.temperature, by.top_p, by.min_p});
    out.values(s->pages);
  }
}

TakenGuess taken_guess(ByteReader& in, const StandIns& known) {
  TakenGuess guess;
  guess.tokens = in.value<std::int64_t>();
  guess.sequences.resize(static_cast<std::size_t>(in.value<std::uint64_t>()));
  const auto weights = known_as(known.weights, in.value<std::uint64_t>());
  for (Sequence& s : guess.sequences) {
    const auto numbers = in.value<GuessNumbers>();
    s.tokens.resize(static_cast<std::size_t>(numbers.known));
    s.tokens.back() = numbers.token;
    s.sampling = {.temperature = numbers.temperature,
                  .top_p = numbers.top_p,
                  .top_k = numbers.top_k,
                  .min_p = numbers.min_p,
                  .seed = numbers.seed,
                  .sample_index = numbers.sample_index,
                  .attempt = numbers.attempt};
    s.drafting = std::make_unique<Drafting>();
    s.drafting->rejects = numbers.rejects != 0;
    s.weights = weights;
    s.adapter = known_as(known.adapters, numbers.adapter);
    s.pages = in.values<std::int32_t>();
    guess.asked.push_back(&s);
  }
  return guess;
}

}  // namespace lockstep
