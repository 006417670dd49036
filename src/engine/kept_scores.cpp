#include "engine/kept_scores.h"

#include <algorithm>

#include "base/error.h"
#include "engine/slice_results.h"
#include "model/kept_compare.h"
#include "tensor/copies.h"

namespace lockstep {

namespace {
class KeptSliceRows final : public RowSource {
 public:
  KeptSliceRows(KeptForwards& forwards, const PlannedSlice& slice) : forwards_(forwards), slice_(slice), recomputes_(forwards.compares_forward()) {
    std::int64_t position = 0;
    for (const KeptForwards::Piece& piece : slice.sequence->kept_prompt.pieces) {
      const std::int64_t begin = std::max(position, slice.begin), end = std::min(position + piece.count, slice.begin + slice.count);
      if (begin < end) parts_.push_back({&piece, piece.first + begin - position, begin - slice.begin, end - begin});
      position += piece.count;
    }
  }
  std::int64_t rows_read() const override { return slice_.count; }
  std::int64_t width(std::int64_t value) const override { return forwards_.layout().width(value); }
  void read(std::int64_t value, const View& rows) override {
    std::vector<Copied> copies;
    copies.reserve(parts_.size());
    for (const Part& part : parts_) copies.push_back({rows.row_range(part.row, part.count), kept(part, value)});
    copy_all(forwards_.backend().device(), copies);
  }
  bool recomputes() const override { return recomputes_; }
  void compare(std::int64_t value, const View& made) override {
    std::vector<KeptAndMade> rows;
    for (const Part& part : parts_) {
      const View all = kept(part, value);
      for (std::int64_t i = 0; i < part.count; ++i) rows.push_back({all.row_range(i, 1), made.row_range(part.row + i, 1), -1, slice_.begin + part.row + i});
    }
    difference_ = kept_difference(forwards_.backend(), forwards_, value, rows);
    if (!difference_.empty()) fail(ErrorCode::internal, "{}", difference_);
    if (value == forwards_.layout().values() - 1) forwards_.statistics().compared += std::ssize(rows);
  }

  const std::string& difference() const { return difference_; }  // of a row that was kept from what is computed; empty: none was found

 private:
  // Rows [first, first + count) of a page, which are rows [row, row + count) of the slice.
  struct Part {
    const KeptForwards::Piece* page = nullptr;
    std::int64_t first = 0, row = 0, count = 0;
  };
  View kept(const Part& part, std::int64_t value) const {
    return forwards_.layout().of_value(part.page->rows->view(), value).row_range(part.first, part.count);
  }

  KeptForwards& forwards_;
  const PlannedSlice& slice_;
  const bool recomputes_;
  std::vector<Part> parts_;
  std::string difference_;
};
}  // namespace

std::string KeptScores::read(RankSteps& steps, KeptForwards& forwards, const Model& model, const PlannedSlice& slice, EngineCounters& counters) {
  Sequence& s = *slice.sequence;
  plan_.assign(1, slice);
  want_as_asked(plan_, model.facts().expert_shape().row(), model.facts().vocabulary, wants_);
  KeptSliceRows rows(forwards, slice);
  try {
    steps.run(plan_, wants_, result_, &rows);
  } catch (const Error& e) {
    if (rows.difference().empty()) throw;
    return e.what();  // a row is not what is computed: of this request alone
  }
  counters.work += result_.work;
  counters.work.expect_read(model, slice.count);
  forwards.statistics().read += slice.count;
  if (slice.begin + slice.count == s.kept_prompt.end) forwards.statistics().beside += s.known() - s.kept_prompt.end;
  const auto flagged = std::find_if(result_.row_flags.begin(), result_.row_flags.end(), [](std::int32_t flag) { return flag != 0; });
  if (flagged != result_.row_flags.end()) return describe_fault(s, *flagged, slice.begin + (flagged - result_.row_flags.begin()));
  take_scores(s, slice.begin, 0, result_);
  return {};
}

}  // namespace lockstep
