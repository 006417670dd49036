// Log-probabilities and gradients of given token sequences, for comparing this program with another: `lockstep score` and `lockstep grad`.
//   Scorer scorer(open_model(settings), ScoreVia::decode); scorer.score({{1, 5, 7}}, print);
// Knows no command line. One thread at a time.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>

#include "base/stop_token.h"
#include "engine/engine.h"
#include "serving/loading.h"
#include "train/adapter_trainer.h"
#include "train/losses.h"
#include "train/trainer.h"
#include "train/value_loss.h"

namespace lockstep {

// How rows are computed; all ways give the same bits.
enum class ScoreVia { train, prefill, chunked, decode };
std::vector<std::string> score_via_names();
ScoreVia score_via_by_name(std::string_view name);  // throws invalid_argument

struct ScoredRow {
  std::vector<float> logprobs;  // n - 1: [i] of token i + 1 given tokens 0..i
  std::string bits;             // XXH3-64 of them as little-endian fp32, hex
};
// {"logprobs":[...],"bits":"..."} with 9 significant digits, so that an fp32 reader gets the same bits.
std::string to_json_line(const ScoredRow& row);

// The sequences of a file of token lines (parity/score_input.h), within the model's vocabulary and context.
std::vector<std::vector<std::int32_t>> read_sequences(const OpenedModel& opened, const std::filesystem::path& path, std::int64_t shortest = 1);

// Options of an engine that scores sequences of up to `longest` tokens: its cache holds the longest, however much more than usual that takes.
EngineOptions scoring_options(const Runtime& runtime, const RankLayout& ranks, std::int64_t longest);

// What computes where other processes have some of the ranks: the training forward, with the adapter that it scores, and who follows an engine.
struct ScoreElsewhere {
  std::function<std::vector<std::vector<float>>(const std::vector<TrainSequence>&)> train = {};  // as Trainer::score; empty: all ranks are here
  ProcessMail* lead = nullptr;                                                                   // EngineOptions::lead
};

class Scorer {
 public:
  // `adapter`: PEFT's folder of one over the model; empty: none. Errors as load_adapter_folder.
  Scorer(const OpenedModel& opened, ScoreVia via, const std::filesystem::path& adapter = {}, ScoreElsewhere elsewhere = {});
  // Calls on_row once per sequence, in order. Errors: invalid_argument for tokens out of range; numeric for NaN or infinity; cancelled once stopped.
  void score(const std::vector<std::vector<std::int32_t>>& sequences, const std::function<void(const ScoredRow&)>& on_row, const StopToken& stop = {});

 private:
  std::shared_ptr<Runtime> runtime_;
  ScoreVia via_;
  RankLayout ranks_;
  ScoreElsewhere elsewhere_;
  std::shared_ptr<const WeightSet> weights_;  // of the engine, which is made when the sequences' lengths are known
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<const AdapterWeights> adapter_;
  std::shared_ptr<FrozenBase> base_;  // the training forward over weights that do not move
  std::unique_ptr<AdapterTrainer> adapter_trainer_;
};

// Training data of a file of lines {"tokens":[...]}, with or without columns of the names below, for any loss. Without "targets" the
// tokens are a whole text: n tokens, n - 1 rows of one target. With them the tokens are the rows and the columns have K entries a row.
// Weights are 1 where none are given. What a loss needs is checked by the trainer.
//   targets, weights, advantages, logprobs (the sampler's), proximal_logprobs, reference_logprobs, clip_low_threshold,
//   clip_high_threshold, sequence_ratio_mask
std::vector<TrainSequence> read_loss_sequences(const OpenedModel& opened, const std::filesystem::path& path);

struct GradientSummary {
  double loss = 0;
  std::int64_t sequences = 0, tokens = 0, tensors = 0;  // tokens: scored targets
  ForwardBackwardResult result;
};
// The gradient of the loss over `data` with respect to every trained weight, as a safetensors file: fp32, names and shapes of the
// model folder; the indexer has zeros, the correction bias is left out. The file is in place whole or not at all.
GradientSummary write_gradients(const OpenedModel& opened, const std::vector<TrainSequence>& data, const LossOptions& loss, const std::filesystem::path& path);
// {"logprobs":[...],"losses":[...],"entropies":[...]} of sequence `s`, 9 significant digits.
std::string to_json_line(const ForwardBackwardResult& result, std::size_t s);

}  // namespace lockstep
