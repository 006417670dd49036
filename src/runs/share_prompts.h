// Whether sequences of one prompt share its rows in training: not, in the forward, or in the backward too; and the rule by which "auto" decides.
// Plain values.
//   const SharePrompts sharing = share_prompts_by_name("forward"); to_string(sharing);
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// Forward: the prompt's rows are computed once, and no bit changes. Backward: they are one sequence there too, which gives gradients other bits; it is
// declared in the data and recorded in checkpoints. Automatic: the rule below chooses before anything is trained.
enum class SharePrompts { automatic, off, forward, backward };

std::vector<std::string> share_prompts_names();
std::string to_string(SharePrompts sharing);
SharePrompts share_prompts_by_name(const std::string& name);  // invalid_argument

// Rows of training sequences, and those of them that a backward with shared prompts does not compute.
struct PromptRows {
  std::int64_t all = 0, saved = 0;
  double share() const { return all > 0 ? static_cast<double>(saved) / static_cast<double>(all) : 0; }
};

// The rule: the backward is shared where prompts of at least share_prompts_from tokens save at least this share of all rows. A choice of bits, so it is of
// counted rows alone, never of memory, threads, micro-batches or what was measured.
inline constexpr double kLeastSavedRows = 0.25;
inline constexpr std::int64_t kSharePromptsFrom = 256;

}  // namespace lockstep
