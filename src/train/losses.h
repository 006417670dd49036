// The losses by name: formula, defaults, options, required inputs. A loss is a row here, a formula in kernels/head/row_loss.h and a line of
// docs/losses.md. Pure functions.
//   LossOptions loss = loss_by_name("ppo", {{"clip_high_threshold", "1.28"}}); check_loss_data(data[0], 0, loss, vocabulary);
#pragma once
#include <string>
#include <string_view>
#include <variant>

#include "train/data.h"

namespace lockstep {

// A value of an option; text is parsed as a number or boolean where the option is one.
using LossValue = std::variant<double, bool, std::string>;
using LossConfig = std::vector<std::pair<std::string, LossValue>>;

// Options of a loss from texts "KEY=VALUE". Error invalid_argument.
LossConfig read_loss_config(const std::vector<std::string>& pairs);

struct LossRow {
  std::string_view name, formula;
  LossKind kind;
  bool sequence_ratio;  // ratio of the whole sequence
  float clip_low, clip_high;
  float log_ratio_low, log_ratio_high;
  unsigned options;  // which groups of options it takes
};
const std::vector<LossRow>& loss_rows();
std::vector<std::string> loss_names();
// The options that the loss takes, sorted.
std::vector<std::string> loss_option_names(const LossRow& row);

// Sums are its default (LossAveraging::sum). Errors invalid_argument: an unknown name or option (both name what is known, and the
// nearest), a value that is not allowed, options that contradict each other.
LossOptions loss_by_name(std::string_view name, const LossConfig& config = {});

// The values of the option `averaging`.
const std::vector<std::pair<std::string, LossAveraging>>& loss_averagings();

// Whether the loss weighs log-probabilities by advantages.
inline bool is_policy(LossKind kind) {
  return kind != LossKind::none && kind != LossKind::cross_entropy && kind != LossKind::value && kind != LossKind::divergence;
}

// Errors invalid_argument: parameters that are NaN or infinite, bounds in the wrong order, contradictions.
void check_loss_options(const LossOptions& loss);
// Checks the loss's inputs of sequence number `s`. Errors invalid_argument name the field, the place and what is allowed.
void check_loss_data(const TrainSequence& d, std::size_t s, const LossOptions& loss, std::int64_t vocabulary);

}  // namespace lockstep
