#include "parity/score.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/choice.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "checkpoint/adapter_folder.h"
#include "checkpoint/safetensors.h"
#include "model/kv_cache.h"
#include "model/value_head.h"
#include "parity/engine_ways.h"
#include "parity/score_input.h"
#include "train/kept_rows.h"
#include "train/loss_input_names.h"

namespace lockstep {

namespace {
constexpr std::array<std::string_view, 4> kViaNames = {"train", "prefill", "chunked", "decode"};  // in the order of ScoreVia
constexpr std::size_t kRowsAtOnce = 4096;                                                         // of the training way, in one forward

ScoredRow scored(std::vector<float> logprobs) {
  ScoredRow row{std::move(logprobs), {}};
  row.bits = hex64(xxh3(row.logprobs.data(), row.logprobs.size() * sizeof(float)));
  return row;
}
}  // namespace

std::vector<std::vector<std::int32_t>> read_sequences(const OpenedModel& opened, const std::filesystem::path& path, std::int64_t shortest) {
  std::vector<std::vector<std::int32_t>> sequences;
  for (TokenLine& line :
       read_token_lines(path, {.vocabulary = opened.runtime->model->facts().vocabulary, .shortest = shortest, .longest = opened.runtime->max_positions}))
    sequences.push_back(std::move(line.tokens));
  return sequences;
}

std::vector<std::string> score_via_names() { return {kViaNames.begin(), kViaNames.end()}; }

ScoreVia score_via_by_name(std::string_view name) { return static_cast<ScoreVia>(check_choice("via", name, score_via_names())); }

std::string to_json_line(const ScoredRow& row) {
  std::string text = "{\"logprobs\":[";
  for (std::size_t i = 0; i < row.logprobs.size(); ++i) fmt::format_to(std::back_inserter(text), "{}{:.9g}", i ? "," : "", row.logprobs[i]);
  return text + "],\"bits\":\"" + row.bits + "\"}";
}

EngineOptions scoring_options(const Runtime& runtime, const RankLayout& ranks, std::int64_t longest) {
  EngineOptions options{.ranks = ranks};
  const std::int64_t positions = (longest / options.page_size + 1) * options.page_size;
  options.cache_bytes = std::max(options.cache_bytes, positions * KvCache::bytes_a_position(runtime.model->cache_shapes(runtime.profile), runtime.profile));
  return options;
}

Scorer::Scorer(const OpenedModel& opened, ScoreVia via, const std::filesystem::path& adapter, ScoreElsewhere elsewhere)
    : runtime_(opened.runtime), via_(via), ranks_(opened.ranks), elsewhere_(std::move(elsewhere)) {
  refuse_value_head(*opened.model, "its tokens have no log-probabilities; lockstep grad --loss value --rows FILE writes its values");
  if (via == ScoreVia::train && elsewhere_.train) return;
  // Scoring trains nothing: the weights are read into what is computed with, a tensor at a time, and what a file has in few bits as it stands.
  if (via == ScoreVia::train) base_ = std::make_shared<FrozenBase>(*runtime_, opened.weight_set(), TrainerOptions{.ranks = ranks_});
  else weights_ = opened.weight_set();
  if (!adapter.empty()) {
    LoadedAdapter read = load_adapter_folder(adapter, runtime_->model->manifest());
    if (base_) adapter_trainer_ = std::make_unique<AdapterTrainer>(base_, read.layout, read.images);
    else adapter_ = make_adapter(runtime_->backend, read.layout, read.images, 0);
  }
}

void Scorer::score(const std::vector<std::vector<std::int32_t>>& sequences, const std::function<void(const ScoredRow&)>& on_row, const StopToken& stop) {
  if (via_ != ScoreVia::train) {
    std::size_t longest = 0;
    for (const std::vector<std::int32_t>& sequence : sequences) longest = std::max(longest, sequence.size());
    if (const auto wanted = static_cast<std::int64_t>(longest); !engine_ || engine_->limits().cache_positions < wanted) {
      engine_.reset();
      EngineOptions options = scoring_options(*runtime_, ranks_, wanted);
      options.lead = elsewhere_.lead;
      engine_ = std::make_unique<Engine>(*runtime_, weights_, options);
    }
    const auto kind = static_cast<ScoreKind>(static_cast<int>(via_) - 1);
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      stop.throw_if_stopped();
      on_row(scored(with_context(fmt::format("scoring sequence {}", i + 1),
                                 [&] { return engine_score(*engine_, sequences[i], {.kind = kind, .seed = i, .adapter = adapter_}); })));
    }
    return;
  }
  // Several sequences a forward; one of a single token has nothing to score and no row.
  for (std::size_t begin = 0; begin < sequences.size();) {
    stop.throw_if_stopped();
    std::vector<TrainSequence> data;
    std::size_t end = begin, rows = 0;
    for (; end < sequences.size() && (end == begin || rows + sequences[end].size() <= kRowsAtOnce); ++end) {
      rows += sequences[end].size();
      if (sequences[end].size() > 1) data.push_back(TrainSequence::next_token(sequences[end]));
    }
    const auto logprobs = with_context(fmt::format("scoring sequences {} to {}", begin + 1, end), [&] {
      if (data.empty()) return std::vector<std::vector<float>>();
      if (elsewhere_.train) return elsewhere_.train(data);
      return adapter_trainer_ ? adapter_trainer_->score(data) : base_->score(data);
    });
    for (std::size_t i = begin, at = 0; i < end; ++i) on_row(scored(sequences[i].size() > 1 ? logprobs[at++] : std::vector<float>()));
    begin = end;
  }
}

