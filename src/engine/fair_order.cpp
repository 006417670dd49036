#include "engine/fair_order.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "base/fair_shares.h"

namespace lockstep {
namespace {
// Read once: they may change while others are sorted by them.
struct Standing {
  Ranked ranked;
  WorkClass work = WorkClass::live;
  double class_share = 1, class_time = 0, time = 0;
};

// Of what is not live where live work goes first: its second sequence stands behind all of that.
constexpr double kLeastShare = 1e-12;

Standing standing_of(Sequence* s, Ties ties, Classes classes) {
  Standing one{.ranked = {.sequence = s}};
  if (!s->account) return one;
  one.work = s->account->work;
  one.class_share = classes == Classes::live_first && one.work != WorkClass::live ? kLeastShare : s->account->class_share;
  if (ties == Ties::by_arrival) return one;
  if (classes == Classes::by_shares) one.class_time = s->account->class_time();
  one.time = s->account->virtual_time();
  return one;
}
}  // namespace

bool is_live(const Sequence& s) { return !s.account || s.account->work == WorkClass::live; }

bool of_several_accounts(std::span<Sequence* const> sequences) {
  return std::any_of(sequences.begin(), sequences.end(), [&](const Sequence* s) { return s->account != sequences.front()->account; });
}

std::vector<Ranked> fair_order(std::span<Sequence* const> sequences, Ties ties, Classes classes) {
  std::vector<Ranked> order;
  order.reserve(sequences.size());
  if (!of_several_accounts(sequences)) {
    for (Sequence* s : sequences)
      order.push_back({.sequence = s, .class_rank = static_cast<double>(order.size()), .key_rank = static_cast<double>(order.size())});
    return order;
  }
  struct Counted {
    double weight = 1, number = 0;
  };
  std::unordered_map<const ShareAccount*, Counted> counted;
  std::vector<Standing> all;
  all.reserve(sequences.size());
  for (Sequence* s : sequences) {
    all.push_back(standing_of(s, ties, classes));
    const auto [its, is_first] = counted.try_emplace(s->account.get());
    if (is_first && s->account) its->second.weight = s->account->weight();
    all.back().ranked.key_rank = its->second.number++ / its->second.weight;
  }
  const auto in_class = [](const Standing& a) { return std::tuple(a.work, a.ranked.key_rank, a.time, a.ranked.sequence->id); };
  std::sort(all.begin(), all.end(), [&](const Standing& a, const Standing& b) { return in_class(a) < in_class(b); });
  double number = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i > 0 && all[i].work != all[i - 1].work) number = 0;
    all[i].ranked.class_rank = number++ / all[i].class_share;
  }
  const auto among_classes = [](const Standing& a) { return std::tuple(a.ranked.class_rank, a.class_time, a.work); };
  std::stable_sort(all.begin(), all.end(), [&](const Standing& a, const Standing& b) { return among_classes(a) < among_classes(b); });
  for (const Standing& one : all) order.push_back(one.ranked);
  return order;
}

bool has_more(const Ranked& a, const Ranked& b, Classes classes) {
  const ShareAccount *of_a = a.sequence->account.get(), *of_b = b.sequence->account.get();
  if (of_a == of_b) return false;
  const WorkClass class_of_a = of_a ? of_a->work : WorkClass::live, class_of_b = of_b ? of_b->work : WorkClass::live;
  if (class_of_a == class_of_b) return a.key_rank > b.key_rank;
  if (classes == Classes::live_first && class_of_a == WorkClass::live) return false;
  return a.class_rank > b.class_rank;
}

}  // namespace lockstep
