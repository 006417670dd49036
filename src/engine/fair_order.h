// The order in which sequences get rows of a forward, places and pages when there are too few for all. Example: one key has 600 streams, another
// has one; that one comes second, not 601st. The first sequence of every account (base/fair_shares.h) comes before the second of any, and sequences
// of one account keep the order in which they arrived. An account of weight 2 has two sequences for each one of an account of weight 1; classes of
// work are mixed in the same way, by their shares.
// Where live work goes first (engine/live_room.h), classes are not mixed: all live sequences come before the others, except the first of the
// others, which comes after the first live one and keeps its rows and pages.
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

// Ties: the account that has had less of the device goes first, or the one that came first (an order that is stable while none comes or goes).
enum class Ties { by_time, by_arrival };
// Order of sequences of several classes: mixed by the classes' shares, or live ones first.
enum class Classes { by_shares, live_first };

// Whether it is live work; sequences without an account are.
bool is_live(const Sequence& s);

// `sequences`: by id.
std::vector<Ranked> fair_order(std::span<Sequence* const> sequences, Ties ties, Classes classes);
// Whether more than one account has any of them.
bool of_several_accounts(std::span<Sequence* const> sequences);
// Whether `a` has more than its share relative to `b`, both of one fair_order: another account's, and later there by more than a tie. Where live work
// goes first, no live sequence has more than any other.
bool has_more(const Ranked& a, const Ranked& b, Classes classes);

}  // namespace lockstep
