#include "train/kept_forward.h"

#include <algorithm>

#include "base/byte_record.h"
#include "model/kept_compare.h"
#include "model/kept_ranks.h"
#include "tensor/copies.h"

namespace lockstep {

std::shared_ptr<KeptForwards> kept_over_ranks(const TrainerOptions& options, const RankLayout& ranks, Backend& backend) {
  const bool read = options.kept_forwards && keeps_over_ranks(ranks, options.kept_forwards->row_values(), backend.device().kind());
  return read ? options.kept_forwards : nullptr;
}

KeptForward::KeptForward(Backend& backend, std::shared_ptr<KeptForwards> forwards, std::vector<Slice> slices, Communicator* together)
    : backend_(backend), forwards_(std::move(forwards)), together_(together), slices_(std::move(slices)), found_(slices_.size()), made_(backend) {
  made_.copies = forwards_->row_values() == RowValues::operations;
  std::vector<std::vector<KeptForwards::Piece>> pieces(slices_.size());
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const Slice& s = slices_[i];
    // Rows of given experts are not those that the model's own router made.
    found_[i] = s.count() == 0 || (s.data->experts.empty() && forwards_->find(s.root, s.data->tokens, s.begin, s.end, pieces[i]));
  }
  agree_on_found();
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const Slice& s = slices_[i];
    std::int64_t position = s.begin;
    for (KeptForwards::Piece& piece : pieces[i]) {
      if (!found_[i]) break;
      const std::int64_t count = piece.count;
      runs_.push_back({std::move(piece.rows), piece.first, rows_ + position - s.begin, count, i, position});
      position += count;
    }
    rows_ += s.count();
    if (found_[i]) rows_read_ += s.count();
  }
}

// An engine that keeps rows beside this pass may drop a page after one rank has found it and before another looks for it.
void KeptForward::agree_on_found() {
  if (!together_) return;
  std::string here;
  for (const bool found : found_) here.push_back(found ? '1' : '0');
  for (const std::string& there : together_->gather_host(here))
    for (std::size_t i = 0; i < found_.size(); ++i)
      if (there[i] == '0') found_[i] = false;
}

bool KeptForward::everywhere(bool here) const {
  if (!together_) return here;
  const std::vector<std::string> all = together_->gather_host(here ? "1" : "0");
  return std::all_of(all.begin(), all.end(), [](const std::string& there) { return there == "1"; });
}

void KeptForward::Made::output(std::int64_t, const View& rows, const Buffer& memory) {
  if (!copies) return values.push_back(memory);
  values.push_back(backend.device().allocate(DType::f32, rows.rows, rows.cols, MemoryCategory::activations));
  backend.stream().copy(values.back().view(), rows);
}

std::vector<std::size_t> KeptForward::missing(std::size_t job) const {
  std::vector<std::size_t> sequences;
  for (std::size_t i = 0; i < slices_.size(); ++i)
    if (!found_[i] && slices_[i].job == job) sequences.push_back(slices_[i].sequence);
  std::sort(sequences.begin(), sequences.end());
  sequences.erase(std::unique(sequences.begin(), sequences.end()), sequences.end());
  return sequences;
}

void KeptForward::place_made(const RowOf& row_of) {
  std::int64_t row = 0;
  for (std::size_t i = 0; i < slices_.size(); row += slices_[i].count(), ++i) {
    const Slice& s = slices_[i];
    if (found_[i]) continue;
    for (std::int64_t p = s.begin; p < s.end;) {
      // Neighbours there are neighbours here.
      Run run{nullptr, row_of(s.job, s.sequence, p), row + p - s.begin, 1, i, p};
      while (p + run.count < s.end && row_of(s.job, s.sequence, p + run.count) == run.first + run.count) ++run.count;
      p += run.count;
      runs_.push_back(std::move(run));
    }
  }
}

// One row in so many where a backward makes segments again anyway; else one forward in so many, and all of its rows.
void KeptForward::begin(bool backward) {
  std::vector<std::int64_t> chosen;
  if (leads()) {
    forwards_->statistics().read += rows_read_;
    forwards_->statistics().beside += rows_ - rows_read_;
    const bool rows_again = backward && row_values() == RowValues::segments;
    recomputes_ = !rows_again && rows_read_ > 0 && forwards_->compares_forward();
    if (rows_again) chosen = forwards_->rows_to_compare(rows_read_);
  }
  if (together_) {
    ByteWriter decided;
    decided.value(recomputes_);
    decided.values(chosen);
    const std::vector<std::string> all = together_->gather_host(decided.bytes());
    ByteReader first(all.front());
    recomputes_ = first.value<bool>();
    chosen = first.values<std::int64_t>();
  }
  auto next = chosen.begin();
  std::int64_t row = 0;
  for (std::size_t r = 0; r < runs_.size(); ++r) {
    if (!runs_[r].rows) continue;
    for (std::int64_t at = 0; at < runs_[r].count; ++at, ++row) {
      const bool is_chosen = next != chosen.end() && *next == row;
      if (is_chosen) ++next;
      if (recomputes_ || is_chosen) compared_.push_back({r, at});
    }
  }
}

View KeptForward::from(const Run& run, std::int64_t value, std::int64_t first, std::int64_t count) const {
  const View all = run.rows ? forwards_->layout().of_value(run.rows->view(), value) : made_.values[static_cast<std::size_t>(value)].view();
  return all.row_range(run.first + first, count);
}

void KeptForward::read(std::int64_t value, const View& rows) {
  std::vector<Copied> pieces;
  pieces.reserve(runs_.size());
  for (const Run& run : runs_) pieces.push_back({rows.row_range(run.row, run.count), from(run, value, 0, run.count)});
  copy_all(backend_.device(), pieces);
}

void KeptForward::compare(std::int64_t value, const View& made) {
  std::vector<KeptAndMade> rows;
  rows.reserve(compared_.size());
  for (const Compared& one : compared_) {
    const Run& run = runs_[one.run];
    rows.push_back(
        {from(run, value, one.at, 1), made.row_range(run.row + one.at, 1), static_cast<std::int64_t>(slices_[run.slice].sequence), run.position + one.at});
  }
  compare_kept(backend_, *forwards_, value, rows);
  if (leads() && value == forwards_->layout().values() - 1) forwards_->statistics().compared += static_cast<std::int64_t>(rows.size());
}

}  // namespace lockstep
