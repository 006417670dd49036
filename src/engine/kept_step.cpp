#include "engine/kept_step.h"

#include <algorithm>

#include "tensor/copies.h"

namespace lockstep {

KeptStep::KeptStep(Backend& backend, const std::shared_ptr<KeptForwards>& forwards, std::uint64_t identity, const std::vector<PlannedSlice>& plan)
    : backend_(backend), forwards_(forwards.get()) {
  if (!forwards || &forwards->backend() != &backend) return;
  std::int64_t row = 0;
  for (const PlannedSlice& p : plan) {
    Sequence& s = *p.sequence;
    const std::int64_t first = row;
    row += p.count;
    if (!s.keeps_forward) continue;
    if (s.mixed_versions) {
      s.kept_text.reset();
      continue;
    }
    const KeptForwards::Root root{identity, s.adapter ? s.adapter->identity : 0, s.prefix_owner};
    if (!s.kept_text || s.kept_text->root() != root) s.kept_text = std::make_unique<KeptText>(forwards, root);
    for (const KeptText::Place& place : s.kept_text->places(s.tokens, p.begin, p.begin + p.count))
      copies_.push_back({place.page, first + place.from, place.first, place.count});
    slices_.push_back({&p, first});
  }
}

void KeptStep::attach(ForwardOptions& options) {
  if (copies_.empty()) return;
  options.row_values = forwards_->row_values();
  options.row_sink = this;
}

void KeptStep::output(std::int64_t value, const View& rows, const Buffer&) {
  std::vector<Copied> pieces;
  pieces.reserve(copies_.size());
  for (const Copy& c : copies_)
    pieces.push_back({forwards_->layout().of_value(c.page->view(), value).row_range(c.first, c.count), rows.row_range(c.row, c.count)});
  copy_all(backend_.device(), pieces);
}

void KeptStep::enter(const std::vector<std::int32_t>& flags) {
  for (const Slice& slice : slices_) {
    const PlannedSlice& p = *slice.planned;
    const auto begin = flags.begin() + slice.row;
    if (std::all_of(begin, begin + p.count, [](std::int32_t flag) { return flag == 0; })) {
      p.sequence->kept_text->enter(p.sequence->tokens, p.begin, p.begin + p.count);
    } else {  // the request fails, or its text goes on without that row (behind a wrong guess or a cut); it is not kept further
      p.sequence->kept_text.reset();
      p.sequence->keeps_forward = false;
    }
  }
}

}  // namespace lockstep