std::vector<TrainSequence> read_loss_sequences(const OpenedModel& opened, const std::filesystem::path& path) {
  TokenBounds bounds{.vocabulary = opened.runtime->model->facts().vocabulary,
                     .shortest = 1,
                     .longest = opened.runtime->max_positions,
                     .columns = {"targets", "temperature", "kept_tokens", "kept_by_rank"}};
  std::vector<LossInputName> inputs(std::begin(kLossInputNames), std::end(kLossInputNames));
  if (has_value_head(*opened.model)) inputs.insert(inputs.end(), std::begin(kValueInputNames) + 1, std::end(kValueInputNames));  // weights are there
  for (const auto& [name, member] : inputs) bounds.columns.push_back(name);
  std::vector<TrainSequence> data;
  for (const TokenLine& line : read_token_lines(path, bounds)) {
    const auto wrong = [&](const std::string& what) { fail(ErrorCode::corrupt_file, "'{}' line {}: {}", path.string(), line.line, what); };
    const auto targets = line.columns.find("targets");
    TrainSequence d;
    if (targets == line.columns.end()) {
      if (line.tokens.size() < 2) wrong("tokens has 1 entries, allowed are at least 2 where no targets are given");
      d = TrainSequence::next_token(line.tokens);
    } else {
      d.tokens = line.tokens;
      for (const double id : targets->second) {
        if (!(id >= -1 && id < static_cast<double>(bounds.vocabulary)) || id != static_cast<double>(static_cast<std::int32_t>(id)))
          wrong(fmt::format("a target is {}, allowed are -1 and token ids from 0 to {}", id, bounds.vocabulary - 1));
        d.targets.push_back(static_cast<std::int32_t>(id));
      }
      if (d.targets.empty() || d.targets.size() % d.tokens.size() != 0)
        wrong(fmt::format("{} tokens have {} targets, allowed is a multiple", d.tokens.size(), d.targets.size()));
      d.targets_per_row = static_cast<std::int64_t>(d.targets.size() / d.tokens.size());
      d.weights.assign(d.targets.size(), 1.0f);
    }
    for (const auto& [name, member] : inputs)
      if (const auto found = line.columns.find(name); found != line.columns.end()) {
        (d.*member).clear();
        for (const double value : found->second) (d.*member).push_back(static_cast<float>(value));
      }
    const auto integers = [&](const char* name) {
      std::vector<std::int64_t> values;
      const auto found = line.columns.find(name);
      for (const double value : found == line.columns.end() ? std::vector<double>() : found->second) {
        if (!(std::fabs(value) < 1e15) || value != std::floor(value)) wrong(fmt::format("{} has {}, allowed are whole numbers", name, value));
        values.push_back(static_cast<std::int64_t>(value));
      }
      return values;
    };
    if (const auto found = line.columns.find("temperature"); found != line.columns.end()) {
      if (found->second.size() != 1) wrong(fmt::format("temperature has {} numbers, allowed is 1", found->second.size()));
      d.temperature = static_cast<float>(found->second[0]);
    }
    if (line.columns.contains("kept_tokens"))
      d.kept_tokens = kept_rows(integers("kept_tokens"), d.tokens.size(), integers("kept_by_rank"), bounds.vocabulary,
                                fmt::format("'{}' line {}: kept_tokens", path.string(), line.line));
    else if (line.columns.contains("kept_by_rank")) wrong("kept_by_rank is given without kept_tokens");
    data.push_back(std::move(d));
  }
  return data;
}

std::string to_json_line(const ForwardBackwardResult& result, std::size_t s) {
  const auto list = [](const std::vector<float>& values) {
    std::string text;
    for (const float v : values) fmt::format_to(std::back_inserter(text), "{}{:.9g}", text.empty() ? "" : ",", v);
    return text;
  };
  return fmt::format("{{\"logprobs\":[{}],\"losses\":[{}],\"entropies\":[{}]}}", list(result.logprobs[s]), list(result.losses[s]), list(result.entropies[s]));
}

GradientSummary write_gradients(const OpenedModel& opened, const std::vector<TrainSequence>& data, const LossOptions& loss, const std::filesystem::path& path) {
  Runtime& runtime = *opened.runtime;
  check_trainable(runtime.profile);
  const Manifest& manifest = runtime.model->manifest();
  GradientSummary summary;
  std::size_t rows = 0;
  for (const TrainSequence& d : data) rows += d.tokens.size();
  summary.sequences = static_cast<std::int64_t>(data.size());
  // Micro-batches bound the memory of many sequences and change no bit; one batch needs no accumulators that persist.
  Trainer trainer(runtime, opened.masters(), {.micro_batch = rows > kRowsAtOnce ? 4 : 0, .ranks = opened.ranks});
  summary.result = trainer.forward_backward(data, loss);
  summary.loss = summary.result.loss;
  summary.tokens = summary.result.scored;
  const WeightImages gradients = trainer.gradient_images();

  std::vector<SafetensorsWriter::Entry> entries;
  for (const FileTensor& file : manifest.files())
    if (!file.fp32) entries.push_back({file.name, SafetensorsType::f32, file.shape});
  AtomicFile out(path);
  SafetensorsWriter writer([&](const void* bytes, std::size_t n) { out.write(bytes, n); }, std::move(entries),
                           {{"format", "pt"}, {"profile", runtime.profile.name}});
  std::vector<float> values;
  for (const SafetensorsWriter::Entry& entry : writer.entries()) {
    const auto file = std::find_if(manifest.files().begin(), manifest.files().end(), [&](const FileTensor& f) { return f.name == entry.name; });
    values.resize(static_cast<std::size_t>(file->size()));
    manifest.gather(*file, gradients, values.data());
    writer.write(values);
    ++summary.tensors;
  }
  writer.finish();
  out.commit();
  return summary;
}

}  // namespace lockstep
