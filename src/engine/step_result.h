// The outputs of a step, found by slice and column: one entry for each row that was wanted there (step_wants.h), in the same order.
// One object serves all steps. Used by one thread.
//   for (const StepResult::Sampled& s : result.sampled(slice)) ...; result.scored(slice, i)[0]
#pragma once
#include "engine/step_wants.h"
#include "model/forward_counts.h"

namespace lockstep {

struct StepResult {
  struct Sampled {
    std::int32_t token, flags;
    float raw_logprob, sampling_logprob;
  };
  using Top = std::vector<TokenLogprob>;
  using Experts = std::vector<std::uint16_t>;

  std::span<const Sampled> sampled(std::size_t slice) const { return rows_of(all_sampled, Column::sampled, slice); }
  // Entries may be moved from.
  std::span<Top> sampled_top(std::size_t slice) { return rows_of(all_sampled_top, Column::sampled_top, slice); }
  std::span<Top> scored_top(std::size_t slice) { return rows_of(all_scored_top, Column::scored_top, slice); }
  std::span<Experts> experts(std::size_t slice) { return rows_of(all_experts, Column::experts, slice); }
  std::span<KeptTokens> kept(std::size_t slice) { return rows_of(all_kept, Column::kept, slice); }
  // The cells of the slice's i-th row in these columns.
  std::span<const float> scored(std::size_t slice, std::size_t i) const { return cells_of(all_scored, wants->of(slice, Column::scored), i); }
  std::span<const TokenLogprob> drawn(std::size_t slice, std::size_t i) const { return cells_of(all_drawn, wants->of(slice, Column::drawn), i); }
  // [rows, hidden] of a slice.
  std::span<const float> hidden(std::size_t slice) const {
    const StepWants::Rows own = wants->of(slice, Column::hidden);
    const std::size_t width = own.empty() ? 0 : all_hidden.size() / static_cast<std::size_t>(wants->rows(Column::hidden));
    return std::span<const float>(all_hidden).subspan(static_cast<std::size_t>(own.first) * width, own.size() * width);
  }
  // Flags of a slice's rows, 0: sound (kernels/*/*.h say which bit is what).
  std::span<const std::int32_t> flags(std::size_t slice, std::int64_t count) const {
    return std::span<const std::int32_t>(row_flags).subspan(static_cast<std::size_t>(wants->row_begin(slice)), static_cast<std::size_t>(count));
  }

  // All slices' rows, one after another.
  const StepWants* wants = nullptr;
  std::vector<std::int32_t> row_flags;  // of every row of the forward
  std::vector<Sampled> all_sampled;
  std::vector<Top> all_sampled_top, all_scored_top;
  std::vector<float> all_scored, all_hidden;
  std::vector<TokenLogprob> all_drawn;
  std::vector<Experts> all_experts;
  std::vector<KeptTokens> all_kept;
  ForwardCounts work;  // counted by the kernels; what lengths ask for is not in it

 private:
  template <class T>
  std::span<T> rows_of(std::vector<T>& all, Column column, std::size_t slice) {
    const StepWants::Rows own = wants->of(slice, column);
    return std::span<T>(all).subspan(static_cast<std::size_t>(own.first), own.size());
  }
  template <class T>
  std::span<const T> rows_of(const std::vector<T>& all, Column column, std::size_t slice) const {
    const StepWants::Rows own = wants->of(slice, column);
    return std::span<const T>(all).subspan(static_cast<std::size_t>(own.first), own.size());
  }
  template <class T>
  static std::span<const T> cells_of(const std::vector<T>& all, const StepWants::Rows& own, std::size_t i) {
    const auto width = static_cast<std::size_t>(own.width);
    return std::span<const T>(all).subspan(static_cast<std::size_t>(own.first_cell) + i * width, width);
  }
};

}  // namespace lockstep
