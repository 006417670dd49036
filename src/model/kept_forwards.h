// The layer outputs that earlier forwards computed, stored row by row, so that another forward of the same tokens under the same weights reads them
// instead of computing them (model/row_values.h): an engine stores what it samples, and a trainer of those weights trains on it. docs/kept-forwards.md.
//   auto kept = std::make_shared<KeptForwards>(runtime, RowValues::segments, KeptForwards::Settings{.most_bytes = bytes});
//   EngineOptions{.kept_forwards = kept}; TrainerOptions{.kept_forwards = kept};
// It is a prefix tree of pages for each owner, weights and adapter. A page stands for up to page_positions tokens of a text and may hold their rows; a
// page without rows only leads to others. At most `most_bytes` are held: the page used longest ago is dropped first, except pages that are being read
// and pages behind which others have rows. Of one runtime, whose thread fills pages; ranks on the CPU find and read them on threads of their own.
#pragma once
#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/memory_ledger.h"
#include "kernels/backend.h"
#include "model/page_rows.h"
#include "model/row_layout.h"

namespace lockstep {

struct Runtime;

class KeptForwards {
 public:
  struct Settings {
    std::int64_t most_bytes = 0;
    std::int64_t page_positions = 16;
    std::int64_t verify_every = 0;                 // compares one in that many read rows with a computed one; 0: none
    std::shared_ptr<MemoryLedger> room = nullptr;  // pages are claimed there too, as "kept forwards"
  };
  KeptForwards(Runtime& runtime, RowValues values, const Settings& settings);
  KeptForwards(const KeptForwards&) = delete;
  KeptForwards& operator=(const KeptForwards&) = delete;

  // Which weights the forwards used, WeightSet::identity and AdapterWeights::identity (0: no adapter), and whose they are: Request::prefix_owner, since rows
  // that one owner kept are nobody else's to find.
  struct Root {
    std::uint64_t weights = 0, adapter = 0, owner = 0;
    auto operator<=>(const Root&) const = default;
  };
  using Rows = PageRows;
  using RowsPointer = std::shared_ptr<const PageRows>;
  using Statistics = KeptRowStatistics;

  Backend& backend() { return backend_; }
  RowValues row_values() const { return what_; }
  const RowLayout& layout() const { return layout_; }
  const Settings& settings() const { return settings_; }
  Statistics& statistics() { return *statistics_; }

  // Memory for a page, for which others may be dropped; null: there is no room.
  RowsPointer allocate();

  // A page's id in the tree, never used again; kNowhere: its tree was forgotten.
  using PageId = std::uint64_t;
  static constexpr PageId kNowhere = 0;
  // The page in which a text of whole pages ends; makes the pages that are missing.
  PageId place(const Root& root, std::span<const std::int32_t> tokens);
  // Adds a page behind another: page_positions tokens, or fewer where the text ends. If a page with these tokens and rows exists, `rows` are dropped.
  // Returns the page's id.
  PageId enter(PageId before, std::vector<std::int32_t> tokens, RowsPointer rows);

  // Rows [first, first + count) of a page.
  struct Piece {
    RowsPointer rows;  // holding it keeps them in memory
    std::int64_t first = 0, count = 0;
  };
  // Appends the rows of positions [begin, end) of a text to `pieces`. False: some are missing, and nothing is appended.
  bool find(const Root& root, std::span<const std::int32_t> tokens, std::int64_t begin, std::int64_t end, std::vector<Piece>& pieces);
  // Drops the page used longest ago that nobody reads. False: there is none.
  bool drop_one();
  // Drops all rows computed under these weights, or under this adapter.
  void forget(std::uint64_t identity);
  // Which of the next `rows` read rows are to be compared: the first of every verify_every.
  std::vector<std::int64_t> rows_to_compare(std::int64_t rows);
  // The same for forwards without a backward: whether all rows of the next one are to be compared.
  bool compares_forward();

 private:
  struct Page {
    PageId before = kNowhere;
    std::vector<std::int32_t> tokens;
    RowsPointer rows;
    std::map<std::vector<std::int32_t>, PageId> behind;  // by their tokens
    std::int64_t kept_behind = 0;                        // of them with rows
    std::uint64_t last_use = 0;
  };
  Page* page(PageId id);
  // The page behind `at` that begins with these tokens; of several one with rows, if there is one.
  PageId behind(const Page& at, const std::vector<std::int32_t>& tokens) const;
  PageId add(PageId before, std::vector<std::int32_t> tokens);
  void set_rows(PageId id, RowsPointer rows);
  void touch(PageId id, Page& page);
  void take_rows(PageId id, Page& page);  // drops its rows
  void remove(PageId id);                 // with all behind it
  void prune(PageId id);
  bool may_go(const Page& page) const { return page.rows && page.kept_behind == 0; }
  bool drop_idle();  // drop_one() of a caller that has the lock

  std::mutex mutex_;  // of the trees
  Backend& backend_;
  const RowValues what_;
  const Settings settings_;
  const RowLayout layout_;
  std::shared_ptr<Statistics> statistics_;
  std::shared_ptr<PageBooks> books_;  // pages may outlive this
  std::map<Root, PageId> roots_;
  std::unordered_map<PageId, Page> pages_;
  std::set<std::pair<std::uint64_t, PageId>> idle_;  // (last use, id) of pages that may be dropped
  std::uint64_t clock_ = 0, next_id_ = 1, rows_read_ = 0, forwards_read_ = 0;
};

}  // namespace lockstep
