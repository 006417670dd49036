// The forward of a training pass, some of whose rows an engine has already computed (model/kept_forwards.h). It finds these rows by their texts and
// gathers them, one value at a time; the other rows are computed by a forward of their own. Ranks that share the model run the pass alike: what one of them
// does not find, all of them compute, and the first one decides what is compared.
//   KeptForward kept(backend, forwards, slices); ...a forward of kept.missing(0) into kept.made()...; kept.place_made(...); kept.begin(true);
//   options.row_source = &kept;
// The pages that it reads stay in memory as long as it exists. Used by one thread.
#pragma once
#include <functional>

#include "model/kept_forwards.h"
#include "model/row_values.h"
#include "parallel/communicator.h"
#include "train/data.h"
#include "train/options.h"

namespace lockstep {

// The options' kept forwards where ranks of this layout read them (model/kept_ranks.h), else null.
std::shared_ptr<KeptForwards> kept_over_ranks(const TrainerOptions& options, const RankLayout& ranks, Backend& backend);

class KeptForward final : public RowSource {
 public:
  // Consecutive rows of the forward: positions [begin, end) of a sequence's text.
  struct Slice {
    KeptForwards::Root root;
    std::size_t job = 0, sequence = 0;
    const TrainSequence* data = nullptr;
    std::int64_t begin = 0, end = 0;
    std::int64_t count() const { return end - begin; }
  };
  // `together`: the ranks that share the model (RankPlace::model), each of which makes the same calls; null: this rank has all of it.
  KeptForward(Backend& backend, std::shared_ptr<KeptForwards> forwards, std::vector<Slice> slices, Communicator* together = nullptr);

  std::int64_t rows_read() const override { return rows_read_; }
  std::int64_t rows() const { return rows_; }
  bool complete() const { return rows_read_ == rows_; }
  // Sequences of a job with a slice that was not found, each once, ascending.
  std::vector<std::size_t> missing(std::size_t job) const;
  // Receives the forward that computes those. Row_of(job, sequence, position) is its row of a position.
  RowSink& made() { return made_; }
  using RowOf = std::function<std::int64_t(std::size_t job, std::size_t sequence, std::int64_t position)>;
  void place_made(const RowOf& row_of);
  // Whether something holds on every rank.
  bool everywhere(bool here) const;
  RowValues row_values() const { return forwards_->row_values(); }
  // Before the forward: whether a backward follows, which recomputes segments. What is compared is decided here.
  void begin(bool backward);

  std::int64_t width(std::int64_t value) const override { return forwards_->layout().width(value); }
  void read(std::int64_t value, const View& rows) override;
  bool recomputes() const override { return recomputes_; }
  void compare(std::int64_t value, const View& made) override;

 private:
  // Rows [row, row + count) of the forward: of a page, or (rows null) of those that were computed.
  struct Run {
    KeptForwards::RowsPointer rows;
    std::int64_t first = 0, row = 0, count = 0;
    std::size_t slice = 0;
    std::int64_t position = 0;  // of its first row
  };
  struct Made final : RowSink {
    explicit Made(Backend& b) : backend(b) {}
    void output(std::int64_t value, const View& rows, const Buffer& memory) override;
    Backend& backend;
    bool copies = false;  // what an operation made may be written in place behind it
    std::vector<Buffer> values;
  };
  struct Compared {
    std::size_t run = 0;
    std::int64_t at = 0;  // of its rows
  };
  void agree_on_found();
  bool leads() const { return !together_ || together_->rank() == 0; }
  View from(const Run& run, std::int64_t value, std::int64_t first, std::int64_t count) const;

  Backend& backend_;
  std::shared_ptr<KeptForwards> forwards_;
  Communicator* together_;
  std::vector<Slice> slices_;
  std::vector<bool> found_;  // of each slice
  std::vector<Run> runs_;
  Made made_;
  std::vector<Compared> compared_;
  std::int64_t rows_ = 0, rows_read_ = 0;
  bool recomputes_ = false;
};

}  // namespace lockstep
