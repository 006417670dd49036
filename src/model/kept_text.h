// One text of KeptForwards while its forwards run: says in which page the values of each row are to be stored.
//   KeptText text(kept, {weights.identity, 0});
//   for (const KeptText::Place& p : text.places(tokens, begin, end)) copy(p); text.enter(tokens, begin, end);
// Rows may come in any chunks, and again after the text was truncated or its request preempted. A page is entered when it is full, the last one when
// the text ends. If a page was dropped meanwhile, the rest of the text is not stored. Used by one thread.
#pragma once
#include "model/kept_forwards.h"

namespace lockstep {

class KeptText {
 public:
  KeptText(std::shared_ptr<KeptForwards> forwards, const KeptForwards::Root& root) : forwards_(std::move(forwards)), root_(root) {}
  ~KeptText() { close(); }
  KeptText(const KeptText&) = delete;
  KeptText& operator=(const KeptText&) = delete;

  const KeptForwards::Root& root() const { return root_; }
  // Rows that a forward computes, from row `from` of those that were asked for on: they go to rows [first, first + count) of a page.
  struct Place {
    KeptForwards::RowsPointer page;
    std::int64_t from = 0, first = 0, count = 0;
  };
  // Of positions [begin, end) of the text `tokens`. Rows without a place are not kept.
  std::vector<Place> places(std::span<const std::int32_t> tokens, std::int64_t begin, std::int64_t end);
  // The same rows have been copied, and are sound.
  void enter(std::span<const std::int32_t> tokens, std::int64_t begin, std::int64_t end);

 private:
  struct Open {
    std::int64_t begin = 0;  // position of its first row
    std::vector<std::int32_t> tokens;
    KeptForwards::RowsPointer rows;  // null: they are not kept
  };
  void go_to(std::span<const std::int32_t> tokens, std::int64_t position);
  // Rows of the page before it that another text entered, for one that goes on inside it.
  bool copy_beginning(std::span<const std::int32_t> tokens, std::int64_t position);
  void close();

  std::shared_ptr<KeptForwards> forwards_;
  KeptForwards::Root root_;
  KeptForwards::PageId before_ = KeptForwards::kNowhere;  // of the page that is open
  bool begun_ = false, lost_ = false;                     // lost_: a page of it is gone
  Open open_;
  std::vector<Open> next_;  // pages behind it that the forward on its way fills
};

}  // namespace lockstep
