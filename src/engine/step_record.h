// What a step reads back to the host: one buffer of
//  [token | flags | likeliest ids | drawn ids | experts | kept sets | raw | sampling | scored log-probabilities | likeliest log-probabilities | drawn ones],
// each part as many cells as the step wants (step_wants.h). On the traced backend numbers have another size than integers and stand in a
// buffer of their own. Used by one thread.
//   StepRecord record(device, wants); ...launch into record.token()...; record.read(stream, result);
#pragma once
#include "engine/step_result.h"
#include "tensor/device.h"

namespace lockstep {

class StepRecord {
 public:
  StepRecord(Device& device, const StepWants& wants);
  View token() const { return integers(0, samples_, 1); }
  View flags() const { return integers(samples_, samples_, 1); }
  // All rows of a column have the width of the widest.
  View sampled_top_id() const { return integers(2 * samples_, sampled_top_, top_); }
  View scored_top_id() const { return integers(2 * samples_ + sampled_top_ * top_, scored_top_, top_); }
  View drawn_id() const { return integers(2 * samples_ + top_cells(), drawn_, 1); }
  View experts() const { return integers(2 * samples_ + top_cells() + drawn_, experts_, expert_width_); }
  View kept() const { return integers(2 * samples_ + top_cells() + drawn_ + experts_ * expert_width_, kept_, kept_width_); }
  View raw() const { return numbers(0, samples_, 1); }
  View sampling() const { return numbers(samples_, samples_, 1); }
  View scored() const { return numbers(2 * samples_, scored_, 1); }
  View sampled_top_logprob() const { return numbers(2 * samples_ + scored_, sampled_top_, top_); }
  View scored_top_logprob() const { return numbers(2 * samples_ + scored_ + sampled_top_ * top_, scored_top_, top_); }
  View drawn_logprob() const { return numbers(2 * samples_ + scored_ + top_cells(), drawn_, 1); }
  // All but flags of rows, hidden states and work.
  void read(Stream& stream, StepResult& result) const;

 private:
  std::int64_t top_cells() const { return (sampled_top_ + scored_top_) * top_; }
  std::int64_t integer_count() const { return 2 * samples_ + top_cells() + drawn_ + experts_ * expert_width_ + kept_ * kept_width_; }
  std::int64_t number_count() const { return 2 * samples_ + scored_ + top_cells() + drawn_; }
  View integers(std::int64_t begin, std::int64_t rows, std::int64_t cols) const;
  View numbers(std::int64_t begin, std::int64_t rows, std::int64_t cols) const;

  std::int64_t samples_, scored_, drawn_;  // scored, drawn: cells
  std::int64_t sampled_top_, scored_top_, top_, experts_, expert_width_, kept_, kept_width_;
  bool traced_;
  Buffer words_, numbers_;
};

}  // namespace lockstep
