// In which order sequences of several accounts (base/fair_shares.h) take what there is too little of: rows of a forward, places, pages. An
// account's sequences stand as they came, and the first of every account before the second of any: the one stream of a key before the
// 599 others of another key. With weight 2 an account's third stands beside the second of weight 1; classes are mixed likewise, by their
// shares. Sequences of one account alone, or of none, stand as they came.
// Where live work goes first (engine/live_room.h), classes are not mixed: all live sequences stand before the others, but for the first of those, which
// stands behind the first live one and keeps what it has.
// Knows no pages. One thread at a time.
//   for (const Ranked& r : fair_order(running, Ties::by_time, Classes::by_shares)) plan(*r.sequence);
#pragma once
#include <span>
#include <vector>

#include "engine/sequence.h"

namespace lockstep {

struct Ranked {
  Sequence* sequence = nullptr;
  double class_rank = 0, key_rank = 0;  // its number in its class over the class's share; in its account over the weight
};

// Among equals the first is who has had less of the device, or who came first: an order that does not change while nobody comes or goes.
enum class Ties { by_time, by_arrival };
// How sequences of several classes stand: mixed by the shares of the classes, or live ones first.
enum class Classes { by_shares, live_first };

// Whether it is live work, as all without an account is.
bool is_live(const Sequence& s);

// `sequences`: by id.
std::vector<Ranked> fair_order(std::span<Sequence* const> sequences, Ties ties, Classes classes);
// Whether more than one account has any of them.
bool of_several_accounts(std::span<Sequence* const> sequences);
// Whether `a` has more than `b`, both of one fair_order: another account's, and later there by more than a tie. Where live work goes first none of it has
// more than any other.
bool has_more(const Ranked& a, const Ranked& b, Classes classes);

}  // namespace lockstep
