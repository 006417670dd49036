// Values that earlier forwards made, row by row, so that another forward of the same rows reads them (model/row_values.h): an engine keeps what it
// samples, and a trainer of the same weights trains on it. docs/kept-forwards.md.
//   auto kept = std::make_shared<KeptForwards>(runtime, RowValues::segments, KeptForwards::Settings{.most_bytes = bytes});
//   EngineOptions{.kept_forwards = kept}; TrainerOptions{.kept_forwards = kept};
// Trees of pages, a tree for each version of weights and adapter. A page holds the rows of up to page_positions positions of a text and is found by the
// tokens from the text's beginning. A page without rows is a place in the tree alone. At most `most_bytes`; the page that was used longest ago and that no
// page with rows continues is dropped first, unless somebody reads it. One runtime; one thread at a time (the executor's); statistics() any.
#pragma once
#include <atomic>
#include <compare>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/memory_ledger.h"
#include "kernels/backend.h"
#include "model/row_values.h"

namespace lockstep {

struct Runtime;

// Columns of each value of a row. The model itself runs, on a backend that computes nothing.
std::vector<std::int64_t> row_widths(const Runtime& runtime, RowValues values);

class KeptForwards {
 public:
  struct Settings {
    std::int64_t most_bytes = 0;
    std::int64_t page_positions = 16;
    std::int64_t verify_every = 0;                 // compare one row in so many that are read; 0: none
    std::shared_ptr<MemoryLedger> room = nullptr;  // pages are claimed there too, as "kept forwards"
  };
  KeptForwards(Runtime& runtime, RowValues values, const Settings& settings);
  KeptForwards(const KeptForwards&) = delete;
  KeptForwards& operator=(const KeptForwards&) = delete;

  // Of which forwards: WeightSet::identity and AdapterWeights::identity (0: no adapter).
  struct Root {
    std::uint64_t weights = 0, adapter = 0;
    auto operator<=>(const Root&) const = default;
  };
  // Memory of a page, f32: value after value, of each all positions.
  class Rows;
  using RowsPointer = std::shared_ptr<const Rows>;
  struct Statistics {
    std::atomic<std::int64_t> kept{0}, dropped{0};  // rows that were entered; rows that found no place, or went for others
    std::atomic<std::int64_t> read{0}, beside{0};   // rows of passes: that were read, and that were computed beside them
    std::atomic<std::int64_t> compared{0};          // rows, each with all its values
    std::atomic<std::int64_t> bytes{0}, most{0};    // now, and at any time so far
  };

  Backend& backend() { return backend_; }
  RowValues row_values() const { return what_; }
  std::int64_t values() const { return static_cast<std::int64_t>(widths_.size()); }
  std::int64_t width(std::int64_t value) const { return widths_[static_cast<std::size_t>(value)]; }
  std::int64_t page_positions() const { return settings_.page_positions; }
  const Settings& settings() const { return settings_; }
  Statistics& statistics() { return *statistics_; }
  std::int64_t row_bytes() const { return row_values_bytes_; }
  std::int64_t page_bytes() const { return row_bytes() * page_positions(); }
  // A value of the page's rows: [page_positions, width].
  View of_value(const Rows& page, std::int64_t value) const;

  // Memory for a page, where there is some; null: there is none, and nothing else can go for it.
  RowsPointer allocate();

  // A page's place: an id that is never used again; kNowhere of a tree that was forgotten.
  using PageId = std::uint64_t;
  static constexpr PageId kNowhere = 0;
  // Where a text of whole pages ends: places are made as they are needed.
  PageId place(const Root& root, std::span<const std::int32_t> tokens);
  // Enters a page behind another: its tokens, page_positions of them or, where the text goes on no further, fewer. Where the same ones are there
  // already `rows` are not needed. Returns its place.
  PageId enter(PageId before, std::vector<std::int32_t> tokens, RowsPointer rows);

  // Rows [first, first + count) of a page.
  struct Piece {
    RowsPointer rows;  // they stay as long as this does
    std::int64_t first = 0, count = 0;
  };
  // The rows of positions [begin, end) of a text are appended to `pieces`. False: they are not all there, and nothing is appended.
  bool find(const Root& root, std::span<const std::int32_t> tokens, std::int64_t begin, std::int64_t end, std::vector<Piece>& pieces);
  // Drops the page that was used longest ago, of those that nobody reads. False: there is none.
  bool drop_one();
  // Forgets all of some weights, or of an adapter.
  void forget(std::uint64_t identity);
  // Which of the next `rows` rows that are read are compared with what is computed: of every verify_every the first.
  std::vector<std::int64_t> rows_to_compare(std::int64_t rows);
  // The same of forwards that no backward follows: whether all rows of the next one are.
  bool compares_forward() { return settings_.verify_every > 0 && forwards_read_++ % static_cast<std::uint64_t>(settings_.verify_every) == 0; }

 private:
  struct Page {
    PageId before = kNowhere;
    std::vector<std::int32_t> tokens;
    RowsPointer rows;
    std::map<std::vector<std::int32_t>, PageId> behind;  // by their tokens
    std::int64_t kept_behind = 0;                        // of them with rows
    std::uint64_t last_use = 0;
  };
  struct Books;  // of the memory of pages, which may outlive this
  Page* page(PageId id);
  // The page behind `at` that begins with these tokens; of several one with rows, if there is one.
  PageId behind(const Page& at, const std::vector<std::int32_t>& tokens) const;
  PageId add(PageId before, std::vector<std::int32_t> tokens);
  void set_rows(PageId id, RowsPointer rows);
  void touch(PageId id, Page& page);
  void take_rows(PageId id, Page& page);  // they go
  void remove(PageId id);                 // with all behind it
  void prune(PageId id);
  bool may_go(const Page& page) const { return page.rows && page.kept_behind == 0; }

  Backend& backend_;
  const RowValues what_;
  const Settings settings_;
  const std::vector<std::int64_t> widths_;
  std::vector<std::int64_t> begins_;  // columns before each value
  std::int64_t row_values_bytes_ = 0;
  std::shared_ptr<Statistics> statistics_;
  std::shared_ptr<Books> books_;
  std::map<Root, PageId> roots_;
  std::unordered_map<PageId, Page> pages_;
  std::set<std::pair<std::uint64_t, PageId>> idle_;  // (last use, id) of those that may go
  std::uint64_t clock_ = 0, next_id_ = 1, rows_read_ = 0, forwards_read_ = 0;
};

class KeptForwards::Rows {
 public:
  Rows(std::shared_ptr<Books> books, Buffer buffer, std::int64_t bytes);
  ~Rows();
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;
  const View& view() const { return buffer_.view(); }

 private:
  std::shared_ptr<Books> books_;
  Buffer buffer_;
  std::int64_t bytes_;
};

}  // namespace lockstep
