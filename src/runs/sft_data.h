// Sources of sequences for supervised fine-tuning: a JSONL file, or the reference completions of an environment. A source is stateless: batch(step)
// is a function of (source, seed, step), so a run resumes from its step alone.
//   const SftData data = read_training_file("my.jsonl", chat_data, vocabulary, 4096); data.sequences.size();
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runs/chat_data.h"
#include "train/data.h"

namespace lockstep {

// The sequences of one problem: [first, first + count) of its batch.
struct SftProblem {
  std::size_t kind = 0;  // index into SftSource::kinds()
  std::size_t first = 0, count = 0;
  bool measured = true;  // counts for the rate of its kind
};
struct SftProblems {
  std::vector<TrainSequence> sequences;
  std::vector<SftProblem> problems;
  std::vector<std::vector<std::size_t>> answers = {};  // by sequence: the targets that the policy would write, whatever their weights
};

class SftSource {
 public:
  virtual ~SftSource() = default;
  // For sources with kinds of problems (runs/held_rates.h): the names of the kinds, and the problems of given kinds in step `step`.
  virtual std::vector<std::string> kinds() const { return {}; }
  virtual SftProblems problems_of(std::int64_t /*step*/, const std::vector<std::size_t>& /*kinds*/) const { return {}; }
  // The `count` sequences of step `step`; of an environment of many turns those of `count` problems.
  virtual std::vector<TrainSequence> batch(std::int64_t step, std::int64_t count) const = 0;
  virtual std::int64_t size() const { return 0; }    // sequences of an epoch; 0: there is no end
  virtual std::string digest() const { return {}; }  // identifies the data
};

// Inputs are all but the last token; a row's weight is its target's. Error invalid_argument for fewer than two tokens.
TrainSequence train_sequence(const WeightedTokens& tokens);

// One line of training data as an object: {"messages", "tools", "chat_template_kwargs"}, {"prompt", "completion"}, {"text"}, or {"tokens",
// "weights"} (weights aligned to targets: one fewer than tokens). Errors without the line's number.
WeightedTokens read_training_line(const nlohmann::ordered_json& line, const ChatData& data);

// Every line of a file of JSON objects that is not blank, with its number from 1. Errors: not_found; those of `take`, with the line's number.
void each_json_line(const std::string& path, const std::function<void(std::int64_t, const nlohmann::ordered_json&)>& take);
// The same as training data.
void each_training_line(const std::string& path, const ChatData& data, const std::function<void(std::int64_t, const WeightedTokens&)>& take);

struct SftData {
  std::vector<TrainSequence> sequences;
  std::int64_t untrained = 0;  // lines without a weighted token, which are left out
};
// Errors: corrupt_file and others with the line's number; corrupt_file where nothing is left to learn.
SftData read_training_file(const std::string& path, const ChatData& data, std::int64_t vocabulary, std::int64_t max_positions);

// Splits off this share of the sequences, at least one, chosen by the seed; the others keep their order.
std::vector<TrainSequence> hold_out(std::vector<TrainSequence>& sequences, double share, std::uint64_t seed);

// The places of step `step`'s `count` items among `size`, whose epochs are shuffled by (seed, epoch).
std::vector<std::size_t> shuffled_places(std::size_t size, std::uint64_t seed, std::int64_t step, std::int64_t count);
// The places that hold_out takes, ascending.
std::vector<std::size_t> held_out_places(std::size_t size, double share, std::uint64_t seed);

// Of the sequences' tokens, targets and weights.
std::string data_digest(const std::vector<TrainSequence>& sequences);

// Epochs are shuffled by (seed, epoch).
std::unique_ptr<SftSource> shuffled_source(std::vector<TrainSequence> sequences, std::uint64_t seed);

}  // namespace lockstep
